"""Tables of texts: pandas frames, for a terminal and in Markdown; `macros.html` shows them on pages."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paretune.core.untrusted import markdown

if TYPE_CHECKING:
    from pandas import DataFrame

_NUMBER = re.compile(r"[-+]? ?[\d,.]*\d(e[-+]\d+)?%?( ± \S+)?")
Format = str | Callable[[Any], str]
"""Format specification such as `,.2f`, or a function from the value to its text."""


def texts(frame: "DataFrame", columns: Mapping[str, str | tuple[str, Format]]) -> "DataFrame":
    """Columns of a frame as texts, without those that would be empty; what is not known is an empty text.

    `columns` is header to column, or to column and format.
    """
    import pandas as pd

    table = pd.DataFrame(index=frame.index)
    for header, column in columns.items():
        name, form = (column, str) if isinstance(column, str) else column
        write = form if callable(form) else f"{{:{form}}}".format
        table[header] = ["" if pd.isna(value) else write(value) for value in frame[name]]
    return table.loc[:, table.ne("").any()]


def aligned(frame: "DataFrame | Mapping[str, Sequence[str]]") -> str:
    """A frame or columns of texts for a terminal: columns of numbers to the right."""
    columns = [[str(name), *map(str, frame[name])] for name in frame]
    widths = [max(map(len, column)) for column in columns]
    right = [all(not text or _NUMBER.fullmatch(text) for text in column[1:]) for column in columns]
    lines = zip(*columns, strict=True)
    return "\n".join(
        "  ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def markdown_table(frame: "DataFrame") -> str:
    """A frame of texts in Markdown, which nothing in a cell can leave."""
    lines = [
        [" ".join(markdown(str(text)).replace("|", "\\|").split()) for text in row]
        for row in (frame, *frame.to_numpy())
    ]
    lines.insert(1, ["---"] * frame.shape[1])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
