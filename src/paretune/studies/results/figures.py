"""The figures of a study's page: the interactive chart, and matplotlib figures as SVG elements."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from paretune.presentation.chart import MANY, Axis, Chart, Mark, Spread
from paretune.presentation.picture import DOMINATED, FRONT, ON_DARK, ON_LIGHT, Picture
from paretune.presentation.scale import LOG_FROM, scale_of
from paretune.specification import metrics
from paretune.studies.results.front import StudyFront
from paretune.studies.results.objective_text import axis, between, format_value, label
from paretune.studies.results.points import Point
from paretune.studies.results.recommendation import Pick
from paretune.studies.results.trials import Trial, short_name

MOST_PAIRS = 10  # pairs of objectives that are drawn with a line along their front: all pairs of 5 objectives
_SPENT = "spent_usd"


def front_chart(front: StudyFront, picks: Sequence[Pick], address: Callable[[str], str]) -> Chart:
    """Every point over any two of: objectives, other metrics, numeric parameters, dollars spent so far.

    Points that lack an objective are left out, such as jobs that were cut off to measure seconds. The recommended
    points are ringed over the objectives that they are judged by; `address` gives the URL of a run id, or nothing.
    """
    axes = _axes(front)
    judged_by = {pick.point.number: pick.judged_by for pick in picks}
    marks = [
        replace(
            _mark(front, point, axes, judged_by.get(point.number, ())),
            address=address(point.trial.run_id),
        )
        for point in front.measured
    ]
    marks += [_predicted(trial, axes) for trial in front.forecast]
    return Chart(
        axes=list(axes.values()),
        marks=marks,
        lines={
            **{pair: _stairs(front, pair) for pair in front.pairs[:MOST_PAIRS]},
            **{(_SPENT, name): _best_so_far(front, name) for name in front.objectives},
        },
        first=front.main_pair or (_SPENT, next(iter(front.objectives))),
        about="a mark per configuration; the same values stand in the tables below",
    )


def _axes(front: StudyFront) -> dict[str, Axis]:
    """The axes: objectives, other metrics, parameters that are numbers and vary, dollars spent."""
    measured = {name for point in front.measured for name in point.means}
    names = dict.fromkeys([*front.objectives, metrics.COST_USD, *sorted(measured)])
    axes = {name: _axis(front, name) for name in names if name in measured}
    for name in front.shown:
        values = {point.trial.value(name) for point in front.measured}
        if name not in axes and len(values) > 1 and all(map(_is_number, values)):
            axes[name] = Axis(name=name, heading=short_name(name), short=short_name(name))
    return {
        **axes,
        _SPENT: Axis(name=_SPENT, heading="spent by the study (USD)", short="spent by the study", may_be_log=False),
    }


def _axis(front: StudyFront, name: str) -> Axis:
    way = {"minimize": ", less is better", "maximize": ", more is better"}.get(front.objectives.get(name, ""), "")
    return Axis(name=name, heading=f"{axis(name)}{way}", short=label(name), may_be_log=name != front.quality)


def _mark(front: StudyFront, point: Point, axes: Mapping[str, Axis], judged_by: Sequence[frozenset[str]]) -> Mark:
    """The mark of a point, with its standard errors as bars; `judged_by` as of its recommendation, or empty."""
    kind = "unmet" if point.rank is None else "dominated" if point.rank else "front"
    state = {"front": "on the front", "dominated": "dominated"}.get(kind, "no rank")
    spreads = {
        name: Spread(value, value - point.errors[name], value + point.errors[name])
        for name, value in point.means.items()
        if name in axes
    }
    spreads |= _settings(point.trial, axes)
    spreads[_SPENT] = Spread(*[point.found_at_usd] * 3)
    runs = f"{len(point.trials)} run{'s' if len(point.trials) > 1 else ''}"
    recommended = ", recommended" if judged_by else ""
    tooltip = [f"Trial {point.number}, {runs}: {state}{recommended}", *point.unmet]
    names = [name for name in dict.fromkeys([*front.objectives, metrics.COST_USD]) if name in point.means]
    tooltip += [f"{label(name)}: {format_value(name, point.means[name], point.errors[name])}" for name in names]
    tooltip += [f"{short_name(name)}: {text}" for name in front.shown if (text := point.trial.shown(name))]
    return Mark(
        kind=kind,
        spreads=spreads,
        tooltip=[*tooltip, f"run {point.trial.run_id}"],
        label=", ".join(filter(None, [f"trial {point.number}", point.trial.cluster])) if judged_by else "",
        label_over=[*judged_by, *({_SPENT, *names} - {metrics.COST_USD} for names in judged_by)],
    )


def _predicted(trial: Trial, axes: Mapping[str, Axis]) -> Mark:
    """The mark of a predicted point, with the intervals of its objectives as bars."""
    spreads = {
        name: Spread(value, *trial.intervals.get(name, (value, value)))
        for name, value in trial.values.items()
        if name in axes
    }
    spreads |= _settings(trial, axes)
    values = [f"{label(name)}: {between(trial, name)}" for name in trial.values]
    tooltip = ["Predicted, not run", *values, *trial.setting().split(", ")]
    return Mark(kind="predicted", spreads=spreads, tooltip=tooltip)


def _settings(trial: Trial, axes: Mapping[str, Axis]) -> dict[str, Spread]:
    """The parameters of a trial that are axes."""
    values = {name: trial.value(name) for name in axes}
    return {name: Spread(*[float(value)] * 3) for name, value in values.items() if _is_number(value)}


def _stairs(front: StudyFront, pair: tuple[str, str]) -> list[tuple[float, float]]:
    """Corners of the front of two objectives; between two neighbours it takes the worse of their values."""
    x, y = pair
    ranks = front.pair_ranks(pair)
    best = sorted((point.means[x], point.means[y]) for point in front.feasible if ranks[point.number] == 0)
    corners = best[:1]
    for before, after in itertools.pairwise(best):
        corner = (after[0], before[1]) if front.objectives[x] == "minimize" else (before[0], after[1])
        corners += [corner, after]
    return corners


def _best_so_far(front: StudyFront, name: str) -> list[tuple[float, float]]:
    """Corners of the best value of an objective over the dollars that the study had spent."""
    points = sorted(front.feasible, key=lambda point: (point.found_at_usd, point.number))
    values = [point.means[name] for point in points]
    so_far = (np.maximum if front.objectives[name] == "maximize" else np.minimum).accumulate(values)
    corners: list[tuple[float, float]] = []
    for point, value in zip(points, map(float, so_far), strict=True):
        corners += [(point.found_at_usd, corners[-1][1]), (point.found_at_usd, value)] if corners else []
        corners = corners or [(point.found_at_usd, value)]
    return corners


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def hypervolume_curve(front: StudyFront) -> str:
    """Hypervolume over the dollars spent, as a share of today's hypervolume."""
    grown = [(0.0, 0.0), *front.hypervolume_growth, (front.spent_usd, front.hypervolume_growth[-1][1])]
    last = grown[-1][1] or 1.0

    def draw(axes: Any) -> None:
        spent, volumes = zip(*grown, strict=True)
        axes.plot(spent, [100 * volume / last for volume in volumes], drawstyle="steps-post", color=FRONT)
        axes.set(xlabel="spent by the study (USD)", ylabel="share of today's front (%)", ylim=(0, 105))
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)

    return _svg(draw, "hypervolume", (8.6, 3.2), "share of today's front over dollars spent")


def parallel(front: StudyFront, searched: Sequence[str]) -> str:
    """Parallel coordinates: one line for each feasible configuration, through its parameters and objectives."""
    names, feasible = [*searched, *front.objectives], front.feasible
    values: list[list[Any]] = [[point.trial.point.get(name) for point in feasible] for name in searched]
    values += [[point.means[name] for point in feasible] for name in front.objectives]
    columns, ticks = zip(*map(_heights, values), strict=True)

    def draw(axes: Any) -> None:
        from matplotlib.collections import LineCollection

        lines = np.dstack([np.tile(np.arange(len(names)), (len(feasible), 1)), np.column_stack(columns)])
        is_best, many = np.asarray([point.rank == 0 for point in feasible]), len(feasible) > MANY
        rest = LineCollection(lines[~is_best], colors=DOMINATED, linewidths=0.7, alpha=0.35, rasterized=many)
        axes.add_collection(rest)
        axes.add_collection(LineCollection(lines[is_best], colors=FRONT, linewidths=1.6, alpha=0.85))
        for column, marks in enumerate(ticks):
            axes.axvline(column, color="black", linewidth=0.8)
            for height, text in marks:
                box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
                axes.text(column + 0.03, height, text, fontsize=8, va="center", bbox=box, zorder=5)
        heads = [axis(name) if name in front.objectives else short_name(name) for name in names]
        axes.set_xticks(range(len(names)), [head.replace(" ", "\n", 1) if len(head) > 14 else head for head in heads])
        axes.tick_params(axis="x", labelsize=8, length=0)
        axes.set(xlim=(-0.1, len(names) - 0.55), ylim=(-0.05, 1.05), yticks=[])
        for side in axes.spines.values():
            side.set_visible(False)

    return _svg(draw, "parallel", (8.6, 4.6), "parameters and objectives of every configuration; the front in blue")


def heat_map(rows: Sequence[str], columns: Sequence[str], cells: Any, counts: Any, name: str) -> str:
    """Means of an objective over two parameters, with the number of configurations; NaN if nothing was tried."""

    def draw(axes: Any) -> None:
        ends = scale_of(cells[np.isfinite(cells)].tolist(), may_be_log=False)  # an outlier takes no colours away
        low, high = max(ends.low, np.nanmin(cells)), min(ends.high, np.nanmax(cells))
        image = axes.imshow(
            np.ma.masked_invalid(cells), cmap="viridis", aspect="auto", origin="lower", vmin=low, vmax=high
        )
        axes.figure.colorbar(image, ax=axes, label=axis(name))
        axes.set_xticks(range(len(columns)), columns, fontsize=9)
        axes.set_yticks(range(len(rows)), rows, fontsize=9)
        axes.set(xlabel="learning rate", ylabel="global batch size")
        for (row, column), value in np.ndenumerate(cells):
            if np.isfinite(value):
                dark = high > low and (value - low) / (high - low) < 0.6
                text = f"{value:.4g}" + (f"\n({counts[row, column]})" if counts[row, column] > 1 else "")
                axes.text(column, row, text, ha="center", va="center", fontsize=8, color=ON_DARK if dark else ON_LIGHT)

    height = min(1.6 + 0.5 * len(rows), 7.0)
    return _svg(draw, "heat", (8.6, height), f"{label(name)} over global batch size and learning rate")


def _heights(values: Sequence[Any]) -> tuple[list[float], list[tuple[float, str]]]:
    """The position of each value on an axis from 0 to 1, and the ticks of the axis."""
    numbers = [value for value in values if _is_number(value)]
    if len(numbers) < len(values):
        texts = sorted({str(value) for value in values})
        step = 1 / max(len(texts) - 1, 1)
        height = {text: number * step if len(texts) > 1 else 0.5 for number, text in enumerate(texts)}
        labelled = texts if len(texts) <= 12 else [texts[0], texts[-1]]
        marks_of_texts = [(height[text], text if len(text) <= 18 else text[:17] + "…") for text in labelled]
        return [height[str(value)] for value in values], marks_of_texts
    low, high = min(numbers), max(numbers)
    if low == high:
        return [0.5] * len(numbers), [(0.5, f"{low:.4g}")]
    transform: Callable[[float], float] = np.log if low > 0 and high / low > LOG_FROM else float
    start, span = transform(low), transform(high) - transform(low)
    heights = [float((transform(number) - start) / span) for number in numbers]
    distinct = sorted(set(numbers))
    marks = distinct if len(distinct) <= 6 else [low, high]
    return heights, [(float((transform(mark) - start) / span), f"{mark:.4g}") for mark in marks]


def _svg(draw: Callable[[Any], None], name: str, size: tuple[float, float], about: str) -> str:
    """The SVG element of a figure with one plot."""
    return Picture(name=name, title=about, caption="", draw=lambda figure: draw(figure.add_subplot()), size=size).svg()
