"""The charts of `report --view scaling`: time, dollars, efficiency and quality by number of devices."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from paretune.commands.report import SHAPE
from paretune.presentation.line_chart import LineChart, Point
from paretune.presentation.text import duration, time_unit, usd
from paretune.specification import metrics

Group = tuple[str, Sequence[LineChart]]  # a heading and its charts
QUALITIES = {metrics.F1: "F1", metrics.PERPLEXITY: "perplexity"}
_CONFIDENCE = 0.95
ABOUT_CHARTS = (
    "The runs of a line have the same rows and epochs, if these are recorded. A mark is the mean of the runs with one "
    "setting. The dotted line shows perfect scaling from the smallest cluster. In charts of F1 and perplexity, a band "
    "is a 95 % confidence interval of the mean (Student's t, one standard deviation pooled over the line); without "
    "repeats there is no band."
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


def _charts(rows: pd.DataFrame) -> list[LineChart]:
    size, unit = time_unit(rows[f"{metrics.BILLABLE_SECONDS}_mean"].median())
    seconds = f"{metrics.BILLABLE_SECONDS}_mean"
    charts = [
        _chart(rows, seconds, f"billed time ({unit})", lambda s: duration(s * size), size=size, is_ideal=True),
        _chart(rows, f"{metrics.COST_USD}_mean", "cost (USD)", usd, is_log=True),
        _chart(rows, "efficiency", "efficiency", "{:.0%}".format, percent=True),
        *(_chart(rows, f"{name}_mean", label, "{:.4g}".format, band=name) for name, label in QUALITIES.items()),
    ]
    return [chart for chart in charts if chart.lines]


def _chart(
    rows: pd.DataFrame,
    column: str,
    y_title: str,
    written: Callable[[float], str],
    *,
    size: float = 1.0,
    is_ideal: bool = False,
    is_log: bool = False,
    percent: bool = False,
    band: str = "",
) -> LineChart:
    """Return the chart of one column; the column's values are divided by `size`. An absent column has no lines.

    If `band` names a metric, its confidence interval is drawn as a band.
    """
    lines, ideals = dict[str, Sequence[Point]](), dict[str, Sequence[tuple[float, float]]]()
    by_shape = (rows.factor == SHAPE).all()
    known = rows[rows[column] > 0] if column in rows else rows[:0]  # efficiency is absent if no table has one
    for apart, of_line in known.groupby("apart", sort=False):
        work, of_line = str(apart), of_line.sort_values(["devices", "level"])
        points = [
            Point(
                x=float(row["devices"]),
                y=row[column] / size,
                text=f"{row['level']}, {work or 'all runs'}: {written(row[column] / size)}\nmean of {row['n']}",
                kind=row["level"] if by_shape else "",
                low=row[f"{band}_low"] if band else math.nan,
                high=row[f"{band}_high"] if band else math.nan,
            )
            for row in of_line.to_dict("records")
        ]
        if len({point.x for point in points}) > 1:
            lines[work] = points
            if is_ideal:
                ideals[work] = [(point.x, points[0].y * points[0].x / point.x) for point in points]
    return LineChart(
        title=f"{y_title.partition(' (')[0]} by number of devices",
        x_title="devices",
        y_title=y_title,
        lines=lines,
        ideals=ideals,
        kinds=tuple(dict.fromkeys(rows.sort_values("devices").level)) if by_shape else (),
        is_log_y=is_ideal or is_log,
        percent=percent,
    )
