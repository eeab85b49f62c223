"""A report: sections of tables, sentences and pictures, as text, as Markdown and as one HTML page."""

from collections.abc import Sequence
from dataclasses import dataclass

from paretune.core.result import csv_text
from paretune.core.untrusted import markdown, printable
from paretune.presentation.page import template
from paretune.presentation.picture import Picture
from paretune.presentation.table import Table


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with sentences, tables (each with its caption) and pictures."""

    heading: str
    sentences: Sequence[str] = ()
    tables: Sequence[tuple[str, Table]] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of `report`."""

    title: str
    about: Sequence[str]  # sentences on the number, origin and dates of the runs
    sections: Sequence[Section]
    rows: Sequence[dict[str, object]]  # of report.csv, all with the same fields
    totals: Sequence[dict[str, object]] = ()  # rows of totals.csv; may be empty

    @property
    def pictures(self) -> list[Picture]:
        """All pictures, in order."""
        return [picture for section in self.sections for picture in section.pictures]

    def csv(self) -> str:
        """Return the rows as CSV; unknown values are empty cells."""
        return _csv(self.rows) if self.rows else csv_text(["run_id"], [])

    def tables(self) -> dict[str, str]:
        """Return the name of each CSV file of the report with its text."""
        files = {"report.csv": self.csv()}
        return files | ({"totals.csv": _csv(self.totals)} if self.totals else {})

    def text(self) -> str:
        """Return the report for a terminal, without pictures."""
        blocks = [" ".join(self.about)] if self.about else []
        for section in self.sections:
            tables = [f"{about}:\n{table.text()}" for about, table in section.tables]
            blocks.append("\n\n".join([section.heading, *tables]))
            if section.sentences:
                blocks.append("\n".join(f"- {sentence}" for sentence in section.sentences))
        return "\n\n".join(blocks)

    def markdown(self) -> str:
        """Return the report as Markdown, with the pictures as files beside it."""
        blocks = [markdown(f"# {self.title}"), markdown(" ".join(self.about))]
        for section in self.sections:
            blocks.append(markdown(f"## {section.heading}"))
            for about, table in section.tables:
                blocks += [markdown(f"{about}:"), table.markdown()]
            blocks.append(markdown("\n".join(f"- {sentence}" for sentence in section.sentences)))
            for picture in section.pictures:
                title = markdown(picture.title)
                blocks += [f"### {title}", f"![{title}]({picture.name}.png)", markdown(picture.caption)]
        return "\n\n".join(filter(None, blocks)) + "\n"

    def html(self) -> str:
        """Return one HTML page without outside references; a click on a heading sorts its table."""
        return template("paretune.commands.report", "report.html").render(report=self)


def _csv(rows: Sequence[dict[str, object]]) -> str:
    """The rows, all with the fields of the first one, as CSV; texts are `printable`."""
    printable_rows = [
        {printable(name): printable(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]
    return csv_text(list(printable_rows[0]), printable_rows)
