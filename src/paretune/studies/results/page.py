"""The page of a study, pareto.html: one file without scripts, which refers to nothing outside."""

import itertools
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import numpy as np

from paretune.core.errors import BadInput
from paretune.spec import metrics
from paretune.spec.parameters import spell
from paretune.studies.results.figures import MANY, course, heat_map, hypervolume_curve, parallel, scatter
from paretune.studies.results.front import StudyFront
from paretune.studies.results.importance import FEWEST, importance
from paretune.studies.results.payoff import Payoff
from paretune.studies.results.points import Point, value_of
from paretune.studies.results.quantities import axis, format_value, label, usd, with_error
from paretune.studies.results.recommendation import Pick, failures, headline, job_of
from paretune.studies.results.trials import Trial, TrialStatus

_MOST_POINTS = 30  # rows of the table of the front
_MOST_PAIRS = 10  # 5 objectives; each picture takes a fifth of a second
_MOST_CELLS = 9  # rows or columns of the heat map; more values are put together
_TELLING = 0.3  # share of the variance that a forest must explain before its shares are worth reading


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure: an SVG element, or none, with its caption and where it needs one a title."""

    svg: str
    caption: str
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text; the first `numbers` columns are aligned right, the last may break, `shaded` rows are blue."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    numbers: int
    shaded: Set[int] = frozenset()


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("paretune.studies.results", "")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("page.html")


def page(
    name: str,
    front: StudyFront,
    picks: Sequence[Pick],
    payoff: Payoff,
    budget_usd: float | None,
    committed_usd: float,
) -> str:
    """The whole HTML document: page.html, filled with the parts of a `StudyAnswer`."""
    completed = sum(trial.status is TrialStatus.COMPLETED for trial in front.trials)
    spent = front.spent_usd
    budget = [("spent", usd(spent)), ("committed to running jobs, at worst", usd(committed_usd))]
    bar = []
    if budget_usd is not None:
        budget += [("left", usd(budget_usd - spent - committed_usd)), ("budget", usd(budget_usd))]
        bar = [100 * min(part / budget_usd, 1.0) if budget_usd > 0 else 0.0 for part in (spent, committed_usd)]
    return _template().render(
        front=front,
        name=name,
        is_all_simulated=all(trial.origin == "simulated" for trial in front.trials),
        counted=f"{len(front.trials)} trials, {completed} completed; configurations on the front: {len(front.best)}.",
        wanted=_wanted(front),
        opening=headline(front, picks),
        picks=picks,
        payoff=payoff,
        budget=budget,
        bar=bar,
        noise=_noise(front),
        failures=failures(front.trials),
        trials_table=_trials_table(front),
        telling=_TELLING,
        **(_figures(front, [pick.point.number for pick in picks]) if front.feasible else {}),
    )


def _wanted(front: StudyFront) -> str:
    """Objectives and constraints in words."""
    goal = ", ".join(f"{'less' if way == 'minimize' else 'more'} {axis(it)}" for it, way in front.objectives.items())
    words = {"min": "at least", "max": "at most"}
    limits = [
        f"{axis(it)} {words[end]} {limit:g}" for it, ends in front.constraints.items() for end, limit in ends.items()
    ]
    return f"Wanted: {goal}" + (f"; required: {', '.join(limits)}" if limits else "")


def _figures(front: StudyFront, picked: Sequence[int]) -> dict[str, Any]:
    """What the page shows only of a study with a feasible point; `picked` points are ringed."""
    return {
        "fronts": _fronts(front, picked),
        "front_table": _front_table(front),
        "hypervolume": _hypervolume(front),
        "parallel": _parallel(front),
        "importance": _importance(front),
        "heat": _heat(front),
    }


def _front_table(front: StudyFront) -> Table:
    """The front, cheapest first, with errors and with what cannot be told apart."""
    leader = {point.number: group.recommended.number for group in front.groups for point in group.others}
    ordered = sorted(front.best, key=front.cost_of)
    names = list(dict.fromkeys([*front.objectives, metrics.COST_USD]))
    names = [name for name in names if any(name in point.means for point in ordered)]
    searched = front.searched
    head = ["trial", "runs", *(axis(name) for name in names), *searched, "like trial"]
    rows = [
        [
            *(str(point.number), str(len(point.trials))),
            *(_mean(point, name) for name in names),
            *(point.trial.shown(name) for name in searched),
            str(leader.get(point.number, "")),
        ]
        for point in ordered[:_MOST_POINTS]
    ]
    more = len(ordered) - _MOST_POINTS
    caption = "No other configuration is at least as good in every objective and better in one; mean ± standard error. "
    caption += "The last column names the cheapest one that it cannot be told apart from."
    caption += f" The cheapest {_MOST_POINTS}; {more} more are in the table of all trials." if more > 0 else ""
    return Table(head=head, rows=rows, caption=caption, numbers=len(names) + 2)


def _mean(point: Point, name: str) -> str:
    return with_error(point.means[name], point.errors[name]) if name in point.means else ""


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


def _trials_table(front: StudyFront) -> Table:
    searched = front.searched
    objectives = [name for name in front.objectives if name != metrics.COST_USD]
    head = ["trial", "rank", *(axis(name) for name in objectives), "cost (USD)", "spent (USD)", *searched]
    head += ["status", "run id", "remark"]
    rows = []
    for trial in front.trials:
        values = [value_of(trial, name) for name in (*objectives, metrics.COST_USD)]
        rows.append(
            [str(trial.number), spell(front.rank(trial))]
            + ["" if value is None else with_error(value) for value in values]
            + [with_error(trial.spent_usd)]
            + [trial.shown(name) for name in searched]
            + [trial.status.value, trial.run_id, _remark(trial)]
        )
    caption = "Every trial with its own values. Rank 0 is the front (shaded); without a rank: not completed, or a "
    caption += "constraint is not met."
    best = {row for row, trial in enumerate(front.trials) if front.rank(trial) == 0}
    return Table(head=head, rows=rows, caption=caption, numbers=len(objectives) + 4, shaded=best)


def _remark(trial: Trial) -> str:
    repeat = f"repeats trial {trial.repeats} with seed {trial.seed}" if trial.repeats is not None else ""
    return "; ".join(filter(None, (repeat, trial.reason)))


def _fronts(front: StudyFront, picked: Sequence[int]) -> dict[str, Any]:
    if len(front.objectives) == 1:
        (name,) = front.objectives
        caption = "A point per configuration, where its first run ended; bars are one standard error."
        return {"title": label(name).capitalize(), "pictures": [Picture(svg=course(front), caption=caption)]}
    bars = "bars are one standard error"
    if len(front.points) > MANY:
        bars += ", left out off the front because there are too many"
    caption = (
        f"A point per configuration, means over its runs; {bars}. Numbers are those of trials. Dotted lines join what "
        "cannot be told apart in any objective."
    )
    pictures = [
        Picture(title=f"{label(pair[1])} against {label(pair[0])}", svg=scatter(front, pair, picked), caption=caption)
        for pair in front.pairs[:_MOST_PAIRS]
    ]
    return {"title": "", "pictures": pictures, "left": len(front.pairs) - _MOST_PAIRS}


def _hypervolume(front: StudyFront) -> Picture:
    last = front.hypervolume_growth[-1][1]
    caption = (
        f"The part of the space of objectives that the front dominates; today {last:.4g}, in the units of the "
        "objectives multiplied, against the worst feasible value of each plus 10 % of its range. A long level end says "
        "that more trials have not helped."
    )
    return Picture(svg=hypervolume_curve(front), caption=caption)


def _parallel(front: StudyFront) -> Picture | None:
    searched = [
        name for name in front.searched if len({str(point.trial.point.get(name)) for point in front.feasible}) > 1
    ]
    caption = "A line per configuration through its parameters and objectives; blue ones are on the front."
    return Picture(svg=parallel(front, searched), caption=caption) if searched else None


def _importance(front: StudyFront) -> dict[str, Any]:
    done = [point for point in front.points if set(front.objectives) <= set(point.means)]
    if len(done) < FEWEST:
        return {"too_few": f"Too few completed configurations to say: {len(done)}, and {FEWEST} are needed."}
    points = [point.trial.point for point in done]
    found = [(label(name), importance(points, [point.means[name] for point in done])) for name in front.objectives]
    return {"too_few": "", "found": found}


def _heat(front: StudyFront) -> Picture | None:
    name = front.quality
    if name is None:
        return None
    title = f"{label(name)} over global batch size and learning rate"
    found = []
    for point in front.points:
        plan = _batch_and_rate(point.trial.parameters)
        if plan is not None and name in point.means:
            found.append((*plan, point.means[name]))
    batches, rates = (sorted({row[column] for row in found}) for column in (0, 1))
    if len(batches) < 2 and len(rates) < 2:
        return Picture(title=title, svg="", caption="Neither of the two was varied in completed trials.")
    row_of, rows = _bins(batches)
    column_of, columns = _bins(rates)
    sums, counts = np.zeros((len(rows), len(columns))), np.zeros((len(rows), len(columns)), dtype=int)
    for batch, rate, value in found:
        cell = row_of[batch], column_of[rate]
        sums[cell] += value
        counts[cell] += 1
    cells = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    caption = (
        "Means over all completed configurations of a cell, whatever their cluster; in brackets how many, where it is "
        "more than one. White cells were not tried. The learning rate is the peak rate that was used, after scaling."
    )
    return Picture(title=title, svg=heat_map(rows, columns, cells, counts, name), caption=caption)


def _batch_and_rate(parameters: Mapping[str, str]) -> tuple[float, float] | None:
    try:
        plan = job_of(parameters).plan()
    except BadInput:
        return None
    return plan.global_batch_size, plan.learning_rate


def _bins(values: Sequence[float]) -> tuple[dict[Any, int], list[str]]:
    """Value to cell, and the cells' names; too many values are put together in steps of equal ratio."""
    if len(values) <= _MOST_CELLS:
        return {value: cell for cell, value in enumerate(values)}, [f"{value:.4g}" for value in values]
    low, high = math.log(values[0]), math.log(values[-1])
    step = (high - low) / _MOST_CELLS
    cells = {value: min(int((math.log(value) - low) / step), _MOST_CELLS - 1) for value in values}
    edges = [math.exp(low + step * cell) for cell in range(_MOST_CELLS + 1)]
    return cells, [f"{start:.2g} to\n{end:.2g}" for start, end in itertools.pairwise(edges)]
