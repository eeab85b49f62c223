"""The tables of a study: pareto.csv, the front, the predicted points and all trials."""

from collections.abc import Callable
from functools import partial

from paretune.core.result import csv_text
from paretune.presentation.numbers import with_error
from paretune.presentation.table import Cell, Column, Item, Table
from paretune.specification import metrics
from paretune.specification.parameters import spell
from paretune.studies.results.front import StudyFront
from paretune.studies.results.objective_text import axis, between
from paretune.studies.results.points import Point, value_of
from paretune.studies.results.trials import Trial, TrialStatus, short_name


def pareto_csv(front: StudyFront) -> str:
    """The text of pareto.csv: a row per trial, by number, then per predicted point; empty cells for unknown values.

    A trial has its own values, not means. `_low` and `_high` of an objective bound the interval that holds, with
    probability `run_noise.INTERVAL`, what its configuration reaches in the mean over seeds when it trains.
    """
    objectives = [name for name in front.objectives if name != metrics.COST_USD]
    names = ["trial", "run_id", *front.shown, *(column for name in objectives for column in _with_ends(name))]
    names += ["status", "origin", "pareto_rank"]
    names += _with_ends(metrics.COST_USD) if metrics.COST_USD in front.objectives else [metrics.COST_USD]
    rows = [_trial_row(front, trial) for trial in front.trials]
    names += ["spent_usd", "collapse_probability"]
    return csv_text(names, [*rows, *(_predicted_row(front, trial) for trial in front.forecast)])


def _with_ends(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]


def _trial_row(front: StudyFront, trial: Trial) -> dict[str, object]:
    point = front.point_of(trial)
    # The price of a trial that did not complete is what it was billed, not what it is compared by.
    compared_usd = value_of(trial, metrics.COST_USD)
    is_compared = trial.status is TrialStatus.COMPLETED or trial.cost_usd is None
    row: dict[str, object] = {
        "trial": trial.number,
        "run_id": trial.run_id,
        **{name: spell(trial.value(name)) for name in front.shown},
        **{name: value_of(trial, name) for name in front.objectives},
        "status": trial.shown_status,
        "origin": trial.origin,
        "pareto_rank": front.rank(trial),
        metrics.COST_USD: compared_usd if is_compared else trial.cost_usd,
        "spent_usd": trial.spent_usd,
        "collapse_probability": None if point is None else point.collapse_probability,
    }
    for name in front.objectives:
        if point is not None and name in point.margins:
            row[f"{name}_low"] = point.means[name] - point.margins[name]
            row[f"{name}_high"] = point.means[name] + point.margins[name]
    return row


def _predicted_row(front: StudyFront, trial: Trial) -> dict[str, object]:
    row: dict[str, object] = {metrics.COST_USD: trial.values.get(metrics.COST_USD)}
    row |= {name: spell(trial.value(name)) for name in front.shown}
    for name in front.objectives:
        low, high = trial.intervals.get(name, (None, None))
        row |= dict(zip(_with_ends(name), (trial.values[name], low, high), strict=True))
    row |= {"status": "Predicted", "origin": trial.origin, "collapse_probability": trial.collapse_probability}
    return row


def front_table(front: StudyFront, most: int, *, has_settings: bool = False) -> Table:
    """The front, cheapest first, at most this many rows, with standard errors.

    With `has_settings` there is a column for each parameter, and one that names the cheapest point of the front that
    this one cannot be told apart from; without, one column describes the configuration.
    """
    leader = {point.number: group.recommended.number for group in front.groups for point in group.others}
    points = sorted(front.best, key=front.cost_of)
    names = [
        name
        for name in dict.fromkeys([*front.objectives, metrics.COST_USD])
        if any(name in point.means for point in points)
    ]
    columns: list[Column[Point]] = [
        Column("trial", lambda point: point.number),
        Column("runs", lambda point: len(point.trials)),
        *(Column(axis(name), partial(_mean, name)) for name in names),
        *_settings(front, lambda point: point.trial, has_settings=has_settings),
    ]
    if has_settings:
        if any(point.collapse_probability is not None for point in points):
            columns.append(Column("collapse probability", _collapse_probability))
        columns.append(Column("like trial", lambda point: leader.get(point.number)))
    return Table.of(columns, points[:most])


def _mean(name: str, point: Point) -> Cell | None:
    return Cell(with_error(point.means[name], point.errors[name]), point.means[name]) if name in point.means else None


def _collapse_probability(point: Point) -> Cell | None:
    probability = point.collapse_probability
    return None if probability is None else Cell(f"{probability:.0%}", probability)


def _settings(front: StudyFront, trial_of: Callable[[Item], Trial], *, has_settings: bool) -> list[Column[Item]]:
    """A column for each parameter, or one that describes the configuration."""
    if not has_settings:
        return [Column("configuration", lambda item: trial_of(item).setting())]

    def setting(name: str, item: Item) -> str:
        return trial_of(item).shown(name)

    return [Column(short_name(name), partial(setting, name)) for name in front.shown]


def forecast_table(front: StudyFront, most: int, *, has_settings: bool = False) -> Table:
    """The points that were predicted and not run, cheapest first, at most this many rows, with their intervals."""
    columns: list[Column[Trial]] = [Column(axis(name), partial(_predicted, name)) for name in front.objectives]
    columns += _settings(front, lambda trial: trial, has_settings=has_settings)
    different = {tuple(column.cell(trial) for column in columns): trial for trial in front.forecast}
    return Table.of(columns, list(different.values())[:most])


def _predicted(name: str, trial: Trial) -> Cell:
    return Cell(between(trial, name), trial.values[name])


def trials_table(front: StudyFront, link: Callable[[str], Cell]) -> Table:
    """All trials with their own values, those on the front shaded; `link` makes the cell of a run id."""
    objectives = [name for name in front.objectives if name != metrics.COST_USD]
    columns: list[Column[Trial]] = [
        Column("trial", lambda trial: trial.number),
        Column("rank", front.rank),
        *(Column(axis(name), partial(value_of, objective=name), with_error) for name in objectives),
        Column("cost (USD)", partial(value_of, objective=metrics.COST_USD), with_error),
        Column("spent (USD)", lambda trial: trial.spent_usd, with_error),
        *_settings(front, lambda trial: trial, has_settings=True),
        Column("status", lambda trial: trial.shown_status),
        Column("run id", lambda trial: link(trial.run_id)),
        Column("remark", _remark),
    ]
    best = {number for number, trial in enumerate(front.trials) if front.rank(trial) == 0}
    return Table.of(columns, front.trials, shaded=best)


def _remark(trial: Trial) -> str:
    seed = "" if trial.parameters.get("project") else f" with seed {trial.seed}"  # a project may have none
    repeat = f"repeats trial {trial.repeats}{seed}" if trial.repeats is not None else ""
    return "; ".join(filter(None, (repeat, trial.reason)))
