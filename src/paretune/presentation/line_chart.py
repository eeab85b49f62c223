"""Line charts, such as dollars against the number of devices: plotly for pages, matplotlib for pictures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from paretune.core.secrets import printable
from paretune.presentation.page import as_html

# The colors of Okabe and Ito, Color Universal Design (2008), with a contrast of at least 3 on light and dark pages.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_DASHES = (("solid", "-"), ("dash", "--"), ("dot", ":"))  # plotly's name, and matplotlib's
_MARKS = (("circle", "o"), ("square", "s"), ("diamond", "D"), ("triangle-up", "^"), ("cross", "P"), ("star", "*"))
_PLAIN = "#8C8C8C"  # color of marks in the legend, and of ideal lines
_BAND = 0.18  # opacity of a band


@dataclass(frozen=True, kw_only=True)
class Point:
    """A mark on a line."""

    x: float
    y: float
    text: str  # text of the tooltip
    kind: str = ""  # one of the chart's `kinds`, each of which has its own mark
    low: float = math.nan  # ends of the band; NaN if there is none
    high: float = math.nan


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """A chart with a logarithmic x axis. Each line has its own color and dash, each kind of point its own mark."""

    title: str
    x_title: str
    y_title: str
    lines: dict[str, Sequence[Point]]  # name in the legend to points, ordered by x
    ideals: dict[str, Sequence[tuple[float, float]]]  # name of a line to the points (x, y) of its ideal line
    kinds: Sequence[str] = ()
    is_log_y: bool = False
    percent: bool = False  # y is a share, shown in percent

    def _looks(self) -> dict[str, tuple[str, tuple[str, str]]]:
        """Return the color and the dash of each line."""
        colors = cycle((color, dash) for dash in _DASHES for color in _COLORS)
        return dict(zip(self.lines, islice(colors, len(self.lines)), strict=True))

    def _mark(self, kind: str) -> tuple[str, str]:
        return _MARKS[self.kinds.index(kind) % len(_MARKS)] if kind in self.kinds else _MARKS[0]

    def _ticks(self) -> list[float]:
        """Return all values of x, to use as ticks: by default, a logarithmic axis has no ticks at 16 and 32."""
        return sorted({point.x for points in self.lines.values() for point in points})

    def figure(self) -> Any:
        """Return the chart as a plotly figure."""
        import plotly.graph_objects as go

        figure = go.Figure()
        for name, (color, (dash, _)) in self._looks().items():
            points, line = self.lines[name], {"color": color, "width": 2, "dash": dash}
            banded = [point for point in points if math.isfinite(point.low)]
            if len(banded) > 1:
                figure.add_scatter(
                    x=[point.x for point in (*banded, *reversed(banded))],
                    y=[*(point.high for point in banded), *(point.low for point in reversed(banded))],
                    fill="toself",
                    fillcolor=f"rgba({', '.join(str(int(color[at : at + 2], 16)) for at in (1, 3, 5))}, {_BAND})",
                    line={"width": 0},
                    mode="lines",
                    hoverinfo="skip",
                    showlegend=False,
                    name=f"band of {as_html(name)}",
                )
            if ideal := self.ideals.get(name):
                figure.add_scatter(
                    x=[x for x, _ in ideal],
                    y=[y for _, y in ideal],
                    mode="lines",
                    line={"color": _PLAIN, "width": 1, "dash": "dot"},
                    hoverinfo="skip",
                    name="ideal",
                    showlegend=name == next(iter(self.ideals)),
                )
            figure.add_scatter(
                x=[point.x for point in points],
                y=[point.y for point in points],
                mode="lines+markers",
                line=line,
                marker={"symbol": [self._mark(point.kind)[0] for point in points], "size": 9, "color": color},
                hovertext=[as_html(point.text) for point in points],
                hovertemplate="%{hovertext}<extra></extra>",
                name=as_html(name),
                showlegend=bool(name),
            )
        for kind in self.kinds:
            mark = {"symbol": self._mark(kind)[0], "size": 9, "color": _PLAIN}
            figure.add_scatter(x=[None], y=[None], mode="markers", marker=mark, name=as_html(kind), showlegend=True)
        ticks = self._ticks()
        figure.update_xaxes(
            title={"text": self.x_title}, type="log", tickvals=ticks, ticktext=[f"{x:g}" for x in ticks]
        )
        figure.update_yaxes(
            title={"text": self.y_title},
            type="log" if self.is_log_y else "linear",
            tickformat=".0%" if self.percent else None,
            rangemode="tozero" if self.percent else "normal",
        )
        heights = [point.y for points in self.lines.values() for point in points]
        heights += [y for points in self.ideals.values() for _, y in points]
        if self.is_log_y and 0 < 10 * min(heights) <= max(heights):  # plotly would label every digit
            texts = {tick: f"{tick:g}" for tick in _round_numbers(min(heights), max(heights))}
            figure.update_yaxes(tickvals=[*texts], ticktext=[*texts.values()])
        return figure

    def draw(self, axes: Any) -> None:
        """Draw the chart on matplotlib axes."""
        from matplotlib.lines import Line2D
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter, ScalarFormatter

        for name, (color, (_, dash)) in self._looks().items():
            points = self.lines[name]
            if any(math.isfinite(point.low) for point in points):
                ends = [
                    [point.x for point in points],
                    [point.low for point in points],
                    [point.high for point in points],
                ]
                axes.fill_between(*ends, color=color, alpha=_BAND, linewidth=0)
            if ideal := self.ideals.get(name):
                axes.plot([x for x, _ in ideal], [y for _, y in ideal], ":", color=_PLAIN, linewidth=1)
            axes.plot(
                [point.x for point in points],
                [point.y for point in points],
                dash,
                color=color,
                label=_for_matplotlib(name),
            )
            for point in points:
                axes.plot([point.x], [point.y], self._mark(point.kind)[1], color=color)
        axes.set(title=self.title, xlabel=self.x_title, ylabel=self.y_title, xscale="log")
        axes.xaxis.set(major_locator=FixedLocator(self._ticks()), minor_locator=NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        if self.is_log_y:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(ScalarFormatter())
            axes.yaxis.set_minor_formatter(FuncFormatter(lambda y, _: _minor_tick(y, *axes.get_ylim())))
        if self.percent:
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.set_ylim(bottom=0)
        axes.grid(color="#d6d6d6", linewidth=0.5)
        handles, names = axes.get_legend_handles_labels()
        handles += [Line2D([], [], linestyle="", marker=self._mark(kind)[1], color=_PLAIN) for kind in self.kinds]
        if any([*names, *self.kinds]):
            axes.legend(handles, [*names, *map(_for_matplotlib, self.kinds)], fontsize=7)


def _round_numbers(low: float, high: float) -> list[float]:
    """Return the numbers from `low` to `high`, both positive, that are 1, 2 or 5 times a power of ten."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    numbers = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return [number for number in numbers if low <= number <= high]


def _minor_tick(value: float, low: float, high: float) -> str:
    """Return the label of a tick between two powers of ten on a logarithmic axis from `low` to `high`.

    If the axis spans a factor of ten or more, only 2 and 5 times a power of ten have a label: more would not fit.
    """
    digit = round(value / 10 ** math.floor(math.log10(value)))
    return f"{value:g}" if high < 10 * low or digit in (2, 5) else ""


def _for_matplotlib(text: str) -> str:
    """Escape text for matplotlib, which reads a formula between two dollar signs."""
    return printable(text).replace("$", r"\$")


def picture(groups: Sequence[tuple[str, Sequence[LineChart]]]) -> Any:
    """Return a matplotlib figure with one row of charts for each group, and the group's heading above its row."""
    from matplotlib.figure import Figure

    width = max(len(charts) for _, charts in groups)
    figure = Figure(figsize=(4.6 * width, 4.4 * len(groups)), layout="constrained")
    parts = figure.subfigures(len(groups), 1, squeeze=False)[:, 0]
    for part, (heading, charts) in zip(parts, groups, strict=True):
        part.suptitle(_for_matplotlib(heading))
        for axes, chart in zip(part.subplots(1, width, squeeze=False)[0], [*charts, *[None] * width], strict=False):
            axes.axis("off") if chart is None else chart.draw(axes)
    return figure
