"""Pictures of what larger clusters do; every run is in them."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from paretune.commands.report.observations import Observation, grouped, sorted_levels
from paretune.commands.report.regression import ROWS, line
from paretune.commands.report.scaling import Scaling
from paretune.commands.report.spread import CONFIDENCE
from paretune.core.pareto import front
from paretune.presentation.picture import DOMINATED, HATCHES, Picture, style, tip
from paretune.presentation.scale import tick_texts, tick_values
from paretune.specification import metrics

_UNITS = ((7200.0, 3600.0, "h"), (180.0, 60.0, "min"), (0.0, 1.0, "s"))
_MOST_TIPS = 300  # runs of a series
_LOG_FROM = 8  # largest over smallest value from which an axis is logarithmic


def pictures(scaling: Scaling, number: int) -> list[Picture]:
    """Return the figures of one kind of runs; `number` distinguishes their names from those of other kinds."""
    figures = [
        _time(scaling, number),
        _bars(scaling, number),
        _f1_over_devices(scaling, number),
        _rates(scaling, number),
        _trade_offs(scaling, number),
    ]
    return [picture for picture in figures if picture is not None]


def _name(words: str, number: int) -> str:
    return words if number == 0 else f"{words}-{number + 1}"


def _title(scaling: Scaling, words: str) -> str:
    return f"{words} ({scaling.kind.origin})"


def _time(scaling: Scaling, number: int) -> Picture | None:
    """Draw time over devices, a series per global batch size, both axes logarithmic."""
    runs = [run for run in scaling.runs if run.seconds and run.devices]
    if len({run.devices for run in runs}) < 2:
        return None
    size, unit = unit_of([run.seconds or 0.0 for run in runs])
    batches = grouped(runs, lambda run: run.setting("global_batch_size"))
    has_lines = any(len({run.devices for run in group}) > 1 for group in batches.values())

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for index, batch in enumerate(sorted_levels(map(str, batches))):
            look = style(index)
            _points(axes, batches[batch], [(run.devices, (run.seconds or 0) / size) for run in batches[batch]], look)
            means = _means([(run.devices or 0, (run.seconds or 0) / size) for run in batches[batch]])
            axes.plot(*zip(*means, strict=True), color=look["color"], linestyle=look["linestyle"], linewidth=1.1)
            line_style = look if has_lines else look | {"linestyle": ""}
            axes.plot([], [], **line_style, label=f"global batch {batch or 'unknown'}")
        counts = sorted({run.devices or 0 for run in runs})
        means = _means([(run.devices or 0, (run.seconds or 0) / size) for run in runs])
        if not has_lines:
            axes.plot(*zip(*means, strict=True), color="black", linewidth=1, label="mean")
        first = means[0][1]
        ideal = [first * counts[0] / count for count in counts]
        axes.plot(counts, ideal, color=DOMINATED, linestyle=(0, (1, 2)), linewidth=1.4, label="perfect scaling")
        axes.set(xscale="log", yscale="log", xlabel="devices", ylabel=f"billed time ({unit})")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.set_xticks([], minor=True)
        _few_log_ticks(axes.yaxis, [*[(run.seconds or 0) / size for run in runs], *ideal])
        axes.grid(alpha=0.25)
        axes.legend(fontsize=9)

    joined = "of one global batch size" if has_lines else "over all global batch sizes"
    caption = f"A point per run; lines join the means {joined}. Both axes are logarithmic."
    return Picture(name=_name("time", number), title=_title(scaling, "Time over devices"), caption=caption, draw=draw)


def _bars(scaling: Scaling, number: int) -> Picture | None:
    """Draw mean time and cost of each level, with every repeat."""
    quantities = [name for name in (metrics.BILLABLE_SECONDS, metrics.COST_USD) if any(map(_has(name), scaling.runs))]
    if not quantities:
        return None

    def draw(figure: Any) -> None:
        figure.get_layout_engine().set(wspace=0.06)
        for index, quantity in enumerate(quantities):
            axes = figure.add_subplot(1, len(quantities), index + 1)
            values = [[run.value(quantity) for run in level.runs] for level in scaling.levels]
            size, unit = (1.0, "USD")
            if quantity == metrics.BILLABLE_SECONDS:
                size, unit = unit_of([value for group in values for value in group if value is not None])
            for row, (level, group) in enumerate(zip(scaling.levels, values, strict=True)):
                pairs = [(run, value / size) for run, value in zip(level.runs, group, strict=True) if value is not None]
                if not pairs:
                    continue
                mean, spread = fmean(value for _, value in pairs), level.spread(quantity)
                colour, hatch = style(row)["color"], HATCHES[row % len(HATCHES)]
                (bar,) = axes.barh(row, mean, height=0.62, color="white", edgecolor=colour, hatch=hatch, linewidth=1.4)
                tip(bar, f"{level.name}: mean {mean:,.4g} {unit} of {len(pairs)} runs")
                if spread is not None and spread.deviation is not None:
                    axes.errorbar(mean, row, xerr=spread.deviation / size, color="black", capsize=4, elinewidth=1.2)
                _circles(axes, row, pairs)
            axes.set_yticks(range(len(scaling.levels)), [level.name for level in scaling.levels] if index == 0 else [])
            axes.set(
                ylim=(len(scaling.levels) - 0.5, -0.5),
                xlabel=f"{'billed time' if quantity == metrics.BILLABLE_SECONDS else 'cost'} ({unit})",
                xlim=(0, None),
            )
            axes.grid(axis="x", alpha=0.25)

    height = min(1.6 + 0.55 * len(scaling.levels), 9.0)
    return Picture(
        name=_name("time-and-cost", number),
        title=_title(scaling, "Time and cost"),
        caption="Bars are means, black lines one sample standard deviation to each side, circles the runs.",
        draw=draw,
        size=(8.6, height),
    )


def _f1_over_devices(scaling: Scaling, number: int) -> Picture | None:
    """Draw F1 over devices, a series and a line per data size."""
    runs = [run for run in scaling.runs if run.value(metrics.F1) is not None and run.devices]
    if len({run.devices for run in runs}) < 2:
        return None
    sizes = grouped(runs, lambda run: run.data_size)
    ordered = sorted(sizes, key=lambda size: (size is None, size or 0))
    fit = line(runs, metrics.F1)
    has_sizes = fit is not None and ROWS in fit.centre

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        counts = sorted({run.devices or 0 for run in runs})
        along = np.geomspace(counts[0], counts[-1], 24)
        for index, size in enumerate(ordered):
            look = style(index)
            label = f"{size:,.0f} rows" if isinstance(size, float) else "rows unknown"
            _points(axes, sizes[size], [(run.devices, run.value(metrics.F1)) for run in sizes[size]], look)
            axes.plot([], [], **look, label=label if has_sizes or len(ordered) > 1 else "runs")
            if fit is not None and (has_sizes or index == 0):
                at = [along, np.full_like(along, size)] if has_sizes else [along]
                mean, low, high = fit.predict(np.column_stack(at))
                axes.plot(along, mean, color=look["color"], linestyle=look["linestyle"], linewidth=1.2)
                axes.fill_between(along, low, high, color=look["color"], alpha=0.13, linewidth=0)
        axes.set(xscale="log", xlabel="devices", ylabel="F1 (macro, validation)")
        axes.set_xticks(counts, [f"{count:,}" for count in counts])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=9)

    caption = (
        "A point per run. Rows are those of the data set where they are told, else those trained on. "
        "The axis of devices is logarithmic."
    )
    if fit is not None:
        caption += (
            f" Lines: {fit.formula}, least squares, with {CONFIDENCE:.0%} bands of the mean; a straight line "
            f"{fit.verdict}."
        )
    return Picture(name=_name("f1", number), title=_title(scaling, "F1 over devices"), caption=caption, draw=draw)


def _rates(scaling: Scaling, number: int) -> Picture | None:
    """Draw F1 over the global batch size, a series per rule for the learning rate."""
    runs = [run for run in scaling.runs if run.value(metrics.F1) is not None and run.number("global_batch_size")]
    rules = grouped(runs, lambda run: run.setting("learning_rate_scaling"))
    if len(rules) < 2:
        return None

    def draw(figure: Any) -> None:
        axes = figure.add_subplot()
        for index, rule in enumerate(sorted(map(str, rules))):
            look, group = style(index), rules[rule]
            points = [(run.number("global_batch_size") or 0.0, run.value(metrics.F1) or 0.0) for run in group]
            _points(axes, group, points, look)
            axes.plot(
                *zip(*_means(points), strict=True), color=look["color"], linestyle=look["linestyle"], linewidth=1.1
            )
            axes.plot([], [], **look, label="fixed rate" if rule == "none" else f"rate scaled: {rule}")
        batches = sorted({int(run.number("global_batch_size") or 0) for run in runs})
        axes.set(xscale="log", xlabel="global batch size (rows)", ylabel="F1 (macro, validation)")
        axes.set_xticks(batches, [f"{batch:,}" for batch in batches])
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=9)

    caption = "A point per run; lines join the means. The axis of batch sizes is logarithmic."
    title = _title(scaling, "Scaled against fixed learning rate")
    return Picture(name=_name("rates", number), title=title, caption=caption, draw=draw)


def _trade_offs(scaling: Scaling, number: int) -> Picture | None:
    """Draw seconds and F1 over dollars, each with the front of the two."""
    name, title = _name("trade-offs", number), _title(scaling, "Dollars, time and F1")
    return trade_offs({level.name: level.runs for level in scaling.levels}, name, title)


def trade_offs(series: dict[str, Sequence[Observation]], name: str, title: str) -> Picture | None:
    """Draw seconds and F1 over dollars, a series per name; None if no run has both of a pair."""
    all_runs = [run for group in series.values() for run in group]
    quantities = [(metrics.BILLABLE_SECONDS, False), (metrics.F1, True)]
    pairs = [
        (name, more)
        for name, more in quantities
        if any(run.job.bill.cost_usd and run.value(name) is not None for run in all_runs)
    ]
    if not pairs:
        return None

    def draw(figure: Any) -> None:
        labelled: set[str] = set()
        for index, (quantity, more) in enumerate(pairs):
            axes = figure.add_subplot(1, len(pairs), index + 1)
            size, unit = (1.0, "")
            if quantity == metrics.BILLABLE_SECONDS:
                size, unit = unit_of([run.seconds for run in all_runs if run.seconds])
            points: list[tuple[float, float]] = []
            for row, (label, group) in enumerate(series.items()):
                runs = [run for run in group if run.job.bill.cost_usd and run.value(quantity) is not None]
                at = [(run.job.bill.cost_usd or 0.0, (run.value(quantity) or 0.0) / size) for run in runs]
                _points(axes, runs, at, style(row))
                if runs and label not in labelled:
                    labelled.add(label)
                    axes.plot([], [], **(style(row) | {"linestyle": ""}), label=label)
                points += at
            best = sorted(point for point, is_best in zip(points, front(points, (False, more)), strict=True) if is_best)
            look = {"drawstyle": "steps-post", "color": "black", "linewidth": 1, "marker": ".", "markersize": 3}
            axes.plot(*zip(*best, strict=True), **look, label="front" if not index else None)
            axes.set(xlabel="cost (USD)", ylabel=f"billed time ({unit})" if unit else "F1 (macro, validation)")
            scale_axis(axes.xaxis, [x for x, _ in points], log_from=_LOG_FROM)
            scale_axis(axes.yaxis, [y for _, y in points], log_from=_LOG_FROM)
            axes.grid(alpha=0.25)
        figure.legend(loc="outside lower center", ncols=3, fontsize=9)

    caption = "A point per run; the black line is the front of the two: no run on it is beaten in both."
    return Picture(name=name, title=title, caption=caption, draw=draw, size=(8.6, 4.6))


def _points(axes: Any, runs: Sequence[Observation], points: Sequence[tuple[Any, Any]], look: dict[str, Any]) -> None:
    """Draw a point per run; with up to _MOST_TIPS of them, each has its facts as a tooltip."""
    if len(runs) > _MOST_TIPS:
        axes.plot(*zip(*points, strict=True), linestyle="", marker=look["marker"], color=look["color"], ms=4, alpha=0.5)
        return
    for run, (x, y) in zip(runs, points, strict=True):
        (point,) = axes.plot(x, y, linestyle="", marker=look["marker"], color=look["color"], ms=6, alpha=0.75)
        tip(point, run.describe())


def _circles(axes: Any, row: int, pairs: Sequence[tuple[Observation, float]]) -> None:
    """Draw a circle per run around the middle of a bar; with up to _MOST_TIPS of them, each has a tooltip."""
    shifts = _shifts(len(pairs))
    if len(pairs) > _MOST_TIPS:
        heights = [row + shift for shift in shifts]
        axes.plot([value for _, value in pairs], heights, linestyle="", marker=".", color="black", ms=2, alpha=0.5)
        return
    for shift, (run, value) in zip(shifts, pairs, strict=True):
        (point,) = axes.plot(value, row + shift, marker="o", ms=4.5, mfc="white", mec="black", linestyle="")
        tip(point, run.describe())


def _means(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the mean height at each x, from left to right."""
    return [(x, fmean(y for other, y in points if other == x)) for x in sorted({x for x, _ in points})]


def unit_of(seconds: Sequence[float]) -> tuple[float, str]:
    """Return the size in seconds of the unit that suits the largest value, and its name."""
    return next((size, unit) for least, size, unit in _UNITS if max(seconds) >= least)


def _shifts(count: int) -> list[float]:
    """Return the heights of `count` circles around the middle of a bar."""
    return list(np.linspace(-0.2, 0.2, count)) if count > 1 else [0.0]


def _has(quantity: str) -> Any:
    return lambda run: run.value(quantity) is not None


def scale_axis(axis: Any, values: Sequence[float], *, log_from: float, most_ticks: int = 5) -> None:
    """Make a matplotlib axis logarithmic if the largest value is over `log_from` times the smallest, else linear."""
    if min(values) > 0 and max(values) / min(values) > log_from:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        _few_log_ticks(axis, values)
    else:
        axis.axes.locator_params(axis=axis.axis_name, nbins=most_ticks)


def _few_log_ticks(axis: Any, values: Sequence[float]) -> None:
    """Label a logarithmic axis with plain numbers around the values."""
    ticks = tick_values(min(values) / 1.6, max(values) * 1.6, is_log=True)
    axis.set_ticks(ticks, tick_texts(ticks))
    axis.set_ticks([], minor=True)
