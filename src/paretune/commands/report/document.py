"""A report as text, as Markdown, as CSV and as one HTML page with charts of plotly."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from paretune.core.result import Row, csv_text
from paretune.core.untrusted import markdown, printable
from paretune.presentation.page import as_html, chart_html, template
from paretune.presentation.text import aligned, markdown_table
from paretune.specification import metrics

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1")
"""Colours that colour-blind people can tell apart (Okabe and Ito, 2008), and a purple."""
_AXES = {
    metrics.COST_USD: "cost of a run (USD)",
    metrics.F1: "F1 (macro, validation)",
    "hours": "billed hours",
    "device_count": "devices",
    "batch": "global batch size (rows)",
}
ALL = "all runs"  # key of the totals of all


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
        rows = [{name: printable(it) if isinstance(it, str) else it for name, it in row.items()} for row in self.rows]
        return csv_text(list(rows[0]), rows)

    def note(self) -> str:
        """The note of its run: its subject, its first sentence, and where the rest is."""
        first = [text for section in self.sections for text in section.sentences][:1]
        return "\n\n".join([f"**{self.title}**: {self.about[0]}", *first, "Everything is in `report.html`."])

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
                yield from (written(f"{about}:"), tabled(table))
            if section.sentences:
                yield written("\n".join(f"- {sentence}" for sentence in section.sentences))

    def html(self) -> str:
        """One HTML page without outside references; a click on a heading sorts its table."""
        return template("paretune.commands.report", "report.html").render(report=self, chart_html=chart_html)


def scatter(
    frame: pd.DataFrame,
    columns: tuple[str, str],
    *,
    title: str,
    caption: str = "A point per run.",
    lines: Mapping[str, pd.Series] = MappingProxyType({}),
) -> Chart | None:
    """A point per row with both values, coloured by `series` and with `about` as its text; None without any.

    `lines` are further lines, y by x. All axes but that of F1 are logarithmic.
    """
    import plotly.express as px

    x, y = columns
    used = frame.dropna(subset=[x, y])
    if used.empty:
        return None
    used = used.assign(series=used.series.map(as_html), about=used.about.map(as_html))
    figure = px.scatter(
        used,
        x,
        y,
        color="series",
        symbol="series",
        color_discrete_sequence=_COLOURS,
        labels=_AXES,
        hover_name="about",
        hover_data={"series": False},
        opacity=0.8,
        log_x=True,
        log_y=y != metrics.F1,
        render_mode="svg",  # the other one is not in the script of our pages
    )
    for name, line in lines.items():
        drawn = {"color": "#808080", "dash": "dash"}  # a grey that is seen on light and dark pages
        figure.add_scatter(x=line.index, y=line, mode="lines", line=drawn, name=as_html(name), hoverinfo="name")
    if x in ("device_count", "batch"):
        figure.update_xaxes(tickvals=sorted(used[x].unique()))
    figure.update_layout(showlegend=True, legend_title_text="")
    return Chart(title=title, caption=caption, figure=figure)
