"""The answer of a study: what to take and why, its front and bill, in sentences, tables, pareto.csv and as a result."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
import pandas as pd

from paretune.core.errors import BadInput, BudgetRefused, JobFailed
from paretune.core.result import Result, Row, as_json, csv_text, read_rows
from paretune.presentation.text import aligned, dollars, usd
from paretune.pricing import ROUNDING_USD
from paretune.specification import metrics
from paretune.specification.catalog import owner
from paretune.specification.declaration import experimental_words, spell
from paretune.specification.job import JobSpec
from paretune.studies.definition.objectives import OBJECTIVES, costs, violations
from paretune.studies.results.front import FEWEST_EQUAL, INTERVAL, Configuration, StudyFront, value_of
from paretune.studies.results.trials import PREDICTED, Trial, TrialStatus, counted, label

_MOST_REASONS = 6
_DIGITS = re.compile(r"\d+")
_NEVER = 0.01  # probability of a collapse below which nothing is said of it
_RARE = 0.05  # the same after FEWEST_EQUAL repeats and a first run that all trained
_RISKY = 0.15  # probability of a collapse from which on the recommendation warns of it
_ROOM = 1.25  # times the upper end of its time that a recommended job may take
_UPPER = (metrics.JOB_SECONDS, f"{metrics.ESTIMATED_SECONDS}_high")
_SIMULATED_ONLY = ("launcher", "simulation")


@dataclass(frozen=True, kw_only=True)
class Pick:
    """One recommended configuration."""

    titles: tuple[str, ...]  # its roles: the cheapest within noise of the best F1, the fastest, the knee
    point: Configuration
    reason: str
    risk: str = ""  # a sentence about runs of it that collapse; empty if there is nothing to say
    runs: str = ""  # how many runs it rests on, and why not on more
    command: str = ""  # the command that repeats its job; empty if its parameters make no job
    real_command: str = ""  # for a simulated one, the command that launches it for money; else empty

    @property
    def title(self) -> str:
        """All titles, as a heading."""
        title = ", and ".join(self.titles)
        return title[:1].upper() + title[1:]


def recommend(front: StudyFront, unverified: Mapping[int, str] | None = None) -> list[Pick]:
    """Return the recommended configurations, all on the front, the most important first; none if none is feasible.

    Each has one of three roles, or several: the cheapest within noise of the best quality, the fastest, and the knee of
    the front. `unverified` maps the number of a point to the reason why it has no more runs.
    """
    roles: dict[int, list[_Role]] = {}
    for role in (_cheapest_good(front), _fastest(front), _knee(front)) if front.feasible else ():
        if role is not None:
            roles.setdefault(role[0].number, []).append(role)
    picks = []
    for number, of_point in roles.items():
        points, titles, reasons = zip(*of_point, strict=True)
        point, why_no_more = points[0], (unverified or {}).get(number)
        count = len(point.trials)
        picks.append(
            Pick(
                titles=titles,
                point=point,
                reason=" ".join(reasons),
                risk=_risk(front, point),
                runs=f"{count} run{'s' if count > 1 else ''}" + (f" ({why_no_more})" if why_no_more else ""),
                command="" if front.is_foreign else launch_command(point),
                real_command=launch_command(point, _SIMULATED_ONLY) if point.trial.origin == "simulated" else "",
            )
        )
    return picks


def failures(trials: Sequence[Trial]) -> list[str]:
    """Return a line for each reason why trials ended without a result, the most frequent first.

    Reasons that differ only in numbers, such as those of lines, are one; its first text stands for all.
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


def launch_command(point: Configuration, without: Collection[str] = ()) -> str:
    """Return the command that launches a point's job, without these parameters; empty if there is no such job.

    Its limit is a quarter above the most seconds that the job may take, if they are known.
    """
    left_out = {"dry_run", "force", *without}
    given = {name: text for name, text in point.trial.given.items() if name.partition(".")[0] not in left_out}
    if "learning_rate" in point.trial.spec.force:
        given["force"] = "learning_rate"
    upper_s = max((trial.measured[n] for trial in point.trials for n in _UPPER if n in trial.measured), default=None)
    if upper_s is not None:
        given["max_runtime_minutes"] = str(math.ceil(_ROOM * upper_s / 60))
    try:
        return re.sub(r"(_minutes \d+)\.0\b", r"\1", JobSpec.read(given).command())
    except BadInput:
        return ""


_Role = tuple[Configuration, str, str]  # a configuration, its role, and why it has that


def _cheapest_good(front: StudyFront) -> _Role:
    name = front.quality
    cheap = "the cheapest" if metrics.COST_USD in _measured(front) else "the least demanding"
    if name is None:
        return min(front.best, key=front.cost_of), cheap, "No objective of the study says how good a model is."
    if front.is_floor:
        point, bounds = _cheapest(front, front.best), " and ".join(front.bounds(name))
        return point, f"{cheap} with {bounds}", f"Its {label(name)} is {front.stated(point, name)}."
    best, equal = best_in(front, name)
    point = _cheapest(front, equal)
    reason = f"It has the best {label(name)} itself."
    if point.number != best.number:
        loss = abs(best.means[name] - point.means[name])
        loss += front.noises[name].at_most(math.hypot(best.errors[name], point.errors[name]))
        reason = (
            f"It is at most {loss / front.unit(name)[0]:.2g} worse ({INTERVAL:.0%}) than the best {label(name)} on the "
            f"front, {front.stated(best, name)} in trial {best.number}."
        )
    return point, f"{cheap} within noise of the best {label(name)}", reason


def _fastest(front: StudyFront) -> _Role | None:
    name = next(
        (name for names in (front.objectives, _measured(front)) for name in metrics.TIMES if name in names), None
    )
    if name is None:
        return None
    title = "the fastest" if name in front.objectives else "the fastest on the front"
    return _cheapest(front, best_in(front, name)[1]), title, f"The fastest is judged by {label(name)}."


def _knee(front: StudyFront) -> _Role | None:
    """Return the knee of a two-objective front: the point farthest from the line between its scaled ends."""
    if (pair := front.main_pair) is None:
        return None
    best = front.best_in_pair(pair)
    minimised = np.array([costs(point.means, {name: front.objectives[name] for name in pair}) for point in best])
    low, span = minimised.min(axis=0), np.ptp(minimised, axis=0)
    if len(best) < 3 or not span.all():
        return None
    depths = 1 - ((minimised - low) / span).sum(axis=1)  # below the chord from (0, 1) to (1, 0)
    if depths.max() <= 1e-9:
        return None  # the front bends the other way: no point is a good trade
    knee = best[int(depths.argmax())]
    equal = [point for point in front.best if point.is_like(knee, front.objectives)]
    reason = f"Past it a little more of {label(pair[0])} or {label(pair[1])} costs much of the other."
    return min(equal, key=front.cost_of), "the knee", reason


def collapse_risk(front: StudyFront, point: Configuration) -> float:
    """Return the probability of a collapse; 0 if it is too small to estimate, or if all runs are equal."""
    probability, count = point.collapse_probability or 0.0, len(point.trials)
    are_equal = count > 1 and len({trial.values.get(front.quality or "") for trial in point.trials}) == 1
    is_rare = probability < (_RARE if point.trained > FEWEST_EQUAL else _NEVER)
    return 0.0 if not point.collapses and (is_rare or are_equal) else probability


def _risk(front: StudyFront, point: Configuration) -> str:
    """Describe the risk of a collapse; empty if none is expected."""
    probability, count = collapse_risk(front, point), len(point.trials)
    if point.collapses:
        was = "1 of its runs" if point.collapses == 1 else f"{point.collapses} of its runs"
        again = f": of {count}, and the next one does with a probability of about {probability:.0%}"
        return f"Collapsed: {was}{again}; the {label(front.quality or '')} above is that of runs that train."
    if not probability:
        return ""
    is_own = point.trial.spec.runs_user_code  # and need not have a learning rate
    advice = ": its learning rate may be too high" if probability > _RISKY and not is_own else ""
    return f"A further run of it collapses with a probability of about {probability:.0%}{advice}."


def _measured(front: StudyFront) -> list[str]:
    return [name for name in front.feasible[0].means if all(name in point.means for point in front.feasible)]


def _cheapest(front: StudyFront, points: Sequence[Configuration]) -> Configuration:
    """Return the cheapest point; of points whose dollars are equal within noise, the one with the best model."""
    cheapest, name = min(points, key=front.cost_of), front.quality
    priced = [point for point in points if metrics.COST_USD in point.means]
    if name is None or cheapest not in priced:
        return cheapest
    goal = {name: front.objectives[name]}
    as_cheap = [point for point in priced if point.is_like(cheapest, [metrics.COST_USD])]
    return min(as_cheap, key=lambda point: (*costs(point.means, goal), front.cost_of(point)))


def best_in(front: StudyFront, name: str) -> tuple[Configuration, list[Configuration]]:
    """Return the best point of the front in one objective, and all points of the front within noise of it.

    A point off the front may have a slightly better mean: within noise, at more dollars or seconds beyond noise.
    """
    goal = {name: front.objectives.get(name) or OBJECTIVES[name].direction}
    best = min(front.best, key=lambda point: (costs(point.means, goal), front.cost_of(point)))
    return best, [point for point in front.best if point.is_like(best, [name])]


_MOST_LINES = 20  # rows of a table in a terminal


@dataclass(frozen=True, kw_only=True)
class StudyAnswer:
    """The answer of a study."""

    name: str
    front: StudyFront
    budget_usd: float | None = None  # what the study may spend; None for no limit
    committed_usd: float = 0.0  # worst cases of the running jobs
    unverified: Mapping[int, str] = field(default_factory=dict)  # number of a point to why it has no more runs
    n_trials: int | None = None  # how many trials it may make, or None
    running: tuple[str, ...] | None = None  # the jobs under way, in words; None once the study has ended
    prices: Mapping[str, str] = field(default_factory=dict)  # instance type to why its price is in doubt or unknown
    levels: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # trial of a design to factor to level

    @cached_property
    def picks(self) -> tuple[Pick, ...]:
        """Recommended configurations, the most important first; empty if nothing is feasible."""
        return tuple(recommend(self.front, self.unverified))

    @cached_property
    def best(self) -> Configuration | None:
        """The point on the front with the best quality, or None."""
        name = self.front.quality
        return None if name is None or not self.front.feasible else best_in(self.front, name)[0]

    def opening(self) -> list[str]:
        """Return the answer in a few sentences, or why there is none; simulated studies say so first."""
        simulated = "Simulated: nothing of this has run, and no number below was measured."
        lines = [simulated] * self.front.is_simulated
        if not self.picks:
            return lines + _nothing(self.front)
        pick = self.picks[0]
        if remark := experimental_words(pick.point.trial.spec.experimental()):
            lines.append(f"{remark[0].upper()}{remark[1:]}.")
        lines.append(
            f"Take trial {pick.point.number} ({pick.point.trial.setting()}): {self.front.in_words(pick.point)}."
        )
        lines.append(f"It is {', and '.join(pick.titles)}. {pick.reason} This rests on {pick.runs}.")
        return lines + self.remarks()

    def remarks(self) -> list[str]:
        """Return sentences to read before following the first recommendation."""
        over = f"The study has cost {usd(self.over_budget_usd)} more than its budget."
        lines = [self.picks[0].risk] * bool(self.picks[0].risk) + [over] * bool(self.over_budget_usd)
        lines += [f"Of its training: {verdict}." for verdict in self.picks[0].point.trial.verdicts]
        doubt = self.prices.get(self.picks[0].point.trial.spec.instance_type)
        lines += [f"Its dollars are in doubt: {doubt}."] * bool(doubt)
        types = [trial.spec.instance_type for trial in self.front.trials]
        if not self.front.is_foreign and not any(owner(name).is_billed for name in types):
            lines.append("Its dollars are notional: they are seconds of this machine, and nobody bills them.")
        return lines

    @property
    def over_budget_usd(self) -> float:
        """Dollars spent beyond the budget, because a job cost more than its worst case; 0 if it was kept."""
        over_usd = 0.0 if self.budget_usd is None else self.front.spent_usd - self.budget_usd
        return over_usd if over_usd > ROUNDING_USD else 0.0

    def state(self) -> str:
        """Describe the progress: Running: 5 of 6 trials, 0.04 of 0.10 USD, best F1 0.81."""
        front, parts = self.front, [counted(self.front.trials)]
        if self.running is not None and self.n_trials is not None:
            parts = [f"{sum(trial.counts for trial in front.trials)} of {self.n_trials} trials"]
        if not front.is_foreign:
            of_budget = "" if self.budget_usd is None else f" of {self.budget_usd:g}"
            parts.append(f"{dollars(front.spent_usd)}{of_budget} USD")
        if self.best is not None and front.quality is not None:
            parts.append(f"best {label(front.quality)} {front.number(front.quality, self.best.means[front.quality])}")
        return ("Ended: " if self.running is None else "Running: ") + ", ".join(parts)

    def bill(self) -> str:
        """Return dollars spent, committed and left."""
        bill = f"spent {usd(self.front.spent_usd)}, committed to running jobs at worst {usd(self.committed_usd)}"
        if self.budget_usd is None:
            return bill
        left_usd = self.budget_usd - self.front.spent_usd - self.committed_usd
        return f"{bill}, left {usd(left_usd)} of {usd(self.budget_usd)}"

    def text(self) -> str:
        """Return the answer for a terminal: recommendation, front, bill."""
        front, simulated = self.front, "Simulated: " if self.front.is_simulated else ""
        blocks = list(map(self._described, self.picks)) or [" ".join(self.opening())]
        if front.best:
            table = front_table(front)
            more = f"\n... and {len(table) - _MOST_LINES} more" if len(table) > _MOST_LINES else ""
            blocks.append(
                f"{simulated}Front over all objectives, cheapest first:\n{aligned(table[:_MOST_LINES])}{more}"
            )
        if not front.is_foreign:
            blocks.append(f"{simulated}Budget: {self.bill()}.")
        if self.picks and (lines := failures(front.trials)):
            blocks.append("\n  ".join(["Without a result:", *lines]))
        return "\n\n".join(blocks) + "\n"

    def _described(self, pick: Pick) -> str:
        none = "" if self.front.is_foreign else "its parameters are none of a job that can be launched"
        commands = list(filter(None, [pick.command or none]))
        if pick.real_command:
            commands = [f"again in the simulation: {pick.command}", f"for real, and for money: {pick.real_command}"]
        if pick is self.picks[0]:
            return "\n  ".join([" ".join(self.opening()), *commands])
        head = f"{pick.title}: trial {pick.point.number}, {pick.runs}; {self.front.in_words(pick.point)}"
        return "\n  ".join(filter(None, [head, pick.point.trial.setting(), pick.risk, *commands]))


def _nothing(front: StudyFront) -> list[str]:
    """Return the reasons why nothing is recommended."""
    if not front.trials:
        return ["No trial has been tried yet, so there is no front."]
    if not front.points:
        text = f"No trial of {len(front.trials)} has completed, so there is no front and nothing to recommend."
        return [text, *(f"{line.rstrip('.')}." for line in failures(front.trials))]
    trained = [point for point in front.points if not point.trial.is_probe]
    if not trained:
        return [f"{len(front.points)} probes have measured seconds, and no training has completed."]
    closest = min(trained, key=lambda point: _missed(front, point))
    absent = [name for name in front.objectives if not any(name in point.means for point in trained)]
    reasons = [*front.unmet(closest), *(f"{label(name)} was not measured in any of them" for name in absent)]
    count = "1 configuration has" if len(trained) == 1 else f"{len(trained)} configurations have"
    head = f"{count} completed, but none can be recommended; the closest is trial"
    return [f"{head} {closest.number}: {'; '.join(reasons)}."]


def _missed(front: StudyFront, point: Configuration) -> float:
    """Return by how much a point misses the constraints, as a sum of shares of their bounds."""
    missed = 0.0
    for key, amount in violations(point.means, front.constraints).items():
        name, end = key.rsplit(" ", 1)
        missed += max(0.0, amount) / (abs(front.constraints[name][end]) or 1.0)
    return missed


@dataclass(frozen=True, kw_only=True)
class StudyResult(Result):
    """A study that has ended, why, its MLflow run, and what to type or open to look at it."""

    answer: StudyAnswer
    run_id: str
    ending: str
    open_command: str

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # a constant for all other results
        """4 if the study cost more than its budget, 3 if it recommends nothing, else 0."""
        if self.answer.over_budget_usd:
            return BudgetRefused.exit_code
        return 0 if self.answer.picks else JobFailed.exit_code

    @property
    def title(self) -> str:
        """The study and why it has ended."""
        return f"study {self.answer.name}: {self.ending}"

    def rows(self) -> list[Row]:
        """Return the rows of pareto.csv: one per trial, by number, then one per predicted point."""
        return read_rows(pareto_csv(self.answer.front, self.answer.levels))

    @property
    def front(self) -> pd.DataFrame:
        """The trials on the Pareto front, as `trials_dataframe` has them."""
        trials = self.trials_dataframe()
        return trials[trials["pareto_rank"] == 0].reset_index(drop=True)

    @property
    def best(self) -> dict[str, object] | None:
        """The recommended trial: `trial`, `parameters`, `means` and `command`, among others; None if there is none."""
        return _recommended(self.answer.picks[0]) if self.answer.picks else None

    def trials_dataframe(self) -> pd.DataFrame:
        """Return one row per finished trial, without the predicted points that `to_frame` also has."""
        frame = self.to_frame()
        return frame[frame["origin"] != PREDICTED].reset_index(drop=True)

    def to_dict(self) -> dict[str, object]:
        """Run, ending, objectives, dollars, the recommended trials and all trials."""
        front = self.answer.front
        return {
            "study": self.answer.name,
            "run_id": self.run_id,
            "ending": self.ending,
            "origin": front.trials[0].origin if front.trials else None,
            "objectives": dict(front.objectives),
            "quality": front.quality,
            "spent_usd": front.spent_usd,
            "committed_usd": self.answer.committed_usd,
            "budget_usd": self.answer.budget_usd,
            "hypervolume": as_json(front.hypervolume),
            "recommended": [_recommended(pick) for pick in self.answer.picks],
            "trials": as_json(self.rows()),
            "open_command": self.open_command,
        }

    def notes(self) -> list[str]:
        """Return the answer in words, and where to look next."""
        return [*self.answer.opening(), self.open_command]

    def __str__(self) -> str:
        """Return recommendation, front and bill for a terminal."""
        return f"\n{self.title}\n\n{self.answer.text()}\n  {self.open_command}"


def _recommended(pick: Pick) -> dict[str, object]:
    point = pick.point
    return {
        "trial": point.number,
        "titles": list(pick.titles),
        "why": pick.reason,
        "runs": pick.runs,
        "parameters": as_json(point.trial.point),
        "means": as_json(point.means),
        "standard_errors": as_json(point.stated_errors),
        "collapse_probability": point.collapse_probability,
        "command": pick.command or None,
        "real_command": pick.real_command or None,
    }


def pareto_csv(front: StudyFront, levels: Mapping[int, Mapping[str, str]] | None = None) -> str:
    """Return the text of pareto.csv: a row per trial, by number, then per predicted point; unknown cells are empty.

    `levels` has the level of each factor of a trial of a design. `repeats` is the number of the first trial with the
    same job and another seed.

    A trial has its own values, not means. `_low` and `_high` of an objective bound the interval that holds, with
    probability `front.INTERVAL`, what its configuration reaches in the mean over seeds when it trains; both
    are empty after one run.
    """
    in_time = sorted(front.trials, key=lambda trial: trial.ended_at)
    spent = accumulate(trial.cost_usd or 0.0 for trial in in_time)
    spent_usd = {} if front.is_foreign else {trial.number: usd for trial, usd in zip(in_time, spent, strict=True)}
    of_design, trials = levels or {}, (*front.trials, *front.predicted)
    rows = [_row(front, trial, spent_usd.get(trial.number), of_design.get(trial.number, {})) for trial in trials]
    return csv_text(list(rows[0]) if rows else [], rows)


def _row(front: StudyFront, trial: Trial, spent_usd: float | None, levels: Mapping[str, str]) -> Row:
    point, is_predicted = front.point_of.get(trial.number), trial.origin == PREDICTED
    values: dict[str, Row] = {}
    for name in front.objectives:
        low, high = trial.intervals.get(name, (None, None))
        if point is not None and (error := point.stated_errors.get(name)) is not None:
            margin = front.noises[name].margin(error)
            low, high = point.means[name] - margin, point.means[name] + margin
        values[name] = {name: value_of(trial, name), f"{name}_low": low, f"{name}_high": high}
    cost = values.pop(metrics.COST_USD, {}) | {metrics.COST_USD: value_of(trial, metrics.COST_USD)}
    first = trial.number if point is None else point.number
    return {
        "trial": None if is_predicted else trial.number,
        "run_id": trial.run_id,
        **levels,
        **{name: spell(trial.value(name)) for name in front.shown},
        **{name: value for ends in values.values() for name, value in ends.items()},
        "status": "Predicted" if is_predicted else trial.shown_status,
        "origin": trial.origin,
        "pareto_rank": front.rank(trial),
        **cost,
        "spent_usd": spent_usd,
        "collapse_probability": trial.collapse_probability if point is None else point.collapse_probability,
        "repeats": trial.repeats if first == trial.number else first,
    }


def front_table(front: StudyFront, without: Collection[int] = ()) -> pd.DataFrame:
    """Return the front without these numbers, cheapest first, with the known standard errors."""
    rows = []
    for point in sorted((point for point in front.best if point.number not in without), key=front.cost_of):
        names = [name for name in dict.fromkeys([*front.objectives, metrics.COST_USD]) if name in point.means]
        stated = {front.heading(n): front.number(n, point.means[n], point.stated_errors.get(n)) for n in names}
        row = {"trial": str(point.number), "runs": str(len(point.trials)), **stated}
        probability = collapse_risk(front, point)
        risk = f"{probability:.0%}" if probability else ""
        rows.append({**row, "configuration": point.trial.setting(), "collapse probability": risk})
    return _frame(rows)


def trials_table(front: StudyFront) -> pd.DataFrame:
    """Return all trials with their own values, by number."""
    rows = []
    for trial in front.trials:
        values = {name: value_of(trial, name) for name in dict.fromkeys([*front.objectives, metrics.COST_USD])}
        repeat = "" if trial.repeats is None else f"repeats trial {trial.repeats}"
        stated = {front.heading(n): "" if value is None else front.number(n, value) for n, value in values.items()}
        row = {"trial": str(trial.number), "rank": spell(front.rank(trial)), **stated, "configuration": trial.setting()}
        row |= {"status": trial.shown_status, "run id": trial.run_id}
        rows.append(row | {"remark": "; ".join(filter(None, (repeat, trial.reason)))})
    return _frame(rows)


def _frame(rows: list[dict[str, str]]) -> pd.DataFrame:
    """Return the rows, without columns that are empty in all of them."""
    frame = pd.DataFrame(rows, dtype=object).fillna("")
    return frame.loc[:, frame.ne("").any()]
