"""Line charts of plotly, such as dollars against the number of devices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from paretune.presentation.page import as_html

# The colors of Okabe and Ito, Color Universal Design (2008), with a contrast of at least 3 on light and dark pages.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_DASHES = ("solid", "dash", "dot")
_MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
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

    def _looks(self) -> dict[str, tuple[str, str]]:
        """Return the color and the dash of each line."""
        colors = cycle((color, dash) for dash in _DASHES for color in _COLORS)
        return dict(zip(self.lines, islice(colors, len(self.lines)), strict=True))

    def _mark(self, kind: str) -> str:
        return _MARKS[self.kinds.index(kind) % len(_MARKS)] if kind in self.kinds else _MARKS[0]

    def _ticks(self) -> list[float]:
        """Return all values of x, to use as ticks: by default, a logarithmic axis has no ticks at 16 and 32."""
        return sorted({point.x for points in self.lines.values() for point in points})

    def figure(self) -> Any:
        """Return the chart as a plotly figure."""
        import plotly.graph_objects as go

        figure = go.Figure()
        for name, (color, dash) in self._looks().items():
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
                marker={"symbol": [self._mark(point.kind) for point in points], "size": 9, "color": color},
                hovertext=[as_html(point.text) for point in points],
                hovertemplate="%{hovertext}<extra></extra>",
                name=as_html(name),
                showlegend=bool(name),
            )
        for kind in self.kinds:
            mark = {"symbol": self._mark(kind), "size": 9, "color": _PLAIN}
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


def _round_numbers(low: float, high: float) -> list[float]:
    """Return the numbers from `low` to `high`, both positive, that are 1, 2 or 5 times a power of ten."""
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    numbers = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return [number for number in numbers if low <= number <= high]
