"""The page of a study, pareto.html: one file that loads nothing, complete without its scripts."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from paretune.ledger.trial_entry import TrialStatus
from paretune.presentation.chart import legend_sign
from paretune.presentation.numbers import usd, with_error
from paretune.presentation.page import template
from paretune.presentation.table import Cell, Column, Table
from paretune.specification import metrics
from paretune.studies.results.answer import StudyAnswer
from paretune.studies.results.figures import MOST_PAIRS, front_chart, heat_map, hypervolume_curve, parallel
from paretune.studies.results.front import StudyFront
from paretune.studies.results.importance import FEWEST, importance
from paretune.studies.results.objective_text import axis, between, format_value, label
from paretune.studies.results.points import Point, value_of
from paretune.studies.results.recommendation import failures
from paretune.studies.results.run_noise import INTERVAL
from paretune.studies.results.trials import Trial

_MOST_POINTS = 30  # rows of the table of the front
_MOST_CELLS = 9  # rows or columns of the heat map; more values are put together
_TELLING = 0.3  # share of the variance that a forest must explain before its shares are worth reading


def page(answer: StudyAnswer, address: Callable[[str], str] = lambda _: "") -> str:
    """The whole HTML document: page.html, filled; `address` makes that of a run in MLflow of its id."""
    front, total = answer.front, answer.budget_usd
    completed = sum(trial.status is TrialStatus.COMPLETED for trial in front.trials)
    parts = front.spent_usd, answer.committed_usd
    budget = [("spent", usd(parts[0])), ("committed to running jobs, at worst", usd(parts[1]))]
    bar = []
    if total is not None:
        budget += [("left", usd(total - parts[0] - parts[1])), ("budget", usd(total))]
        bar = [100 * min(part / total, 1.0) if total > 0 else 0.0 for part in parts]
    is_all_simulated = all(trial.origin == "simulated" for trial in front.trials)
    opening = answer.opening()

    def link(run_id: str) -> Cell:
        return Cell(run_id, address=_web(address(run_id)) if run_id else "")

    return template("paretune.studies.results", "page.html").render(
        front=front,
        answer=answer,
        is_all_simulated=is_all_simulated,
        counted=f"{len(front.trials)} trials, {completed} completed; configurations on the front: {len(front.best)}.",
        wanted=_wanted(front),
        opening=opening[1:] if front.is_simulated and is_all_simulated else opening,  # the banner says the first
        budget=budget,
        bar=bar,
        noise=_noise(front),
        failures=failures(front.trials),
        trials_table=_trials_table(front, link),
        telling=_TELLING,
        interval=f"{INTERVAL:.0%}",
        label=label,
        **_chart(front, [pick.point.number for pick in answer.picks], lambda run_id: _web(address(run_id))),
        **(_figures(front) if front.feasible else {}),
    )


def _wanted(front: StudyFront) -> str:
    goal = ", ".join(f"{'less' if way == 'minimize' else 'more'} {axis(it)}" for it, way in front.objectives.items())
    words = {"min": "at least", "max": "at most"}
    limits = [
        f"{axis(it)} {words[end]} {limit:g}" for it, ends in front.constraints.items() for end, limit in ends.items()
    ]
    return f"Wanted: {goal}" + (f"; required: {', '.join(limits)}" if limits else "")


def _web(address: str) -> str:
    """An address that a browser opens; empty for any other, whatever it would run."""
    return address if address.startswith(("http://", "https://")) else ""


def _chart(front: StudyFront, picked: Sequence[int], address: Callable[[str], str]) -> dict[str, Any]:
    """The picture at the top and what its marks are called; nothing where no point can be drawn."""
    if not front.points or not all(any(name in point.means for point in front.points) for name in front.objectives):
        return {"chart": None}
    chart = front_chart(front, picked, address)
    counts = Counter(mark.kind for mark in chart.marks)
    named = {"front": "on the front", "dominated": "dominated", "unmet": "no rank: a constraint is not met"}
    named["predicted"] = f"predicted, not run, with intervals of {INTERVAL:.0%}"
    signs = [(legend_sign(kind), f"{said} ({counts[kind]:,})") for kind, said in named.items() if counts[kind]]
    if picked:
        signs.insert(0, (legend_sign("picked"), "recommended"))
    others = [pair for pair in front.pairs[:MOST_PAIRS] if set(pair) != set(chart.first)]
    return {
        "chart": chart,
        "signs": signs,
        "pairs": [(f"{label(y)} against {label(x)}", chart.svg((x, y)), chart.said((x, y))) for x, y in others],
    }


def _figures(front: StudyFront) -> dict[str, Any]:
    """What the page shows only of a study with a feasible point."""
    values = {name: {str(point.trial.point.get(name)) for point in front.feasible} for name in front.searched}
    varied = [name for name, different in values.items() if len(different) > 1]
    return {
        "front_table": _front_table(front),
        "forecast": _forecast_table(front),
        "hypervolume": hypervolume_curve(front),
        "parallel": parallel(front, varied) if varied else "",
        "importance": _importance(front),
        "heat": _heat(front),
    }


def _front_table(front: StudyFront) -> Table:
    """The front, cheapest first, with errors and with what cannot be told apart."""
    leader = {point.number: group.recommended.number for group in front.groups for point in group.others}
    ordered = sorted(front.best, key=front.cost_of)
    names = dict.fromkeys([*front.objectives, metrics.COST_USD])
    columns: list[Column[Point]] = [
        Column("trial", lambda point: point.number),
        Column("runs", lambda point: len(point.trials)),
        *(Column(axis(name), partial(_mean, name)) for name in names if any(name in point.means for point in ordered)),
        *(Column(name, partial(_setting, name)) for name in front.shown),
        Column("like trial", lambda point: leader.get(point.number)),
    ]
    return Table.of(columns, ordered[:_MOST_POINTS])


def _mean(name: str, point: Point) -> Cell | None:
    """A mean with its error, sorted by the mean; empty where it was not measured."""
    return Cell(point.mean_of(name), point.means[name]) if name in point.means else None


def _setting(name: str, point: Point) -> str:
    return point.trial.shown(name)


def _forecast_table(front: StudyFront) -> Table:
    """What was predicted and not run, cheapest first, with its intervals."""
    columns: list[Column[Trial]] = [
        *(Column(axis(name), partial(_predicted, name)) for name in front.objectives),
        *(Column(name, partial(_shown, name)) for name in front.shown),
    ]
    return Table.of(columns, front.forecast[:_MOST_POINTS])


def _predicted(name: str, trial: Trial) -> Cell:
    return Cell(between(trial, name), trial.values[name])


def _shown(name: str, trial: Trial) -> str:
    return trial.shown(name)


def _noise(front: StudyFront) -> list[str]:
    """Standard deviation of one run, a line per objective that was measured."""
    if not front.points:
        return []
    typical = front.points[len(front.points) // 2]
    return [
        f"{axis(name)}: {format_value(name, noise.of_one_run(typical.means[name]))}"
        + (f" ({noise.deviation:.1%})" if noise.is_relative else "")
        + f", {noise.basis}."
        for name in front.objectives
        if (noise := front.noises[name]) and name in typical.means
    ]


def _trials_table(front: StudyFront, link: Callable[[str], Cell]) -> Table:
    objectives = [name for name in front.objectives if name != metrics.COST_USD]
    columns: list[Column[Trial]] = [
        Column("trial", lambda trial: trial.number),
        Column("rank", front.rank),
        *(Column(axis(name), partial(value_of, objective=name), with_error) for name in objectives),
        Column("cost (USD)", partial(value_of, objective=metrics.COST_USD), with_error),
        Column("spent (USD)", lambda trial: trial.spent_usd, with_error),
        *(Column(name, partial(_shown, name)) for name in front.shown),
        Column("status", lambda trial: trial.shown_status),
        Column("run id", lambda trial: link(trial.run_id)),
        Column("remark", _remark),
    ]
    best = {number for number, trial in enumerate(front.trials) if front.rank(trial) == 0}
    return Table.of(columns, front.trials, shaded=best)


def _remark(trial: Trial) -> str:
    repeat = f"repeats trial {trial.repeats} with seed {trial.seed}" if trial.repeats is not None else ""
    return "; ".join(filter(None, (repeat, trial.reason)))


def _importance(front: StudyFront) -> dict[str, Any]:
    done = front.whole
    if len(done) < FEWEST:
        return {"too_few": f"Too few completed configurations to say: {len(done)}, and {FEWEST} are needed."}
    points = [point.trial.point for point in done]
    found = [(label(name), importance(points, [point.means[name] for point in done])) for name in front.objectives]
    return {"too_few": "", "found": found}


def _heat(front: StudyFront) -> str:
    """A heat map of the objective that measures the model; empty where batch size and learning rate did not vary."""
    name = front.quality
    if name is None:
        return ""
    found: list[tuple[float, float, float]] = []
    for point in front.points:
        if name in point.means and (plan := point.trial.plan) is not None:
            found.append((plan.global_batch_size, plan.learning_rate, point.means[name]))
    batches, rates = (sorted({row[column] for row in found}) for column in (0, 1))
    if len(batches) < 2 and len(rates) < 2:
        return ""
    row_of, rows = _bins(batches)
    column_of, columns = _bins(rates)
    sums, counts = np.zeros((len(rows), len(columns))), np.zeros((len(rows), len(columns)), dtype=int)
    for batch, rate, value in found:
        cell = row_of[batch], column_of[rate]
        sums[cell] += value
        counts[cell] += 1
    cells = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return heat_map(rows, columns, cells, counts, name)


def _bins(values: Sequence[float]) -> tuple[dict[Any, int], list[str]]:
    """Value to cell, and the cells' names; too many values are put together in steps of equal ratio."""
    if len(values) <= _MOST_CELLS:
        return {value: cell for cell, value in enumerate(values)}, [f"{value:.4g}" for value in values]
    low, high = math.log(values[0]), math.log(values[-1])
    step = (high - low) / _MOST_CELLS
    cells = {value: min(int((math.log(value) - low) / step), _MOST_CELLS - 1) for value in values}
    edges = [math.exp(low + step * cell) for cell in range(_MOST_CELLS + 1)]
    return cells, [f"{start:.2g} to\n{end:.2g}" for start, end in itertools.pairwise(edges)]
