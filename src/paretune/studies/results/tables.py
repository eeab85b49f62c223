"""The tables of a study: pareto.csv, its front, and all of its trials."""

from collections.abc import Iterable, Mapping
from itertools import accumulate

import pandas as pd

from paretune.core.result import Row, csv_text
from paretune.presentation.text import without_empty_columns
from paretune.specification import metrics
from paretune.specification.declaration import spell
from paretune.studies.results.configurations import Configuration, value_of
from paretune.studies.results.figures import Figures
from paretune.studies.results.front import StudyFront
from paretune.studies.results.recommendation import collapse_risk
from paretune.studies.results.trials import AS_RUN, EXPECTED, Trial
from paretune.studies.trial_status import ESTIMATED, PROBED


def pareto_csv(front: StudyFront, levels: Mapping[int, Mapping[str, str]] | None = None) -> str:
    """Return the content of pareto.csv: a row for each trial, then one for each configuration that was not trained.

    The column `evidence` says what a row is known from: `trained`, `probed` or `estimated`; it is empty for a trial
    without a result. A configuration that was not trained has what is expected of it, and the rank 0 if nothing known
    is expected to beat it, else none. Unknown values are empty. In a designed experiment, `levels` maps the number of a
    trial to the level of each factor, or to an empty mapping if the trial's point is not a row of the design. If a
    trial has the same job as an earlier one but a different seed, its column `repeats` has the number of the first such
    trial.

    A metric's own column has the value of this trial. The column that ends in `_mean` has the number that the study
    states for its configuration: the mean of all runs (collapsed ones excluded from quality). `_low` and `_high` bound
    the interval that contains that mean over all seeds with probability `noise.INTERVAL`. They are empty if the error
    is unknown, as for seconds and dollars after a single run. The column `beaten_by` has the number of a configuration
    on the front that beats this one.
    """
    in_time = sorted(front.trials, key=lambda trial: trial.ended_at)
    spent = accumulate(trial.cost_usd or 0.0 for trial in in_time)
    spent_usd = {} if front.is_foreign else {trial.number: usd for trial, usd in zip(in_time, spent, strict=True)}
    of_design, expected = levels or {}, {point.number: point for point in front.expected}
    best = {point.number for point in front.expected_best}
    trials = (*front.trials, *(point.trial for point in front.expected))
    as_run = () if front.is_foreign else AS_RUN
    shown = dict.fromkeys([*(name for trial in trials for name in trial.point), *as_run])
    unknown = dict.fromkeys(factor for each in of_design.values() for factor in each)
    rows = [
        _row(
            front,
            trial,
            expected.get(trial.number) or front.point_of.get(trial.number),
            shown,
            spent_usd.get(trial.number),
            {**unknown, **of_design.get(trial.number, {})},
            0 if trial.number in best else front.rank(trial),
        )
        for trial in trials
    ]
    return csv_text(list(rows[0]) if rows else [], rows)


def _row(
    front: StudyFront,
    trial: Trial,
    point: Configuration | None,
    shown: Iterable[str],
    spent_usd: float | None,
    levels: Mapping[str, str | None],
    rank: int | None,
) -> Row:
    """Return the row of a trial of a configuration; `shown` has the parameters that it shows."""
    is_expected = trial.origin == EXPECTED
    values: dict[str, Row] = {}
    for name in dict.fromkeys([*front.objectives, metrics.COST_USD]):
        mean = None if point is None else point.means.get(name)
        low, high = (point is not None and front.interval(point, name)) or (None, None)
        values[name] = {name: value_of(trial, name), f"{name}_mean": mean, f"{name}_low": low, f"{name}_high": high}
    cost = values.pop(metrics.COST_USD)
    first = trial.number if point is None else point.number
    chance = None if point is None else point.collapse_probability
    return {
        "trial": None if is_expected else trial.number,
        "run_id": trial.run_id,
        **levels,
        **{name: spell(trial.value(name)) for name in shown},
        **{name: value for ends in values.values() for name, value in ends.items()},
        "status": "Expected" if is_expected else trial.shown_status,
        "evidence": None if point is None else point.evidence,
        "origin": trial.origin,
        "pareto_rank": rank,
        "beaten_by": None if point is None else point.beaten_by,
        **cost,
        "spent_usd": spent_usd,
        "collapse_probability": trial.collapse_probability if is_expected else chance,
        "repeats": trial.repeats if first == trial.number else first,
    }


def configurations_table(front: StudyFront) -> pd.DataFrame:
    """Return the front and what is expected on it, cheapest first, with what each configuration is known from.

    Trained ones have standard errors where they are known, others the interval that should contain their value. Before
    any training, hours and dollars are shown, whatever the objectives are.
    """
    rows, figures = [], Figures(front)
    points = [*sorted(front.best, key=front.cost_of), *front.expected_best]
    if all(metrics.COST_USD in point.means for point in points):
        points.sort(key=lambda point: point.means[metrics.COST_USD])
    for point in points:
        names = [name for name in front.shown_of(is_expected=not front.has_trained) if name in point.means]
        row = {"trial": "" if point.is_expected else str(point.number), "known from": known_from(point)}
        row |= {figures.heading(name): figures.stated(point, name, with_unit=False) for name in names}
        probability = collapse_risk(front, point)
        risk = f"{probability:.0%}" if probability else ""
        rows.append({**row, "configuration": point.trial.setting(), "collapse probability": risk})
    return _frame(rows)


def known_from(point: Configuration) -> str:
    """Return in words what a configuration is known from: its runs, a probe or the estimate."""
    if point.is_expected:
        return {PROBED: "probe", ESTIMATED: "estimate"}[point.evidence]
    return f"{len(point.trials)} run{'s' * (len(point.trials) > 1)}"


def trials_table(front: StudyFront) -> pd.DataFrame:
    """Return all trials with their own values, in order of number."""
    rows, figures = [], Figures(front)
    for trial in front.trials:
        values = {name: value_of(trial, name) for name in front.shown_of()}
        repeat = "" if trial.repeats is None else f"repeats trial {trial.repeats}"
        stated = {figures.heading(n): "" if value is None else figures.number(n, value) for n, value in values.items()}
        point = front.point_of.get(trial.number)
        beaten_by = "" if point is None or point.beaten_by is None else f"trial {point.beaten_by}"
        row = {"trial": str(trial.number), "rank": spell(front.rank(trial)), "beaten by": beaten_by, **stated}
        row["configuration"] = trial.setting()
        row |= {"status": trial.shown_status, "run id": trial.run_id}
        rows.append(row | {"remark": "; ".join(filter(None, (repeat, trial.reason)))})
    return _frame(rows)


def _frame(rows: list[dict[str, str]]) -> pd.DataFrame:
    """Return the rows as a table without empty columns."""
    return without_empty_columns(pd.DataFrame(rows, dtype=object).fillna(""))
