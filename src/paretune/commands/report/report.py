"""A report: sections of tables, sentences and pictures, as text, as Markdown and as one HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass

from paretune.core.result import csv_text
from paretune.core.untrusted import printable
from paretune.presentation.page import template
from paretune.presentation.picture import Picture
from paretune.presentation.table import Table


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what stands below it: sentences, then tables by what they show, then pictures."""

    heading: str
    sentences: Sequence[str] = ()
    tables: Sequence[tuple[str, Table]] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """What `report` found.

    Attributes:
        about: sentences on which runs these are, and from when.
        rows: what report.csv holds, all with the same fields.
        totals: what totals.csv holds, likewise; empty where there is none.
    """

    title: str
    about: Sequence[str]
    sections: Sequence[Section]
    rows: Sequence[dict[str, object]]
    totals: Sequence[dict[str, object]] = ()

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, in their order."""
        return [picture for section in self.sections for picture in section.pictures]

    def csv(self) -> str:
        """The rows as CSV; what is not known is an empty cell."""
        return _csv(self.rows) if self.rows else csv_text(["run_id"], [])

    def tables(self) -> dict[str, str]:
        """Name of each file of the report to its CSV."""
        files = {"report.csv": self.csv()}
        return files | ({"totals.csv": _csv(self.totals)} if self.totals else {})

    def text(self) -> str:
        """For a terminal: without the pictures."""
        blocks = [" ".join(self.about)] if self.about else []
        for section in self.sections:
            tables = [f"{about}:\n{table.text()}" for about, table in section.tables]
            blocks.append("\n\n".join([section.heading, *tables]))
            if section.sentences:
                blocks.append("\n".join(f"- {sentence}" for sentence in section.sentences))
        return "\n\n".join(blocks)

    def markdown(self) -> str:
        """With the pictures as files beside it."""
        blocks = [f"# {self.title}", " ".join(self.about)]
        for section in self.sections:
            blocks.append(f"## {section.heading}")
            for about, table in section.tables:
                blocks += [f"{about}:", table.markdown()]
            blocks += ["\n".join(f"- {sentence}" for sentence in section.sentences)] if section.sentences else []
            for picture in section.pictures:
                blocks += [f"### {picture.title}", f"![{picture.title}]({picture.name}.png)", picture.caption]
        return printable("\n\n".join(filter(None, blocks)) + "\n")

    def html(self) -> str:
        """One page that refers to nothing outside; its tables are sorted by a click on a heading."""
        return template("paretune.commands.report", "report.html").render(report=self)


def _csv(rows: Sequence[dict[str, object]]) -> str:
    """The rows, all with the fields of the first one, as CSV; texts are `printable`."""
    shown = [
        {printable(name): printable(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]
    return csv_text(list(shown[0]), shown)
