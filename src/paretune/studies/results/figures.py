"""The figures of a study's page, each as an SVG element that stands in HTML."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paretune.presentation.picture import DOMINATED, FORESEEN, FRONT, PICKED, UNMET, plain_ticks, svg
from paretune.spec import metrics
from paretune.studies.results.front import StudyFront
from paretune.studies.results.points import Point
from paretune.studies.results.quantities import axis, label
from paretune.studies.results.trials import Trial

MANY = 150
"""Points beyond which they are drawn as one picture and only the recommended ones have error bars and names."""
_LOG_FROM = 20  # largest over smallest value from which an axis is logarithmic
_MOST_LABELS = 14


def scatter(front: StudyFront, pair: tuple[str, str], picked: Sequence[int]) -> str:
    """Two objectives against each other: their front joined, dominated points, standard errors, groups, recommended.

    Points that were predicted and not run are triangles with their intervals.
    """
    x, y = pair
    ranks = front.pair_ranks(pair)
    best = sorted((point for point in front.feasible if ranks[point.number] == 0), key=lambda point: point.means[x])
    others = [point for point in front.feasible if ranks[point.number] > 0]
    unmet = [point for point in front.points if point.unmet and x in point.means and y in point.means]
    many = len(front.points) > MANY

    def draw(axes: Any) -> None:
        for points, colour, marker, name in (
            (unmet, UNMET, "x", "constraint not met"),
            (others, DOMINATED, "o", "dominated"),
        ):
            if points:
                across, up = _columns(points, pair)
                axes.scatter(across, up, s=20, c=colour, marker=marker, label=name, rasterized=many, linewidths=1.2)
                if not many:
                    _bars(axes, points, pair, colour)
        across, up = _columns(best, pair)
        # Between two neighbours the front has the worse of their values in the other objective.
        steps = "steps-post" if front.objectives[x] == "minimize" else "steps-pre"
        axes.plot(across, up, drawstyle=steps, color=FRONT, linewidth=1, alpha=0.6)
        axes.scatter(across, up, s=34, c=FRONT, marker="D", label="front of these two", zorder=3)
        _bars(axes, best, pair, FRONT)
        chosen = [point for point in front.feasible if point.number in picked]
        axes.scatter(*_columns(chosen, pair), s=150, facecolors="none", edgecolors=PICKED, linewidths=2, zorder=4)
        axes.scatter([], [], s=80, facecolors="none", edgecolors=PICKED, linewidths=2, label="recommended")
        _groups(axes, front, pair)
        _forecast(axes, [trial for trial in front.forecast if x in trial.values and y in trial.values], pair)
        axes.set(xlabel=axis(x), ylabel=axis(y))
        _scale(axes, front.points, pair)
        _name(axes, [*chosen, *(point for point in best if point.number not in picked)], pair)
        axes.legend(fontsize=9, loc="best", framealpha=0.9)

    return _svg(draw, f"pair-{x}-{y}", (8.6, 5.0), f"{label(y)} over {label(x)}, a point per configuration")


def course(front: StudyFront) -> str:
    """One objective over the dollars spent, for a study that has no other; the best so far joined."""
    (name,) = front.objectives
    found = sorted(front.feasible, key=lambda point: (point.found_at_usd, point.number))
    spent, values = [point.found_at_usd for point in found], [point.means[name] for point in found]
    so_far = (np.maximum if front.objectives[name] == "maximize" else np.minimum).accumulate(values)

    many = len(found) > MANY

    def draw(axes: Any) -> None:
        errors = None if many else [point.errors[name] for point in found]
        axes.errorbar(spent, values, yerr=errors, fmt="o", ms=4, color=DOMINATED, label="a trial", rasterized=many)
        axes.plot(spent, so_far, drawstyle="steps-post", color=FRONT, label="best so far")
        axes.set(xlabel="spent by the study (USD)", ylabel=axis(name))
        axes.legend(fontsize=9)

    return _svg(draw, "course", (8.6, 4.0), f"{label(name)} over dollars spent")


def hypervolume_curve(front: StudyFront) -> str:
    """Hypervolume over the dollars spent, as a share of the last one."""
    grown = [(0.0, 0.0), *front.hypervolume_growth, (front.spent_usd, front.hypervolume_growth[-1][1])]
    last = grown[-1][1] or 1.0

    def draw(axes: Any) -> None:
        spent, volumes = zip(*grown, strict=True)
        axes.plot(spent, [100 * volume / last for volume in volumes], drawstyle="steps-post", color=FRONT)
        axes.set(xlabel="spent by the study (USD)", ylabel="hypervolume (% of today's)", ylim=(0, 105))
        axes.set_xlim(left=0)
        axes.grid(alpha=0.3)

    return _svg(draw, "hypervolume", (8.6, 3.2), "hypervolume of the front over dollars spent")


def parallel(front: StudyFront, searched: Sequence[str]) -> str:
    """Parallel coordinates: a line per feasible configuration through its parameters and objectives."""
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
            axes.axvline(column, color="#444444", linewidth=0.8)
            for height, text in marks:
                box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
                axes.text(column + 0.03, height, text, fontsize=8, va="center", bbox=box, zorder=5)
        heads = [axis(name) if name in front.objectives else name for name in names]
        axes.set_xticks(range(len(names)), [head.replace("_", "_\n", 1) if len(head) > 14 else head for head in heads])
        axes.tick_params(axis="x", labelsize=8, length=0)
        axes.set(xlim=(-0.1, len(names) - 0.55), ylim=(-0.05, 1.05), yticks=[])
        for side in axes.spines.values():
            side.set_visible(False)

    return _svg(draw, "parallel", (8.6, 4.6), "parameters and objectives of every configuration; the front in blue")


def heat_map(rows: Sequence[str], columns: Sequence[str], cells: Any, counts: Any, name: str) -> str:
    """Means of an objective over two parameters, and configurations behind each; NaN where nothing was tried."""

    def draw(axes: Any) -> None:
        image = axes.imshow(np.ma.masked_invalid(cells), cmap="viridis", aspect="auto", origin="lower")
        axes.figure.colorbar(image, ax=axes, label=axis(name))
        axes.set_xticks(range(len(columns)), columns, fontsize=9)
        axes.set_yticks(range(len(rows)), rows, fontsize=9)
        axes.set(xlabel="learning rate", ylabel="global batch size")
        low, high = np.nanmin(cells), np.nanmax(cells)
        for (row, column), value in np.ndenumerate(cells):
            if np.isfinite(value):
                dark = high > low and (value - low) / (high - low) < 0.6
                text = f"{value:.4g}" + (f"\n({counts[row, column]})" if counts[row, column] > 1 else "")
                axes.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")

    height = min(1.6 + 0.5 * len(rows), 7.0)
    return _svg(draw, "heat", (8.6, height), f"{label(name)} over global batch size and learning rate")


def _columns(points: Sequence[Point], pair: tuple[str, str]) -> tuple[list[float], list[float]]:
    return [point.means[pair[0]] for point in points], [point.means[pair[1]] for point in points]


def _bars(axes: Any, points: Sequence[Point], pair: tuple[str, str], colour: str) -> None:
    """One standard error to each side."""
    errors = [[point.errors[name] for point in points] for name in pair]
    axes.errorbar(*_columns(points, pair), xerr=errors[0], yerr=errors[1], fmt="none", ecolor=colour, elinewidth=0.9)


def _groups(axes: Any, front: StudyFront, pair: tuple[str, str]) -> None:
    """A dotted line from each recommended point of a group to those that cannot be told from it."""
    lines = [(group.recommended, point) for group in front.groups for point in group.others[:_MOST_LABELS]]
    for number, both in enumerate(lines):
        name = None if number else "cannot be told apart"
        axes.plot(*_columns(both, pair), linestyle=":", color="black", linewidth=1.1, label=name)


def _forecast(axes: Any, trials: Sequence[Trial], pair: tuple[str, str]) -> None:
    """Predicted points, with the ends of their intervals in both objectives."""
    if not trials:
        return
    across, up = ([trial.values[name] for trial in trials] for name in pair)
    widths = [[np.subtract(trial.intervals[name], trial.values[name]) for trial in trials] for name in pair]
    ends = [np.abs(ones).T for ones in widths]
    axes.errorbar(across, up, xerr=ends[0], yerr=ends[1], fmt="none", ecolor=FORESEEN, elinewidth=0.6, alpha=0.5)
    axes.scatter(across, up, s=26, marker="^", facecolors="none", edgecolors=FORESEEN, label="predicted, not run")


def _name(axes: Any, points: Sequence[Point], pair: tuple[str, str]) -> None:
    """Numbers of trials beside their points, the first ones first, where there is room."""
    taken: list[Any] = []
    for point in points:
        position = (point.means[pair[0]], point.means[pair[1]])
        here = axes.transData.transform(position)
        if len(taken) < _MOST_LABELS and not any(
            abs(here - there)[0] < 30 and abs(here - there)[1] < 16 for there in taken
        ):
            axes.annotate(f"{point.number}", position, xytext=(7, 7), textcoords="offset points", fontsize=9)
            taken.append(here)


def _scale(axes: Any, points: Sequence[Point], pair: tuple[str, str]) -> None:
    for name, line, set_scale in zip(pair, (axes.xaxis, axes.yaxis), (axes.set_xscale, axes.set_yscale), strict=True):
        values = [point.means[name] for point in points if name in point.means]
        if name != metrics.F1 and min(values) > 0 and max(values) / min(values) > _LOG_FROM:
            set_scale("log")
            plain_ticks(line)


def _heights(values: Sequence[Any]) -> tuple[list[float], list[tuple[float, str]]]:
    """Where each value lies on an axis from 0 to 1, and the axis's marks."""
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        texts = sorted({str(value) for value in values})
        step = 1 / max(len(texts) - 1, 1)
        height = {text: number * step if len(texts) > 1 else 0.5 for number, text in enumerate(texts)}
        shown = texts if len(texts) <= 12 else [texts[0], texts[-1]]
        marks_of_texts = [(height[text], text if len(text) <= 18 else text[:17] + "…") for text in shown]
        return [height[str(value)] for value in values], marks_of_texts
    low, high = min(numbers), max(numbers)
    if low == high:
        return [0.5] * len(numbers), [(0.5, f"{low:.4g}")]
    bend: Callable[[float], float] = np.log if low > 0 and high / low > _LOG_FROM else float
    start, span = bend(low), bend(high) - bend(low)
    heights = [float((bend(number) - start) / span) for number in numbers]
    distinct = sorted(set(numbers))
    marks = distinct if len(distinct) <= 6 else [low, high]
    return heights, [(float((bend(mark) - start) / span), f"{mark:.4g}") for mark in marks]


def _svg(draw: Callable[[Any], None], name: str, size: tuple[float, float], about: str) -> str:
    """What `draw` draws on the axes of a figure, as an SVG element."""
    return svg(lambda figure: draw(figure.add_subplot()), name, size, about)
