"""A report as text, as a page and as CSV: sentences, and tables of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from paretune.core.result import Row, csv_text
from paretune.core.untrusted import markdown, printable
from paretune.presentation.page import template
from paretune.presentation.text import aligned

ALL = "all runs"  # key of the totals of all


class Section(NamedTuple):
    """A table of texts with its heading, and sentences below it."""

    heading: str
    table: pd.DataFrame
    sentences: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of `report`."""

    title: str
    about: Sequence[str]  # sentences on the number, origin and dates of the runs
    sections: Sequence[Section]
    rows: Sequence[Row]  # of report.csv, all with the same fields
    totals: Sequence[Row] = ()  # sums of dollars by study, month, ...; only of view=runs

    @property
    def findings(self) -> list[str]:
        """The sentences of all sections."""
        return [text for section in self.sections for text in section.sentences]

    def csv(self) -> str:
        """The rows as CSV; unknown values are empty cells."""
        rows = [{name: printable(it) if isinstance(it, str) else it for name, it in row.items()} for row in self.rows]
        return csv_text(list(rows[0]), rows)

    def note(self) -> str:
        """The note of its run: its subject, its first sentence, and where the rest is."""
        lines = [f"**{self.title}**: {self.about[0]}", *self.findings[:1], "Everything is in `report.html`."]
        return markdown("\n\n".join(lines))

    def markdown(self) -> str:
        """The text as a block of code, which no name in it can leave."""
        return markdown(f"# {self.title}\n\n") + "".join(f"    {line}\n" for line in markdown(str(self)).splitlines())

    def html(self) -> str:
        """The report as a page of its own, whose tables a click sorts."""
        return template("paretune.commands.report", "report.html").render(report=self)

    def __str__(self) -> str:
        blocks = [" ".join(self.about)]
        for section in self.sections:
            blocks += [f"{section.heading}:", aligned(section.table), *(f"- {text}" for text in section.sentences)]
        return "\n\n".join(blocks)
