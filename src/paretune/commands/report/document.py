"""A report as text, as Markdown, as CSV and as one HTML page with charts of plotly."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import pandas as pd

from paretune.core import pareto
from paretune.core.result import Row, csv_text
from paretune.core.untrusted import markdown, printable
from paretune.presentation.chart import chart_html
from paretune.presentation.numbers import usd
from paretune.presentation.page import template
from paretune.presentation.table import aligned, markdown_table
from paretune.specification import metrics

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1")
"""Colours that colour-blind people can tell apart (Okabe and Ito, 2008), and a purple."""
_GREY = "#808080"  # is seen on a light and on a dark page
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")
_AXES = {
    metrics.COST_USD: "cost of a run (USD)",
    metrics.BILLABLE_SECONDS: "billed hours",
    metrics.F1: "F1 (macro, validation)",
    "device_count": "devices",
    "batch": "global batch size (rows)",
}
ALL = "all runs"  # key of the totals of all
_LOG_FROM = 8  # largest over smallest value from which an axis is logarithmic


class Chart(NamedTuple):
    """A figure of plotly with its title and caption."""

    title: str
    caption: str
    figure: Any


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with tables of texts (each with its caption), sentences and charts."""

    heading: str
    sentences: Sequence[str] = ()
    tables: Sequence[tuple[str, pd.DataFrame]] = ()
    charts: Sequence[Chart | None] = ()  # None has nothing to draw
    has_tests: bool = False  # whether all tables but the first are tests of what that one shows

    def findings(self) -> list[str]:
        """Its sentences, and the rows of its tests, each with the test's caption."""
        tests = self.tables[1:] if self.has_tests else ()
        return [*self.sentences, *(f"{about}: {' '.join(row)}" for about, table in tests for row in table.to_numpy())]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of `report`."""

    title: str
    about: Sequence[str]  # sentences on the number, origin and dates of the runs
    sections: Sequence[Section]
    rows: Sequence[Row]  # of report.csv, all with the same fields
    totals: Sequence[Row] = ()  # sums of dollars by study, month, ...; only of view=runs

    def csv(self) -> str:
        """The rows as CSV; unknown values are empty cells."""
        rows = [
            {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}
            for row in self.rows
        ]
        return csv_text([*rows[0]] if rows else ["run_id"], rows)

    def note(self) -> str:
        """The sums, or the first sentence, and where the rest is."""
        lines = [] if self.totals else [text for section in self.sections for text in section.sentences][:1]
        for row in self.totals:
            if row["by"] == ALL:
                spent = "unknown dollars" if row["cost_usd"] is None else usd(float(str(row["cost_usd"])))
                lines.append(f"{row['jobs']} runs, {row['origin']}: {spent}")
        return "\n\n".join([*(f"**{line}**" for line in lines), f"{self.title}: everything is in `report.html`."])

    def text(self) -> str:
        """The report for a terminal, without charts."""
        return "\n\n".join(self._blocks("", aligned, str))

    def markdown(self) -> str:
        """The report as Markdown, without charts."""
        return "\n\n".join([markdown(f"# {self.title}"), *self._blocks("## ", markdown_table, markdown)]) + "\n"

    def _blocks(self, mark: str, tabled: Callable[[pd.DataFrame], str], written: Callable[[str], str]) -> Iterator[str]:
        yield written(" ".join(self.about))
        for section in self.sections:
            yield written(f"{mark}{section.heading}")
            for about, table in section.tables:
                yield written(f"{about}:")
                yield tabled(table)
            if section.sentences:
                yield written("\n".join(f"- {sentence}" for sentence in section.sentences))

    def html(self) -> str:
        """One HTML page without outside references; a click on a heading sorts its table."""
        page = template("paretune.commands.report", "report.html").render(report=self, chart_html=chart_html)
        if not any(section.charts for section in self.sections):
            return page
        from plotly.offline import get_plotlyjs

        # The template would search plotly's script for secrets.
        return page.replace("<!-- plotly -->", f"<script>{get_plotlyjs()}</script>", 1)


def scatter(
    frame: pd.DataFrame,
    columns: tuple[str, str],
    *,
    title: str,
    caption: str = "A point per run; lines join the means.",
    lines: Mapping[str, pd.Series] | None = None,
    fronts: Mapping[str, pd.DataFrame] | None = None,
    joins: bool = False,
) -> Chart | None:
    """A point per row with both values; None without any.

    Rows are named by `series`, and a point shows `about`. The title tells the origin of the runs. Further lines are
    `lines`, y by x, and the fronts of rows by their names. `joins` joins the means of each series.
    """
    import plotly.graph_objects as go

    x, y = columns
    used = frame.dropna(subset=[x, y])
    if used.empty:
        return None
    figure, size = go.Figure(), 3600.0 if y == metrics.BILLABLE_SECONDS else 1.0

    def draw(
        name: str, line: pd.Series, colour: str, *, dash: str = "solid", shape: str = "linear", **group: Any
    ) -> None:
        look = {"color": colour, "dash": dash, "shape": shape}
        x, y = line.index.tolist(), (line / size).tolist()
        figure.add_scatter(x=x, y=y, mode="lines", line=look, name=_text(name), hoverinfo="name", **group)

    for index, (name, series) in enumerate(used.groupby("series", sort=False)):
        group = {"legendgroup": str(name)}
        colour = _COLOURS[index % len(_COLOURS)]
        figure.add_scatter(
            x=series[x].tolist(),
            y=(series[y] / size).tolist(),
            mode="markers",
            marker={"color": colour, "symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 8, "opacity": 0.8},
            name=_text(str(name)),
            text=series.about.map(_text).tolist(),
            hoverinfo="text",
            **group,
        )
        if joins:
            draw(str(name), series.groupby(x)[y].mean(), colour, showlegend=False, **group)
    for name, line in (lines or {}).items():
        draw(name, line, _GREY, dash="dot")
    for name, rows in (fronts or {}).items():
        best = rows[on_front(rows, x, y) == True].sort_values([x, y])  # noqa: E712  # None is unknown
        draw(name, best.set_index(x)[y], _GREY, dash="dash", shape="hv")
    for update, name in ((figure.update_xaxes, x), (figure.update_yaxes, y)):
        values = used[name]
        is_log = values.min() > 0 and (name in ("device_count", "batch") or values.max() > _LOG_FROM * values.min())
        update(title={"text": _AXES[name]}, type="log" if is_log else "linear")
        if name in ("device_count", "batch"):
            update(tickvals=sorted(values.unique().tolist()))
    figure.update_layout(showlegend=True)
    return Chart(title=title, caption=caption, figure=figure)


def on_front(frame: pd.DataFrame, x: str, y: str) -> pd.Series:
    """Whether no other row is as low in x and as good in y (F1 is better if higher); None where one is unknown."""
    marks = pd.Series(None, frame.index, dtype=object)
    points = frame[[x, y]].dropna()
    marks[points.index] = pareto.front(points.to_numpy().tolist(), maximise=(False, y == metrics.F1))
    return marks


def _text(text: str) -> str:
    """The text for plotly, which reads some HTML tags."""
    return escape(printable(text))
