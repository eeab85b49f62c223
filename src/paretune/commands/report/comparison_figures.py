"""Pictures of one setting against another; every run is in them."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from paretune.commands.report.comparison import Comparison, loss_curves
from paretune.commands.report.scaling_figures import trade_offs, unit_of
from paretune.presentation.picture import HATCHES, Picture, style, tip
from paretune.specification import metrics

_PANELS = {
    metrics.THROUGHPUT_SAMPLES: "samples/s",
    metrics.BILLABLE_SECONDS: "billed time",
    metrics.COST_USD: "cost (USD)",
    metrics.PEAK_MEMORY_GIB: "memory per device (GiB)",
    metrics.F1: "F1",
    metrics.PERPLEXITY: "perplexity",
}


def pictures(
    comparison: Comparison, number: int, curves: dict[str, Sequence[tuple[int, float, float]]]
) -> list[Picture]:
    """The figures of one comparison; `curves` has step, time and loss by run id, as `loss_curves` takes them."""
    named = {level.name or "(none)": level.runs for level in comparison.levels}
    end = "" if number == 0 else f"-{number + 1}"
    figures = [_bars(comparison, f"compared{end}"), _losses(comparison, f"loss{end}", curves)]
    figures.append(trade_offs(dict(named), f"trade-offs{end}", f"Dollars, time and F1 ({comparison.kind.origin})"))
    return [picture for picture in figures if picture is not None]


def _bars(comparison: Comparison, name: str) -> Picture | None:
    """A panel per quantity, a bar per level, with every run."""
    panels = [quantity for quantity in _PANELS if any(level.spread(quantity) for level in comparison.levels)]
    if not panels:
        return None
    columns = 2 if len(panels) == 4 else min(3, len(panels))
    lines = -(-len(panels) // columns)

    def draw(figure: Any) -> None:
        for index, quantity in enumerate(panels):
            axes, size, label = figure.add_subplot(lines, columns, index + 1), 1.0, _PANELS[quantity]
            if quantity == metrics.BILLABLE_SECONDS:
                size, unit = unit_of([run.seconds for run in comparison.runs if run.seconds])
                label = f"{label} ({unit})"
            for row, level in enumerate(comparison.levels):
                points = [(run, value / size) for run in level.runs if (value := run.value(quantity)) is not None]
                if not points:
                    continue
                mean = fmean(value for _, value in points)
                tip(
                    _mean(axes, row, mean, from_0=quantity != metrics.F1),
                    f"{level.name}: mean {mean:,.4g} of {len(points)} runs",
                )
                for number, (run, value) in enumerate(points):
                    shift = 0.0 if len(points) == 1 else -0.2 + 0.4 * number / (len(points) - 1)
                    (point,) = axes.plot(row + shift, value, marker="o", ms=4.5, mfc="white", mec="black", linestyle="")
                    tip(point, run.describe())
            names = [level.name or "(none)" for level in comparison.levels]
            axes.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names)) > 10 else 0)
            axes.set(ylabel=label, xlim=(-0.5, len(names) - 0.5))
            axes.grid(axis="y", alpha=0.25)

    title = f"{comparison.by} compared ({comparison.kind.origin})"
    caption = "Bars, and lines of F1, are means, circles the runs; axes of bars begin at 0."
    return Picture(name=name, title=title, caption=caption, draw=draw, size=(8.6, 2.9 * lines))


def _mean(axes: Any, row: int, mean: float, *, from_0: bool) -> Any:
    """The bar of a mean, or a line at its height where differences are small beside it."""
    colour, hatch = style(row)["color"], HATCHES[row % len(HATCHES)]
    if not from_0:
        (drawn,) = axes.plot([row - 0.31, row + 0.31], [mean, mean], color=colour, linewidth=2)
    else:
        (drawn,) = axes.bar(row, mean, width=0.62, color="white", edgecolor=colour, hatch=hatch, linewidth=1.4)
    return drawn


def _losses(comparison: Comparison, name: str, curves: dict[str, Sequence[tuple[int, float, float]]]) -> Picture | None:
    """Training loss over steps and over dollars, a curve per run."""
    losses = loss_curves(comparison, curves)
    if not losses:
        return None
    has_dollars = any(dollars is not None for runs in losses.values() for curve in runs for _, dollars, _ in curve)

    def draw(figure: Any) -> None:
        ways: list[tuple[str, Callable[[tuple[int, float | None, float]], float | None]]]
        ways = [("optimiser step", lambda point: point[0])]
        ways += [("dollars until then (USD)", lambda point: point[1])] if has_dollars else []
        for index, (label, across) in enumerate(ways):
            axes = figure.add_subplot(1, len(ways), index + 1)
            for row, level in enumerate(comparison.levels):
                look = style(row)
                for curve in losses.get(level.name, []):
                    points = [(x, point[2]) for point in curve if (x := across(point)) is not None]
                    if points:
                        marker = look["marker"] if len(points) < 12 else ""
                        (drawn,) = axes.plot(*zip(*points, strict=True), **{**look, "marker": marker}, ms=4, lw=1.2)
                        tip(drawn, f"{comparison.by} {level.name}")
                if level.name in losses and index == 0:
                    axes.plot([], [], **{**look, "marker": ""}, label=f"{comparison.by} {level.name or '(none)'}")
            axes.set(xlabel=label, ylabel="training loss")
            axes.set_xlim(left=0)
            axes.grid(alpha=0.25)
        figure.legend(loc="outside lower center", ncols=3, fontsize=9)

    caption = (
        "A curve per run. Dollars are the time since the run was launched at its hourly price, at most its cost; of "
        "simulated and imported runs, the cost in proportion to the steps."
    )
    title = f"Training loss ({comparison.kind.origin})"
    return Picture(name=name, title=title, caption=caption, draw=draw, size=(8.6, 3.9))
