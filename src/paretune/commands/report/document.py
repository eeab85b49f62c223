"""A report as text, as Markdown, as CSV and as one HTML page with charts of plotly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from operator import itemgetter
from typing import Any

import moocore
import pandas as pd

from paretune.core.result import csv_text
from paretune.core.untrusted import markdown, printable
from paretune.presentation.page import template
from paretune.presentation.table import Column, Table
from paretune.specification import metrics

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1")
"""Colours that colour-blind people can tell apart (Okabe and Ito, 2008), and a purple."""
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
_GREY, _GRID = "#808080", "rgba(128, 128, 128, 0.25)"  # both are seen on a light and on a dark page
_AXES = {
    metrics.COST_USD: "cost of a run (USD)",
    metrics.BILLABLE_SECONDS: "billed time",
    metrics.F1: "F1 (macro, validation)",
    "device_count": "devices",
    "batch": "global batch size (rows)",
}
_LOG_FROM = 8  # largest over smallest value from which an axis is logarithmic
_UNITS = ((7200.0, 3600.0, "h"), (180.0, 60.0, "min"), (0.0, 1.0, "s"))


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A plotly figure with its title and caption."""

    title: str
    caption: str
    figure: Any

    def html(self) -> str:
        """The figure as a part of a page that has plotly's script."""
        text: str = self.figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
        return text


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with tables (each with its caption), sentences and charts."""

    heading: str
    sentences: Sequence[str] = ()
    tables: Sequence[tuple[str, Table]] = ()
    charts: Sequence[Chart | None] = ()  # None has nothing to draw


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of `report`."""

    title: str
    about: Sequence[str]  # sentences on the number, origin and dates of the runs
    sections: Sequence[Section]
    rows: Sequence[dict[str, Any]]  # of report.csv, all with the same fields
    totals: Sequence[dict[str, Any]] = ()  # sums of dollars by study, month, ...; only of view=runs

    def csv(self) -> str:
        """The rows as CSV; unknown values are empty cells."""
        rows = [
            {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}
            for row in self.rows
        ]
        return csv_text([*rows[0]] if rows else ["run_id"], rows)

    def text(self) -> str:
        """The report for a terminal, without charts."""
        blocks = [" ".join(self.about)]
        for section in self.sections:
            blocks += [section.heading, *(f"{about}:\n{table.text()}" for about, table in section.tables)]
            blocks.append("\n".join(f"- {sentence}" for sentence in section.sentences))
        return "\n\n".join(filter(None, blocks))

    def markdown(self) -> str:
        """The report as Markdown, without charts."""
        blocks = [markdown(f"# {self.title}"), markdown(" ".join(self.about))]
        for section in self.sections:
            blocks.append(markdown(f"## {section.heading}"))
            for about, table in section.tables:
                blocks += [markdown(f"{about}:"), table.markdown()]
            blocks.append(markdown("\n".join(f"- {sentence}" for sentence in section.sentences)))
        return "\n\n".join(filter(None, blocks)) + "\n"

    def html(self) -> str:
        """One HTML page without outside references; a click on a heading sorts its table."""
        page = template("paretune.commands.report", "report.html").render(report=self)
        if not any(section.charts for section in self.sections):
            return page
        from plotly.offline import get_plotlyjs

        # The template would search plotly's script for secrets.
        return page.replace("<!-- plotly -->", f"<script>{get_plotlyjs()}</script>", 1)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame in Python's own types; unknown values are None."""
    return [
        {
            str(name): None if pd.isna(value) else getattr(value, "item", lambda value=value: value)()
            for name, value in row
        }
        for row in (zip(frame.columns, values, strict=True) for values in frame.itertuples(index=False, name=None))
    ]


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Any]) -> Table:
    """A table with a row per mapping, without empty columns; `columns` is header to field, or to field and format."""
    listed: list[Column[Mapping[str, Any]]] = []
    for header, column in columns.items():
        name, form = (column, "") if isinstance(column, str) else column
        listed.append(Column(header, itemgetter(name), form))
    return Table.of(listed, rows).without_empty_columns()


def scatter(
    frame: pd.DataFrame,
    columns: tuple[str, str],
    *,
    title: str,
    caption: str,
    curves: Mapping[str, pd.Series] | None = None,
    fronts: Mapping[str, pd.DataFrame] | None = None,
    is_joined: bool = False,
) -> Chart | None:
    """A point per row with both values; None without any.

    Rows are named by `series`, and a point shows `about`. The title tells the origin of the runs. Further
    lines are `curves`, y by x, and the fronts of rows by their names, where F1 is better if higher, everything else if
    lower. `is_joined` joins the means of each series.
    """
    x, y = columns
    used = frame.dropna(subset=[x, y])
    if used.empty:
        return None
    import plotly.graph_objects as go

    size, unit = (
        next((size, unit) for least, size, unit in _UNITS if used[y].max() >= least)
        if y == metrics.BILLABLE_SECONDS
        else (1.0, "")
    )
    figure = go.Figure()
    for index, (name, series) in enumerate(used.groupby("series", sort=False)):
        colour, label = _COLOURS[index % len(_COLOURS)], _text(str(name))
        look: dict[str, Any] = {"name": label, "legendgroup": label, "hoverinfo": "text"}
        marker = {"color": colour, "symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 8, "opacity": 0.8}
        heights, texts = (series[y] / size).tolist(), series.about.map(_text).tolist()
        figure.add_scatter(x=series[x].tolist(), y=heights, mode="markers", marker=marker, text=texts, **look)
        if is_joined:
            _add_line(figure, (series[y] / size).groupby(series[x]).mean(), label, colour, is_named=False)
    for name, curve in (curves or {}).items():
        _add_line(figure, curve / size, _text(name), _GREY, dash="dot")
    for name, rows in (fronts or {}).items():
        points = rows[[x, y]].dropna()
        maximise = (False, y == metrics.F1)
        is_best = moocore.is_nondominated(points, maximise=maximise, keep_weakly=True) if len(points) else slice(0)
        best = points[is_best].sort_values([x, y])
        _add_line(figure, best.set_index(x)[y] / size, _text(name), _GREY, dash="dash", shape="hv")
    layout = {"gridcolor": _GRID, "zerolinecolor": _GRID, "linecolor": _GREY}
    figure.update_xaxes(title=_AXES[x], **layout, **_scale(used[x], x))
    figure.update_yaxes(title=f"{_AXES[y]} ({unit})" if unit else _AXES[y], **layout, **_scale(used[y], y))
    legend = {"orientation": "h", "yanchor": "top", "y": -0.18}
    space = {"l": 60, "r": 20, "t": 20, "b": 60}
    clear = "rgba(0, 0, 0, 0)"
    colours = {"paper_bgcolor": clear, "plot_bgcolor": clear, "font_color": _GREY, "template": "none"}
    colours["modebar_bgcolor"] = clear
    figure.update_layout(height=460, margin=space, legend=legend, showlegend=True, **colours)
    return Chart(title=title, caption=caption, figure=figure)


def _add_line(figure: Any, line: pd.Series, name: str, colour: str, *, is_named: bool = True, **look: str) -> None:
    also = {"name": name, "legendgroup": name, "showlegend": is_named, "hoverinfo": "name"}
    figure.add_scatter(
        x=line.index.tolist(), y=line.tolist(), mode="lines", line={"color": colour, "width": 1.5, **look}, **also
    )


def _scale(values: pd.Series, name: str) -> dict[str, Any]:
    """A logarithmic axis for devices, batches and wide ranges, else a linear one."""
    ticks = sorted(values.unique().tolist())
    if name in ("device_count", "batch"):
        return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,.0f}" for tick in ticks]}
    return {"type": "log"} if ticks[0] > 0 and ticks[-1] / ticks[0] > _LOG_FROM else {"type": "linear"}


def _text(text: str) -> str:
    """The text for plotly, which reads some HTML tags."""
    return escape(printable(text))
