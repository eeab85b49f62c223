"""The answer of a study in sentences: what it recommends and why, its progress, and its bill."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath

from paretune.core.shell import options
from paretune.presentation.text import aligned, plain, usd
from paretune.pricing import ML_M5_LARGE, ROUNDING_USD
from paretune.specification.catalog import owner
from paretune.specification.declaration import Value, experimental_words, spell
from paretune.specification.launchers import LOCAL
from paretune.storage.files import as_yaml
from paretune.studies.definition.file import OF_OWN_CODE
from paretune.studies.definition.objectives import costs, violations
from paretune.studies.definition.space import Search
from paretune.studies.results.configurations import Configuration
from paretune.studies.results.figures import Figures
from paretune.studies.results.front import StudyFront
from paretune.studies.results.growth import Growth, growth_in_words, growth_of
from paretune.studies.results.noise import INTERVAL
from paretune.studies.results.recommendation import RECOMMENDED, Pick, recommend
from paretune.studies.results.tables import configurations_table
from paretune.studies.results.trials import Trial, counted, label
from paretune.studies.trial_status import TrialStatus

_MOST_REASONS, _MOST_ALIKE = 6, 6
_SAME = 0.01  # dollars or seconds of jobs that differ by at most this share are about the same
_DIGITS = re.compile(r"\d+")


def failures(trials: Sequence[Trial]) -> list[str]:
    """Return a line for each reason why trials ended without a result, the most frequent reason first.

    Reasons that differ only in numbers, such as line numbers, count as one reason, and the line shows the first of
    them. After `_MOST_REASONS` lines, one line counts all other trials.
    """
    ended = [trial for trial in trials if trial.status not in (TrialStatus.RUNNING, TrialStatus.COMPLETED)]
    keys = [(trial.status.in_words, _DIGITS.sub("#", trial.reason)) for trial in ended]
    reasons, texts = Counter(keys), dict(zip(reversed(keys), (trial.reason for trial in reversed(ended)), strict=True))
    listed = reasons.most_common(_MOST_REASONS)
    lines = [_counted_reason(count, key[0], texts[key]) for key, count in listed]
    rest = reasons.total() - sum(count for _, count in listed)
    return [*lines, f"{rest} for other reasons"] if rest else lines


def _counted_reason(count: int, status: str, reason: str) -> str:
    rest = reason.removeprefix(status).lstrip(",: ") if reason.startswith(status) else reason
    return f"{count} {status}" + (f": {rest}" if rest else "")


def _is_same(default: Value, value: Value) -> bool:
    if isinstance(default, str) or isinstance(value, str):
        return str(default) == str(value)
    return math.isclose(default, value, rel_tol=1e-3)  # a rate at the default may have few digits


_MOST_LINES = 20  # rows of a table in a terminal


@dataclass(frozen=True, kw_only=True)
class StudyAnswer:
    """The answer of a study."""

    name: str
    front: StudyFront
    budget_usd: float | None = None  # what the study may spend; None for no limit
    budget_s: float | None = None  # seconds that all jobs together may take where nobody bills; None for no limit
    committed_usd: float = 0.0  # dollars reserved for the running jobs and for instances kept after a job
    committed_s: float = 0.0  # the same in seconds, for the running jobs
    unverified: Mapping[int, str] = field(default_factory=dict)
    """Maps the number of a configuration on the front to the reason why it has no more runs."""
    n_trials: int | None = None  # limit on the trials of the study; None for no limit
    running: tuple[str, ...] | None = None  # descriptions of the running jobs; None once the study has ended
    prices: Mapping[str, str] = field(default_factory=dict)
    """Instance type to the reason why its price is doubtful or unknown."""
    levels: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """In a designed experiment, number of a trial to the level of each factor."""
    search: Search = field(default_factory=dict)
    """What the study searches."""
    defaults: Mapping[str, Value] = field(default_factory=dict)
    """The script's own default of each searched parameter, as far as it shows one."""
    estimated: Mapping[str, Value] | None = None
    """The point that the answer for 0 USD recommends; None if nothing was known."""
    beliefs: Sequence[str] = ()
    """What the search assumed before any run, and what the runs have taught it, one sentence for each belief."""

    @cached_property
    def figures(self) -> Figures:
        """The figures of its configurations."""
        return Figures(self.front)

    @property
    def budget(self) -> float | None:
        """What the study may spend, in the unit of what it spends (`StudyFront.spending`); None for no limit."""
        return self.budget_s if self.front.spending.is_time else self.budget_usd

    @property
    def committed(self) -> float:
        """What is reserved for running jobs, in the same unit."""
        return self.committed_s if self.front.spending.is_time else self.committed_usd

    @cached_property
    def picks(self) -> tuple[Pick, ...]:
        """Recommended configurations, the most important first; empty if nothing is feasible."""
        return tuple(recommend(self.front, self.unverified))

    @cached_property
    def best(self) -> Configuration | None:
        """The configuration with the best mean quality; None if none is feasible or quality is not measured."""
        return self.front.best_in_quality()

    def opening(self) -> list[str]:
        """Return the answer in a few sentences, or the reasons why there is none.

        If the study is simulated, the first sentence says so.
        """
        simulated = "Simulated: none of this has run, and no number below was measured."
        lines = [simulated] * self.front.is_simulated
        if not self.picks:
            return lines + _nothing(self.front)
        pick = self.picks[0]
        nothing = "" if self.front.spending.is_time else ", and 0 USD were spent"
        lines += [f"Estimated: nothing was run{nothing}."] * (not self.front.trials)
        lines += filter(None, [self.cut_off()])
        if remark := experimental_words(pick.point.trial.spec.experimental()):
            lines.append(f"{remark[0].upper()}{remark[1:]}.")
        lines.append(f"Take {self.named(pick.point)}: {self.figures.in_words(pick.point)}.")
        roles = [title for title in pick.roles if title != RECOMMENDED]
        also = "also " * (RECOMMENDED in pick.roles)
        is_it = [f"It is {also}{', and '.join(roles)}."] * bool(roles)
        sentences = [pick.reason, *is_it] if also else [*is_it, pick.reason]
        rests = [] if pick.point.is_expected else [f"This rests on {pick.runs}."]
        lines.append(" ".join([*sentences, *rests]))
        return [*lines, *filter(None, [self.cost_of_search()]), *self.doubts(), *self.remarks()]

    @staticmethod
    def named(point: Configuration) -> str:
        """Return the name of a configuration: its trial, if it has one, and its settings."""
        setting = point.trial.setting()
        return setting if point.is_expected else f"trial {point.number} ({setting})"

    def cost_of_search(self) -> str:
        """Say what the search has taken, and from how many jobs on it pays, if there was an answer before it."""
        paid, spent = self.front.spending, self.front.spent
        if not self.picks or self.front.is_foreign or not spent:
            return ""
        point = self.picks[0].point
        of_job = paid.of_job(point.means)
        text = f"The search {'took' if paid.is_time else 'cost'} {paid.text(spent)}{' of job time' * paid.is_time}"
        if of_job:
            times = spent / of_job
            many = f"as much as {plain(times, 2)} jobs of the recommended configuration"
            text += f", {many if times >= 1 else f'{times:.0%} of a job of the recommended configuration'}"
        known = self._known_before()
        if known is None or not of_job or point.is_expected:
            return f"{text}."
        if known.trial.setting() == point.trial.setting():
            return f"{text}. The free estimate recommends the same configuration."
        saved, differences = paid.of_job(known.means) - of_job, list[str]()
        if abs(saved) <= _SAME * of_job:
            differences.append("about as long" if paid.is_time else "about as expensive")
        else:
            than = paid.is_cheaper if saved > 0 else paid.is_dearer
            differences.append(f"{paid.text(abs(saved))} a job {than}")
        name = self.front.quality
        if name is not None and name in known.means and name in point.means:
            (own,), (other,) = (costs(each.means, {name: self.front.objectives[name]}) for each in (point, known))
            gain = self.figures.digits(name, abs(other - own))
            differences.append(f"its {label(name)} is {gain} {'better' if own < other else 'worse'}")
        pays = ""
        if saved > _SAME * of_job:
            pays = f": from {math.ceil(spent / saved):,} jobs on, the search has paid"
        before = f"The free estimate recommends {known.trial.setting()}"
        return f"{text}. {before}. Compared with it, the recommended one is {', and '.join(differences)}{pays}."

    def _known_before(self) -> Configuration | None:
        """Return what the study knows now of the configuration that the answer for 0 USD recommends."""
        points = [*self.front.feasible, *self.front.expected]
        return next((each for each in points if self.estimated == each.trial.point), None)

    def cut_off(self) -> str:
        """Return a sentence if the first recommendation was repeated and all repeats were cut off, else nothing."""
        point = self.picks[0].point
        repeats = [trial for trial in self.front.trials if trial.repeats == point.number]
        cut = [trial for trial in repeats if trial.status is TrialStatus.CUT_OFF]
        if not cut or len(point.trials) > 1:
            return ""
        what = f"All {len(cut)} repeats" if len(cut) > 1 else "The only repeat"
        were = "were" if len(cut) > 1 else "was"
        return (
            f"{what} of trial {point.number} {were} cut off at the time limit, so its figures rest on a single run: "
            "repeat it before you rely on them."
        )

    def doubts(self) -> list[str]:
        """Return sentences about how uncertain the quality of the first recommendation is."""
        front, point, name = self.front, self.picks[0].point, self.front.quality
        if name is None or (interval := front.interval(point, name)) is None or not point.errors.get(name):
            return []
        low, high = (self.figures.number(name, end) for end in interval)
        is_repeated = any(each.counts.get(name, 0) > 1 for each in front.points)
        source = "" if is_repeated else ", judged by how much trials with similar settings differ"
        lines = [f"Its true {label(name)} is between {low} and {high} ({INTERVAL:.0%}{source})."]
        if front.is_floor or not (alike := front.alike(point)):
            return lines
        *first, last = [str(each.number) for each in alike]
        if len(first) >= _MOST_ALIKE:
            first, last = first[: _MOST_ALIKE - 1], f"{len(alike) - _MOST_ALIKE + 1} others"
        others = f"trials {', '.join(first)} and {last}" if first else f"trial {last}"
        return [*lines, f"These runs cannot tell its {label(name)} from that of {others}."]

    def remarks(self) -> list[str]:
        """Return the warnings to read before following the first recommendation."""
        over = f"The study has cost {usd(self.over_budget_usd)} more than its budget."
        lines = [self.picks[0].risk] * bool(self.picks[0].risk) + [over] * bool(self.over_budget_usd)
        lines += [f"Warning about its training: {verdict}." for verdict in self.picks[0].point.trial.verdicts]
        lines += self.edges() + self._at_defaults()
        doubt = self.prices.get(self.picks[0].point.trial.spec.instance_type)
        lines += [f"Its dollars are in doubt: {doubt}."] * bool(doubt)
        types = [trial.spec.instance_type for trial in self.front.trials or [self.picks[0].point.trial]]
        if not self.front.is_foreign and not any(owner(name).is_billed for name in types):
            lines += self._notional()
        return lines

    def _notional(self) -> list[str]:
        """Say once what the search would have cost at the price that stands for a machine that nobody bills."""
        if not self.front.spending.is_time:
            return ["Its dollars are notional: this machine's time at a cloud price. You are not billed for it."]
        is_here = all(trial.spec.instance_type == LOCAL for trial in self.front.trials)
        what = (
            f"As an {ML_M5_LARGE.instance_type}, this machine" if is_here else "At the prices of its table, the cluster"
        )
        spent_usd = self.front.spent_usd
        return [f"Nobody bills this time. {what} would have cost {usd(spent_usd)}."] * (spent_usd > 0)

    def _at_defaults(self) -> list[str]:
        """Return a sentence if the first recommendation has the script's own defaults in all that was searched."""
        trial = self.picks[0].point.trial
        searched = {name: trial.point[name] for name in self.search if name in trial.point and name in self.defaults}
        if not searched or any(not _is_same(self.defaults[name], value) for name, value in searched.items()):
            return []
        script = PurePath(trial.spec.entry_script or "").name
        return [f"These are the defaults of {script}: nothing that was tried is recommended in their place."]

    def edges(self) -> list[str]:
        """Return a sentence for each number of the first recommendation that lies at an end of what was searched."""
        lines, point = list[str](), self.picks[0].point.trial.point
        for name, entry in self.search.items():
            if name not in point or (wider := entry.beyond(point[name])) is None:
                continue
            line = as_yaml({name: wider.as_json()}, in_one_line=True).strip()[1:-1]
            value = f"{name.removeprefix(OF_OWN_CODE)} {spell(point[name])}"
            where = f"Its {value} lies at an end of what was searched ({entry.in_words}), so better may lie beyond it"
            lines.append(
                f"{where}: `{line}` in a study file, such as {options(dry_run='true')} prints, searches there."
            )
        return lines

    @property
    def over_budget_usd(self) -> float:
        """Dollars spent beyond the budget, because a job cost more than its worst case; 0 if the budget was kept."""
        over_usd = 0.0 if self.budget_usd is None else self.front.spent_usd - self.budget_usd
        return over_usd if over_usd > ROUNDING_USD else 0.0

    @cached_property
    def growth(self) -> list[Growth]:
        """How the front has grown with the dollars spent, and is expected to grow with more, see `growth_of`."""
        return growth_of(self.front)

    def state(self) -> str:
        """Return the progress in words, such as `Running: 5 of 6 trials, 0.0400 USD of 0.100 USD, best F1 0.81`."""
        front, parts = self.front, [counted(self.front.trials)]
        if self.running is not None and self.n_trials is not None:
            parts = [f"{sum(trial.counts for trial in front.trials)} of {self.n_trials} trials"]
        if not front.is_foreign:
            text = front.spending.text
            parts.append(f"{text(front.spent)}{'' if self.budget is None else f' of {text(self.budget)}'}")
        if self.best is not None and front.quality is not None:
            number = self.figures.number(front.quality, self.best.means[front.quality])
            parts.append(f"best {label(front.quality)} {number}")
        if self.running is None and not front.trials:
            return f"Estimated: nothing was run, {front.spending.text(0.0)} spent"
        return ("Ended: " if self.running is None else "Running: ") + ", ".join(parts)

    def bill(self) -> str:
        """Return what is spent, reserved for running jobs and kept instances, and left, in words."""
        text, kept = self.front.spending.text, "" if self.front.spending.is_time else " and kept instances"
        bill = f"spent {text(self.front.spent)}, reserved {text(self.committed)} for running jobs{kept} (worst case)"
        if self.budget is None:
            return bill
        return f"{bill}, left {text(self.budget - self.front.spent - self.committed)} of {text(self.budget)}"

    def text(self) -> str:
        """Return the answer for a terminal: recommendation, front, bill."""
        front, simulated = self.front, "Simulated: " if self.front.is_simulated else ""
        blocks = list(map(self._described, self.picks)) or [" ".join(self.opening())]
        if front.best or front.expected_best:
            table = configurations_table(front)
            more = f"\n... and {len(table) - _MOST_LINES} more" if len(table) > _MOST_LINES else ""
            if "collapse probability" in table:
                more += (
                    f"\nA run that collapses has {label(front.quality or '')} far below what the other runs suggest."
                )
            head = "Front, shortest first" if front.spending.is_time else "Front, cheapest first"
            head += "; without a run: expected on it (80 % interval)" * bool(front.expected_best)
            blocks.append(f"{simulated}{head}:\n{aligned(table[:_MOST_LINES])}{more}")
        if growth := self.growth:
            blocks.append(
                "\n  ".join([f"What the {front.spending.noun} brought:", *growth_in_words(growth, front.spending)])
            )
        if not front.is_foreign:
            blocks.append(f"{simulated}Budget: {self.bill()}.")
        if self.picks and (lines := failures(front.trials)):
            blocks.append("\n  ".join(["Without a result:", *lines]))
        if self.beliefs:
            blocks.append("\n  ".join(["What the search believed:", *self.beliefs]))
        return "\n\n".join(blocks) + "\n"

    def _described(self, pick: Pick) -> str:
        why_none = "there is no command: a job with these parameters cannot be launched"
        commands = list(filter(None, [pick.command or ("" if self.front.is_foreign else why_none)]))
        if pick.real_command:
            money = ", which costs money" * owner(pick.point.trial.spec.instance_type).is_billed
            commands = [f"again in the simulation: {pick.command}", f"for real{money}: {pick.real_command}"]
        if pick is self.picks[0]:
            return "\n  ".join([" ".join(self.opening()), *commands])
        head = f"{pick.title}: trial {pick.point.number}, {pick.runs}; {self.figures.in_words(pick.point)}"
        why = pick.reason if pick.title.startswith("The best mean") else ""
        return "\n  ".join(filter(None, [head, pick.point.trial.setting(), why, pick.risk, *commands]))


def _nothing(front: StudyFront) -> list[str]:
    """Return sentences about why nothing is recommended."""
    if not front.trials:
        text = "Nothing has run yet, so there is no front, and nothing is known of the seconds of these jobs"
        limit = options(budget_hours="2") if front.spending.is_time else options(budget_usd="20")
        return [f"{text} before one has run: give the study a budget for a job, such as {limit}."]
    if not front.points:
        text = f"0 of {len(front.trials)} trials completed, so there is no front and nothing to recommend."
        return [text, *(f"{line.rstrip('.')}." for line in failures(front.trials))]
    trained = [point for point in front.points if not point.trial.is_probe]
    if not trained:
        return [f"{len(front.points)} probes have measured seconds, and no training run has completed."]
    closest = min(trained, key=lambda point: _missed(front, point))
    absent = [name for name in front.objectives if name not in closest.means]
    reasons = dict.fromkeys(
        [*Figures(front).unmet(closest), *(f"{label(name)} was not measured or is not finite" for name in absent)]
    )
    count = "1 configuration has" if len(trained) == 1 else f"{len(trained)} configurations have"
    head = f"{count} completed, but none can be recommended; the closest is trial"
    return [f"{head} {closest.number}: {'; '.join(reasons)}."]


def _missed(front: StudyFront, point: Configuration) -> float:
    """Return how much a configuration misses the constraints by: the sum of all misses, each divided by its bound."""
    missed = 0.0
    for key, amount in violations(point.means, front.constraints).items():
        name, end = key.rsplit(" ", 1)
        missed += max(0.0, amount) / (abs(front.constraints[name][end]) or 1.0)
    return missed
