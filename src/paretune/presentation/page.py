"""HTML pages: templates that share one style, and the tables in them."""

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from paretune.core.text_table import text_table
from paretune.core.untrusted import printable


class Cell(NamedTuple):
    """What a cell says, and the number that its column is sorted by."""

    text: str
    sort_by: float


class Link(NamedTuple):
    """What a cell says, and the address, of http or https, that it leads to."""

    text: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text: a column in `right` is aligned right, the last one may break, rows in `shaded` are blue."""

    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell | Link]]
    right: Collection[int] = ()
    shaded: Set[int] = frozenset()

    def filled(self) -> "Table":
        """The same without columns whose cells are all empty."""
        kept = [place for place in range(len(self.head)) if any(text_of(row[place]) for row in self.rows)]
        return Table(
            head=[self.head[place] for place in kept],
            rows=[[row[place] for place in kept] for row in self.rows],
            right=[new for new, place in enumerate(kept) if place in self.right],
            shaded=self.shaded,
        )

    def text(self) -> str:
        """For a terminal."""
        rows = [[text_of(cell) for cell in row] for row in self.rows]
        return text_table(self.head, rows, {self.head[place] for place in self.right})

    def markdown(self) -> str:
        """As Markdown."""
        line = ["---:" if place in self.right else "---" for place in range(len(self.head))]
        rows = [[text_of(cell).replace("|", "\\|") for cell in row] for row in self.rows]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in (list(self.head), line, *rows))


def text_of(cell: str | Cell | Link) -> str:
    """What a cell says."""
    return cell if isinstance(cell, str) else cell.text


def _shown(value: object) -> object:
    """What a page says in the place of a value: of a text, other people's names too, nothing that turns or hides it."""
    if isinstance(value, Markup):
        return Markup(printable(value))  # noqa: S704  # of our own templates and pictures, with texts escaped
    return printable(value) if isinstance(value, str) else value


@cache
def template(package: str, name: str) -> jinja2.Template:
    """The template `name` of a package; it may include `style.css` and import `macros.html` of this one."""
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(one, "") for one in (package, "paretune.presentation")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    ).get_template(name)
