"""The charts of `report --view scaling`: time, dollars, efficiency and quality by number of devices."""

import math
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from paretune.commands.report import SHAPE
from paretune.presentation.page import as_html
from paretune.presentation.text import duration, time_unit, usd
from paretune.specification import metrics

Group = tuple[str, Sequence[tuple[str, Any]]]  # a heading and its charts: their titles and plotly figures
# The colors of Okabe and Ito, Color Universal Design (2008), with a contrast of at least 3 on light and dark pages.
_COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
_DASHES = [dash for dash in ("solid", "dash", "dot") for _ in _COLORS]
_ROUND = [digit * 10.0**power for power in range(-6, 9) for digit in (1, 2, 5)]
_MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
_PLAIN = "#8C8C8C"  # color of marks in the legend, and of ideal lines
QUALITIES = {metrics.F1: "F1", metrics.PERPLEXITY: "perplexity"}
_CONFIDENCE = 0.95
ABOUT_CHARTS = (
    "The runs of a line have the same rows and epochs, if these are recorded. A mark is the mean of the runs with one "
    "setting. The dotted line shows perfect scaling from the smallest cluster. In charts of F1 and perplexity, a bar "
    "is a 95 % confidence interval of the mean (Student's t, one standard deviation pooled over the line); without "
    "repeats there is no bar."
)


def confidence(values: "pd.Series[float]", by: "pd.Series[str]") -> pd.DataFrame:
    """Return `low` and `high` of the 95 % confidence interval of each group's mean.

    The standard deviation is pooled over the groups. `low` and `high` are NaN if no group has two values.
    """
    groups = values.groupby(by)
    counts, degrees = groups.count(), int((groups.count() - 1).clip(lower=0).sum())
    squares = ((counts - 1).clip(lower=0) * groups.std().fillna(0.0) ** 2).sum()
    deviation = math.sqrt(squares / degrees) if degrees else math.nan
    margin = stdtrit(max(degrees, 1), (1 + _CONFIDENCE) / 2) * deviation / np.sqrt(counts.where(counts > 0))
    return pd.DataFrame({"low": groups.mean() - margin, "high": groups.mean() + margin})


def scaling_charts(numbers: pd.DataFrame) -> list[Group]:
    """Return the charts of each group of runs with the same kind, script, model, data set and task.

    `numbers` has the rows of report.csv. A line needs two numbers of devices; groups without a line are left out.
    """
    groups = numbers[numbers.devices.notna()].groupby(["kind", "script", "model", "dataset", "task"], sort=False)
    charts = [(title_of(*map(str, key)), _charts(rows)) for key, rows in groups]
    return [group for group in charts if group[1]]


def title_of(kind: str, script: str, model: str, dataset: str, task: str, apart: str = "") -> str:
    """Return the heading of runs that may be compared. It names the task, except for classification."""
    what = " on ".join(filter(None, [" with ".join(filter(None, [script, model])), dataset]))
    own_task = "" if task == metrics.CLASSIFICATION else task
    return f"{kind[:1].upper()}{kind[1:]}: {', '.join(filter(None, [what, own_task, apart]))}"


def _charts(rows: pd.DataFrame) -> list[tuple[str, Any]]:
    size, unit = time_unit(rows[f"{metrics.BILLABLE_SECONDS}_mean"].median())
    seconds = f"{metrics.BILLABLE_SECONDS}_mean"
    charts = [
        _chart(rows, seconds, f"billed time ({unit})", lambda s: duration(s * size), size=size, is_ideal=True),
        _chart(rows, f"{metrics.COST_USD}_mean", "cost (USD)", usd, is_log=True),
        _chart(rows, "efficiency", "efficiency", "{:.0%}".format),
        *(_chart(rows, f"{name}_mean", label, "{:.4g}".format, interval=name) for name, label in QUALITIES.items()),
    ]
    return list(filter(None, charts))


def _chart(
    rows: pd.DataFrame,
    column: str,
    y_title: str,
    written: Callable[[float], str],
    *,
    size: float = 1.0,
    is_ideal: bool = False,
    is_log: bool = False,
    interval: str = "",
) -> tuple[str, Any] | None:
    """Return the title and the plotly figure of one column, whose values are divided by `size`, or None without a line.

    If `interval` names a metric, its confidence intervals are drawn as bars. If shapes are compared, each has its mark.
    """
    import plotly.express as px

    known = rows[rows[column] > 0] if column in rows else rows[:0]  # efficiency is absent if no table has one
    known = known[known.groupby("apart").devices.transform("nunique") > 1].sort_values(["devices", "level"])
    if known.empty:
        return None
    points = known.assign(y=known[column] / size, line=known["apart"].map(as_html), level=known.level.map(as_html))
    points["text"] = [
        f"{row['level']}, {row['line'] or 'all runs'}: {as_html(written(row['y']))}<br>mean of {row['n']}"
        for row in points.to_dict("records")
    ]
    if interval:
        points["margin"] = (points[f"{interval}_high"] - points[f"{interval}_low"]) / 2
    figure = px.line(
        points,
        x="devices",
        y="y",
        color="line",
        line_dash="line",
        line_dash_sequence=_DASHES,
        error_y="margin" if interval else None,
        custom_data=["text"],
        markers=True,
        log_x=True,
        log_y=is_ideal or is_log,
        category_orders={"line": sorted({*points.line}, key=[*rows.apart.map(as_html)].index)},
        color_discrete_sequence=_COLORS,
        labels={"y": y_title, "line": ""},
    )
    figure.update_traces(hovertemplate="%{customdata[0]}<extra></extra>", marker_size=9)
    lines = {trace.name: trace for trace in figure.data}
    if (rows.factor == SHAPE).all():
        symbols = dict(zip(dict.fromkeys(points.level), cycle(_MARKS), strict=False))
        for name, of_line in points.groupby("line"):
            lines[name].marker.symbol = [*of_line.level.map(symbols)]
        for level, symbol in symbols.items():
            marker = {"symbol": symbol, "size": 9, "color": _PLAIN}
            figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=level)
    for number, (_, of_line) in enumerate(points.groupby("line") if is_ideal else ()):
        ideal = of_line.y.iloc[0] * of_line.devices.iloc[0] / of_line.devices
        line, is_first = {"color": _PLAIN, "width": 1, "dash": "dot"}, number == 0
        figure.add_scatter(x=of_line.devices, y=ideal, mode="lines", line=line, name="ideal", showlegend=is_first)
    ticks = sorted({*points.devices})  # by default, a logarithmic axis has no ticks at 16 and 32
    figure.update_xaxes(tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    if column == "efficiency":
        figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    if (is_ideal or is_log) and points.y.max() >= 10 * points.y.min():
        figure.update_yaxes(tickvals=_ROUND)  # by default, plotly would label every digit
    return f"{y_title.partition(' (')[0]} by number of devices", figure
