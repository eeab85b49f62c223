"""The answer of a study: its front, what it recommends, its bill; as text, as a table and as a rank for every run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from paretune.core.errors import BudgetRefused, JobFailed
from paretune.core.result import Result, Row, as_json, read_rows
from paretune.estimating.noise import TELLING_ERRORS, are_alike
from paretune.presentation.numbers import usd, with_error
from paretune.pricing.budget import ROUNDING_USD
from paretune.specification import metrics
from paretune.studies.definition.objectives import spelled
from paretune.studies.results.front import StudyFront
from paretune.studies.results.objective_text import format_value, label
from paretune.studies.results.points import Point, value_of
from paretune.studies.results.recommendation import Pick, failures, headline, recommend
from paretune.studies.results.run_noise import INTERVAL
from paretune.studies.results.tables import forecast_table, front_table, pareto_csv
from paretune.studies.results.trials import PREDICTED, Trial, TrialStatus

if TYPE_CHECKING:
    from pandas import DataFrame

_MOST_LINES = 20  # rows of a table in a terminal


@dataclass(frozen=True, kw_only=True)
class Payoff:
    """The cost of a search, of one run of its recommendation, and of one run of the default; None if unknown."""

    spent_usd: float
    recommended_usd: float | None = None
    default_usd: float | None = None
    error_usd: float = 0.0  # standard error of the difference of the two runs
    default_basis: str = ""  # measured, simulated or estimated
    later_runs: int | None = None
    quality: str = ""  # comparison of the recommended model with the default's in words, or empty
    why_not: str = ""  # reason why the payoff is not known, or empty

    @property
    def saved_usd(self) -> float | None:
        """Dollars saved per later run against the default; negative if the recommended configuration is dearer."""
        if self.default_usd is None or self.recommended_usd is None:
            return None
        return self.default_usd - self.recommended_usd

    @property
    def runs_to_break_even(self) -> int | None:
        """Later runs until the search has paid for itself; None if they are not cheaper beyond noise, or not known."""
        if self.saved_usd is None or self.saved_usd <= TELLING_ERRORS * self.error_usd:
            return None
        # Reduced by a hair, so that 3 x 0.1 USD pay 0.3 USD after 3 runs.
        return math.ceil(self.spent_usd / self.saved_usd * (1 - 1e-12))

    def sentences(self) -> list[str]:
        """The payoff in words; none of a study that somebody else has run."""
        if not self.spent_usd and not self.why_not and self.saved_usd is None:
            return []
        spent = f"The search has cost {usd(self.spent_usd)}."
        if self.saved_usd is None or self.default_usd is None or self.recommended_usd is None:
            return [spent, f"Whether it pays for itself cannot be said: {self.why_not}."]
        against = (
            f"One run of the cheapest good configuration costs {usd(self.recommended_usd)}, one of the default "
            f"configuration {usd(self.default_usd)} ({self.default_basis})"
        )
        bought = [self.quality] if self.quality else []
        if self.runs_to_break_even is None:
            is_noise = abs(self.saved_usd) <= TELLING_ERRORS * self.error_usd
            difference = "a difference that cannot be told from noise" if is_noise else f"{usd(-self.saved_usd)} less"
            return [spent, f"{against}, {difference}: in dollars the search never pays for itself.", *bought]
        saving = f"{against}: every later run saves {with_error(self.saved_usd, self.error_usd)} USD."
        return [spent, saving, self._balance(self.saved_usd, self.runs_to_break_even), *bought]

    def _balance(self, saved: float, runs: int) -> str:
        when = f"The search pays for itself after {runs:,} later run{'s' if runs != 1 else ''}"
        if self.later_runs is None:
            return f"{when}; set later_runs to how often the winner will be trained again to see the balance."
        total = self.later_runs * saved
        planned = f"{self.later_runs:,} planned one{'s' if self.later_runs != 1 else ''}"
        if self.later_runs >= runs:
            net = usd(max(total - self.spent_usd, 0.0))
            return f"{when}; the {planned} save {usd(total)}, {net} more than it has cost."
        return f"{when}; the {planned} save only {usd(total)}, so it will not have paid for itself by then."


def payoff_of(front: StudyFront, recommended: Point | None, default: Trial | None, later_runs: int | None) -> Payoff:
    """The payoff of a study; `default` is a run of the default configuration, or its estimate (`origin` estimated)."""
    if front.is_foreign:
        return Payoff(spent_usd=0.0)
    default_usd = None if default is None else value_of(default, metrics.COST_USD)
    why_not = _why_not(recommended, default)
    if why_not or recommended is None or default is None or default_usd is None:
        return Payoff(spent_usd=front.spent_usd, later_runs=later_runs, why_not=why_not)
    default_point = front.point_of(default)
    if default_point is not None and default_point.usd_per_run is not None:
        default_usd, error = default_point.usd_per_run, default_point.errors[metrics.COST_USD]
    else:
        error = front.noises[metrics.COST_USD].standard_error(default_usd, 1)
    is_same = default_point is not None and default_point.number == recommended.number
    same = "The default configuration is the recommended one."
    return Payoff(
        spent_usd=front.spent_usd,
        recommended_usd=recommended.usd_per_run,
        default_usd=default_usd,
        error_usd=0.0 if is_same else math.hypot(error, recommended.errors[metrics.COST_USD]),
        default_basis=default.origin,
        later_runs=later_runs,
        quality=same if is_same else _quality(front, recommended, default),
    )


def _why_not(recommended: Point | None, default: Trial | None) -> str:
    """Reason why the payoff is not known; empty if it is."""
    if recommended is None:
        return "there is no configuration to recommend"
    if recommended.usd_per_run is None:
        return "the price of its instances is not known"
    if default is None:
        return "the default configuration has neither been run nor estimated"
    if default.status is not TrialStatus.COMPLETED and default.origin != "estimated":
        return f"the default configuration has not completed ({default.reason or default.status.value})"
    is_priced = value_of(default, metrics.COST_USD) is not None
    return "" if is_priced else "the price of the default configuration is not known"


def _quality(front: StudyFront, recommended: Point, default: Trial) -> str:
    name = front.quality
    if name is None or name not in default.values or name not in recommended.means:
        return ""
    # A rehearsed default has the value that the simulation adds noise to.
    point, default_value, default_error = front.point_of(default), default.values[name], 0.0
    if point is not None:
        default_value, default_error = point.measured[name]
    elif default.origin == "measured":
        default_error = front.noises[name].standard_error(default_value, 1)
    value, error = recommended.measured[name]
    text, default_text = format_value(name, value, error), format_value(name, default_value, default_error)
    runs = f"its {recommended.trained} runs in the mean" if recommended.trained > 1 else "its run"
    if are_alike(value, default_value, error, default_error):
        return f"The {label(name)} of {runs}, {text}, and that of the default, {default_text}, are equal within noise."
    word = "better" if (value > default_value) == (front.objectives[name] == "maximize") else "worse"
    return f"The {label(name)} of {runs}, {text}, is {word} than the default's, {default_text}."


@dataclass(frozen=True, kw_only=True)
class StudyAnswer:
    """The answer of a study."""

    name: str
    front: StudyFront
    budget_usd: float | None = None  # what the study may spend; None for no limit
    committed_usd: float = 0.0  # worst cases of the running jobs
    later_runs: int | None = None  # how often the winner will be trained again
    default: Trial | None = None  # of the default configuration, or an estimate with the origin "estimated"
    unverified: Mapping[int, str] = field(default_factory=dict)  # number of a point to why it has no more runs

    @cached_property
    def picks(self) -> tuple[Pick, ...]:
        """Recommended configurations, the most important first; empty if nothing is feasible."""
        return tuple(recommend(self.front, self.unverified))

    @cached_property
    def payoff(self) -> Payoff:
        """The saving of the first recommended configuration compared with the default one."""
        winner = self.picks[0].point if self.picks else None
        return payoff_of(self.front, winner, self.default, self.later_runs)

    @cached_property
    def hypervolume(self) -> float:
        """Hypervolume of the front over all objectives, against its reference point; 0 without a feasible point."""
        return self.front.hypervolume

    def opening(self, *, has_reason: bool = True) -> list[str]:
        """The answer in a few sentences; `has_reason` as in `headline`."""
        over = f"The study has cost {usd(self.over_budget_usd)} more than its budget." if self.over_budget_usd else ""
        return [*headline(self.front, self.picks, has_reason=has_reason), *filter(None, [over])]

    @property
    def over_budget_usd(self) -> float:
        """Dollars spent beyond the budget, because a job cost more than its worst case; 0 if it was kept."""
        over_usd = 0.0 if self.budget_usd is None else self.front.spent_usd - self.budget_usd
        return over_usd if over_usd > ROUNDING_USD else 0.0

    def ranks(self) -> dict[str, int]:
        """Run id to Pareto rank, 0 on the front; without runs that have no rank (failed, constraint not met)."""
        ranks = {trial.run_id: self.front.rank(trial) for trial in self.front.trials}
        return {run_id: rank for run_id, rank in ranks.items() if rank is not None}

    def csv(self) -> str:
        """The text of pareto.csv."""
        return pareto_csv(self.front)

    def text(self) -> str:
        """The answer for a terminal: recommendation, front, bill."""
        front = self.front
        blocks = [" ".join(self.opening()), *(_described(pick, front) for pick in self.picks)]
        if front.best:
            title = f"{'Simulated front' if front.is_simulated else 'Front'} over all objectives, cheapest first"
            blocks.append(f"{title}:\n{front_table(front, _MOST_LINES).text()}{_more(len(front.best))}")
        if front.forecast:
            title = f"Predicted and not run, with intervals of {INTERVAL:.0%}; no point that has run beats them"
            blocks.append(f"{title}:\n{forecast_table(front, _MOST_LINES).text()}{_more(len(front.forecast))}")
        bill = f"spent {usd(front.spent_usd)}, committed {usd(self.committed_usd)}"
        if self.budget_usd is not None:
            bill += f", left {usd(self.budget_usd - front.spent_usd - self.committed_usd)} of {usd(self.budget_usd)}"
        if not front.is_foreign:
            budget = "Simulated budget" if front.is_simulated else "Budget"
            blocks += [" ".join(self.payoff.sentences()), f"{budget}: {bill}."]
        if self.picks and (lines := failures(front.trials)):
            blocks.append("Without a result:\n" + "\n".join(f"  {line}" for line in lines))
        return "\n\n".join(blocks) + "\n"


def _more(count: int) -> str:
    return f"\n... and {count - _MOST_LINES} more" if count > _MOST_LINES else ""


def _described(pick: Pick, front: StudyFront) -> str:
    values = "; ".join(f"{name} {value}" for name, value in pick.figures(front))
    lines = [f"{pick.title}: trial {pick.point.number}, {pick.runs}; {values}", f"  {pick.point.trial.setting()}"]
    if pick.risk:
        lines.append(f"  {pick.risk}")
    if pick.alike:
        numbers = ", ".join(str(point.number) for point in pick.alike)
        lines.append(f"  equal within noise: trial{'s' if len(pick.alike) > 1 else ''} {numbers}")
    if pick.real_command:
        lines.append(f"  again in the simulation: {pick.command}")
        lines.append(f"  for real, and for money: {pick.real_command}")
    else:
        lines.append(f"  {pick.command}" if pick.command else "  its parameters are none of a job that can be launched")
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class StudyResult(Result):
    """A study that has ended.

    Attributes:
        run_id: MLflow run that holds pareto.html and pareto.csv.
        ending: why the study ended, and what was repeated.
        open_command: what to type or open to look at it.
    """

    answer: StudyAnswer
    run_id: str
    ending: str
    open_command: str

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # a constant for all other results
        """4 if the study cost more than its budget, 3 if it has trials and all of them failed, else 0."""
        if self.answer.over_budget_usd:
            return BudgetRefused.exit_code
        trials = self.answer.front.trials
        failures = {TrialStatus.FAILED, TrialStatus.OUT_OF_MEMORY}
        all_failed = trials and all(trial.status in failures for trial in trials)
        return JobFailed.exit_code if all_failed else 0

    @property
    def title(self) -> str:
        """The study and why it has ended."""
        return f"study {self.answer.name}: {self.ending}"

    def rows(self) -> list[Row]:
        """The rows of pareto.csv: one per trial, by number, then one per predicted point."""
        return read_rows(self.answer.csv())

    @property
    def front(self) -> "DataFrame":
        """The trials on the Pareto front, as `trials_dataframe` has them."""
        trials = self.trials_dataframe()
        return trials[trials["pareto_rank"] == 0].reset_index(drop=True)

    @property
    def best(self) -> dict[str, object] | None:
        """The recommended trial: `trial`, `parameters`, `means` and `command`, among others; None if there is none."""
        return _recommended(self.answer.picks[0]) if self.answer.picks else None

    def trials_dataframe(self) -> "DataFrame":
        """One row per finished trial, without the predicted points that `to_frame` has as well."""
        frame = self.to_frame()
        return frame[frame["origin"] != PREDICTED].reset_index(drop=True)

    def to_dict(self) -> dict[str, object]:
        """Run, ending, objectives, dollars, the recommended trials and all trials."""
        front = self.answer.front
        return {
            "study": self.answer.name,
            "run_id": self.run_id,
            "ending": self.ending,
            "origin": " and ".join(sorted({trial.origin for trial in front.trials})) or None,
            "objectives": spelled(front.objectives, front.takes),
            "quality": front.quality,
            "spent_usd": front.spent_usd,
            "committed_usd": self.answer.committed_usd,
            "budget_usd": self.answer.budget_usd,
            "hypervolume": as_json(self.answer.hypervolume),
            "recommended": [_recommended(pick) for pick in self.answer.picks],
            "trials": as_json(self.rows()),
            "open_command": self.open_command,
        }

    def notes(self) -> list[str]:
        """The answer in words, and where to look."""
        return [*self.answer.opening(), self.open_command]

    def __str__(self) -> str:
        """Recommendation, front and bill for a terminal."""
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
        "standard_errors": as_json(point.errors),
        "collapse_probability": point.collapse_probability,
        "command": pick.command or None,
        "real_command": pick.real_command or None,
    }
