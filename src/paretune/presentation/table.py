"""Tables: declared once by their columns, shown in a terminal, in Markdown, on a page, as CSV and as JSON rows."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from paretune.core.result import Row, csv_text
from paretune.core.untrusted import markdown

if TYPE_CHECKING:
    from pandas import DataFrame

Item = TypeVar("Item")
Value = str | int | float | Decimal | None  # A cell's content. None means that it is not known; the cell is empty then.


class Cell(NamedTuple):
    """A text, the value behind it (files hold it, pages sort by it), and the http(s) address that it links to."""

    text: str
    value: Value = None
    address: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it holds a number, which is aligned right."""
        return isinstance(self.value, (int, float, Decimal)) and not isinstance(self.value, bool)

    @property
    def sort_value(self) -> Value:
        """The number that a page sorts by, or None if the text itself is that number."""
        return self.value if self.is_number and self.text != str(self.value) else None


@dataclass(frozen=True)
class Column(Generic[Item]):
    """One column: its header, the value or finished cell of an item, and how a value is written."""

    header: str
    value: Callable[[Item], Value | Cell]
    format: str | Callable[[Any], str] = ""
    """Format specification such as `,.2f`, or a function from the value to its text. Files and JSON rows hold the value
    itself."""

    def cell(self, item: Item) -> Cell:
        """The cell of one item."""
        value = self.value(item)
        if isinstance(value, Cell):
            return value
        if value is None:
            return Cell("")
        return Cell(self.format(value) if callable(self.format) else format(value, self.format), value)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Headers and rows of cells. Columns with a number are aligned right; rows in `shaded` are coloured on a page."""

    headers: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    shaded: Set[int] = frozenset()

    @classmethod
    def of(cls, columns: Sequence[Column[Item]], items: Iterable[Item], *, shaded: Set[int] = frozenset()) -> "Table":
        """The table with one row for each item."""
        cells = [[column.cell(item) for column in columns] for item in items]
        return cls(headers=[column.header for column in columns], cells=cells, shaded=shaded)

    def without_empty_columns(self) -> "Table":
        """The same table without columns that have no text in any row."""
        filled = [number for number in range(len(self.headers)) if any(row[number].text for row in self.cells)]
        return Table(
            headers=[self.headers[number] for number in filled],
            cells=[[row[number] for number in filled] for row in self.cells],
            shaded=self.shaded,
        )

    @property
    def right(self) -> list[bool]:
        """Whether each column is aligned right."""
        return [any(row[number].is_number for row in self.cells) for number in range(len(self.headers))]

    def text(self) -> str:
        """The table for a terminal, without empty columns, and without a header line if all headers are empty."""
        table = self.without_empty_columns()
        lines = [[cell.text for cell in row] for row in table.cells]
        if any(table.headers):
            lines.insert(0, list(table.headers))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                text.rjust(width) if is_right else text.ljust(width)
                for text, width, is_right in zip(line, widths, table.right, strict=True)
            ).rstrip()
            for line in lines
        )

    def markdown(self) -> str:
        """The table in Markdown, which nothing in a cell can leave."""
        texts = [self.headers, *([cell.text for cell in row] for row in self.cells)]
        head, *rows = ([" ".join(markdown(text).replace("|", "\\|").split()) for text in row] for row in texts)
        rule = ["---:" if is_right else "---" for is_right in self.right]
        return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])

    def csv(self) -> str:
        """The table as CSV: values in full, decimals without an exponent, empty cells for what is not known."""
        exact = [
            [_all_digits(cell.value) if isinstance(cell.value, Decimal) else cell.value for cell in row]
            for row in self.cells
        ]
        return csv_text(self.headers, [dict(zip(self.headers, row, strict=True)) for row in exact])

    def rows(self) -> list[Row]:
        """The rows for JSON: header to value, decimals as floats, None for what is not known."""
        return [
            {
                header: float(cell.value) if isinstance(cell.value, Decimal) else cell.value
                for header, cell in zip(self.headers, row, strict=True)
            }
            for row in self.cells
        ]


def _all_digits(number: Decimal) -> str:
    """The decimal without an exponent and without zeros at its end."""
    digits = f"{number:f}"
    return (digits.rstrip("0").rstrip(".") if "." in digits else digits) or "0"


def aligned(frame: "DataFrame") -> str:
    """A frame of texts for a terminal: columns of numbers to the right."""
    columns = [[str(name), *map(str, frame[name])] for name in frame]
    widths = [max(map(len, column)) for column in columns]
    right = [all(text[:1] in "-0123456789" for text in column[1:]) for column in columns]
    lines = zip(*columns, strict=True)
    return "\n".join(
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )
