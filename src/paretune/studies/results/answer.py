"""The answer of a study, from its trials: in words, as a page, as a table, and as a rank for every run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from paretune.core.result import Result, Row, as_json, csv_text, read_rows
from paretune.core.text_table import text_table
from paretune.estimating.noise import Scatter
from paretune.ledger.trial_entry import TrialStatus
from paretune.presentation.numbers import usd
from paretune.specification import metrics
from paretune.specification.parameters import spell
from paretune.studies.definition.objectives import Constraints, spelled
from paretune.studies.definition.quality import Quality
from paretune.studies.results.front import StudyFront
from paretune.studies.results.objective_text import axis, between
from paretune.studies.results.payoff import Payoff, weigh
from paretune.studies.results.points import value_of
from paretune.studies.results.recommendation import Pick, failures, headline, recommend
from paretune.studies.results.run_noise import INTERVAL
from paretune.studies.results.trials import Trial

_MOST_LINES = 20  # of the front, in a terminal


@dataclass(frozen=True, kw_only=True)
class Borrowed:
    """What a study has begun with from an earlier one.

    Attributes:
        study: its name; of several that count as one, their names.
        runs: of it that were read.
        is_same_data: whether they trained and judged on the same data.
        weight: probability that what the quality of a job depends on is as there, as far as own jobs tell; None where
            only seconds were borrowed.
    """

    study: str
    runs: int
    is_same_data: bool
    weight: float | None = None

    def __str__(self) -> str:
        """Such as `24 runs of study night (same model and data, weight 0.83)`."""
        data = "same model and data" if self.is_same_data else "same model, other data"
        how = "seconds alone" if self.weight is None else f"weight {self.weight:.2f}"
        return f"{self.runs} run{'s' if self.runs > 1 else ''} of study {self.study} ({data}, {how})"


@dataclass(frozen=True, kw_only=True)
class StudyAnswer:
    """The answer of a study; `text`, `html` and `csv` show it.

    Attributes:
        picks: recommended configurations, the most important first; empty where nothing is feasible.
        budget_usd: all it may spend; None for no limit.
        committed_usd: worst cases of the jobs that run.
        borrowed: what it has begun with from earlier studies.
    """

    name: str
    front: StudyFront
    picks: Sequence[Pick]
    payoff: Payoff
    budget_usd: float | None
    committed_usd: float
    borrowed: Sequence[Borrowed] = ()

    @cached_property
    def hypervolume(self) -> float:
        """Of the front over all objectives, against the reference point of the front; 0 without any feasible point."""
        return self.front.hypervolume_growth[-1][1] if self.front.feasible else 0.0

    def opening(self) -> list[str]:
        """The answer in a few sentences, and what was borrowed for it."""
        said = [f"Borrowed before its first job: {'; '.join(map(str, self.borrowed))}."] if self.borrowed else []
        return [*headline(self.front, self.picks), *said]

    def ranks(self) -> dict[str, int]:
        """Run id to Pareto rank, 0 on the front; runs without a rank (failed, constraint not met) are not in it."""
        ranked = {trial.run_id: self.front.rank(trial) for trial in self.front.trials}
        return {run_id: rank for run_id, rank in ranked.items() if rank is not None}

    def csv(self) -> str:
        """The table, pareto.csv: a row per trial, by number, and per point of the forecast; empty where unknown.

        A trial has its own values, not means. `_low` and `_high` of an objective are the interval that holds what its
        configuration reaches, in the mean over seeds, with a probability of `noise.INTERVAL`.
        """
        front = self.front
        objectives = [name for name in front.objectives if name != metrics.COST_USD]
        names = ["trial", "run_id", *front.shown, *(end for name in objectives for end in _with_ends(name))]
        names += ["status", "origin", "pareto_rank"]
        names += _with_ends(metrics.COST_USD) if metrics.COST_USD in front.objectives else [metrics.COST_USD]
        rows = [_row(front, trial) for trial in front.trials]
        return csv_text([*names, "spent_usd"], [*rows, *(_forecast_row(front, trial) for trial in front.forecast)])

    def text(self) -> str:
        """The answer for a terminal: recommendation, front, bill."""
        blocks = [" ".join(self.opening())]
        blocks += [_described(pick, self.front) for pick in self.picks]
        if self.front.best:
            blocks.append(_front_table(self.front))
        if self.front.forecast:
            blocks.append(_forecast_table(self.front))
        spent = self.front.spent_usd
        bill = f"spent {usd(spent)}, committed {usd(self.committed_usd)}"
        if self.budget_usd is not None:
            bill += f", left {usd(self.budget_usd - spent - self.committed_usd)} of {usd(self.budget_usd)}"
        kind = "Simulated budget" if self.front.is_simulated else "Budget"
        blocks += [" ".join(self.payoff.sentences()), f"{kind}: {bill}."]
        if self.picks and (lost := failures(self.front.trials)):
            blocks.append("Without a result:\n" + "\n".join(f"  {line}" for line in lost))
        return "\n\n".join(blocks) + "\n"


def answer(
    trials: Sequence[Trial],
    objectives: Mapping[str, str],
    constraints: Constraints,
    *,
    name: str,
    budget_usd: float | None = None,
    committed_usd: float = 0.0,
    later_runs: int | None = None,
    default: Trial | None = None,
    unverified: Mapping[int, str] | None = None,
    earlier: Mapping[str, Scatter] | None = None,
    forecast: Sequence[Trial] = (),
    quality: Quality | None = None,
    takes: Mapping[str, str] | None = None,
    borrowed: Sequence[Borrowed] = (),
) -> StudyAnswer:
    """The answer that these trials give, in any order, running ones included.

    `later_runs` is how often the winner will be trained again. `default` is a trial of the default configuration, or
    an estimate of one, whose `origin` is then "estimated". `unverified` has the number of a recommended point to why
    it has no more runs, `earlier` the scatter of repeats in earlier studies, `forecast` the points that were predicted
    and not run. `quality` and `takes` are those of `StudyFront.of`, `borrowed` that of `StudyAnswer`.
    """
    front = StudyFront.of(
        trials,
        objectives,
        constraints,
        shrinks=True,
        earlier=earlier,
        predicted=forecast,
        quality=quality,
        takes=takes,
    )
    picks = recommend(front, unverified or {})
    payoff = weigh(front, picks[0].point if picks else None, default, later_runs)
    return StudyAnswer(
        name=name,
        front=front,
        picks=tuple(picks),
        payoff=payoff,
        budget_usd=budget_usd,
        committed_usd=committed_usd,
        borrowed=tuple(borrowed),
    )


def _with_ends(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]


def _row(front: StudyFront, trial: Trial) -> dict[str, object]:
    point = front.point_of(trial)
    margins = {} if point is None else point.margins
    ends = {
        end: None if point is None or name not in margins else point.means[name] + sign * margins[name]
        for name in front.objectives
        for sign, end in zip((-1, 1), _with_ends(name)[1:], strict=True)
    }
    return {
        "trial": trial.number,
        "run_id": trial.run_id,
        **{name: spell(trial.value(name)) for name in front.shown},
        **{name: value_of(trial, name) for name in front.objectives},
        **ends,
        "status": trial.shown_status,
        "origin": trial.origin,
        "pareto_rank": front.rank(trial),
        metrics.COST_USD: _dollars(trial),
        "spent_usd": trial.spent_usd,
    }


def _dollars(trial: Trial) -> float | None:
    """Of a completed trial those that it is compared by; of any other one what was billed."""
    compared = value_of(trial, metrics.COST_USD)
    return compared if trial.status is TrialStatus.COMPLETED or trial.cost_usd is None else trial.cost_usd


def _forecast_row(front: StudyFront, trial: Trial) -> dict[str, object]:
    found: dict[str, object] = {metrics.COST_USD: trial.values.get(metrics.COST_USD)}
    found |= {name: spell(trial.value(name)) for name in front.shown}
    for name in front.objectives:
        low, high = trial.intervals.get(name, (None, None))
        found |= dict(zip(_with_ends(name), (trial.values[name], low, high), strict=True))
    return {**found, "status": "Predicted", "origin": trial.origin}


def _described(pick: Pick, front: StudyFront) -> str:
    values = "; ".join(f"{name} {value}" for name, value in pick.figures(front.objectives))
    lines = [f"{pick.title}: trial {pick.point.number}, {pick.runs}; {values}", f"  {pick.point.setting()}"]
    if pick.alike:
        lines.append(f"  cannot be told apart from trial {', '.join(str(point.number) for point in pick.alike)}")
    lines.append(f"  {pick.command}" if pick.command else "  its parameters are none of a job that can be launched")
    if pick.real_command:
        lines[-1] = f"  again in the simulation: {pick.command}"
        lines.append(f"  for real, and for money: {pick.real_command}")
    return "\n".join(lines)


def _front_table(front: StudyFront) -> str:
    names = [name for name in dict.fromkeys([*front.objectives, metrics.COST_USD]) if front.best[0].means.get(name)]
    ordered = sorted(front.best, key=front.cost_of)
    header = ["trial", "runs", *map(axis, names), "configuration"]
    rows = [
        [str(point.number), str(len(point.trials)), *map(point.mean_of, names), point.setting()]
        for point in ordered[:_MOST_LINES]
    ]
    table = text_table(header, rows, header[:-1])
    more = len(ordered) - _MOST_LINES
    said = f"{'Simulated front' if front.is_simulated else 'Front'} over all objectives, cheapest first"
    return f"{said}:\n{table}" + (f"\n... and {more} more" if more > 0 else "")


def _forecast_table(front: StudyFront) -> str:
    names = list(front.objectives)
    header = [*map(axis, names), "configuration"]
    rows = [[*(between(trial, name) for name in names), trial.setting()] for trial in front.forecast[:_MOST_LINES]]
    more = len(front.forecast) - _MOST_LINES
    said = f"Predicted and not run, with intervals of {INTERVAL:.0%}; no point that has run beats them"
    return f"{said}:\n{text_table(header, rows, names)}" + (f"\n... and {more} more" if more > 0 else "")


@dataclass(frozen=True, kw_only=True)
class StudyResult(Result):
    """A study that has ended: its front, what it recommends, and its bill.

    Attributes:
        answer: front, recommendation and bill; `page.page` makes pareto.html of it.
        run_id: MLflow run that holds pareto.html and pareto.csv.
        ending: why the study ended, and what was repeated.
        open_command: what to type or open to look at it.
    """

    answer: StudyAnswer
    run_id: str
    ending: str
    open_command: str

    @property
    def title(self) -> str:
        """The study and why it has ended."""
        return f"study {self.answer.name}: {self.ending}"

    def rows(self) -> list[Row]:
        """The rows of pareto.csv: one per trial, by number, then one per predicted point."""
        return read_rows(self.answer.csv())

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
            "borrowed": [asdict(one) for one in self.answer.borrowed],
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
        "why": pick.why,
        "runs": pick.runs,
        "parameters": as_json(point.trial.point),
        "means": as_json(point.means),
        "standard_errors": as_json(point.errors),
        "command": pick.command or None,
        "real_command": pick.real_command or None,
    }
