"""CSV files of users: the header, and the lines with their numbers."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from paretune.core.errors import BadInput
from paretune.core.untrusted import LARGEST_TABLE, read_text

_HINT = "name another file"
Line = tuple[int, Sequence[str]]  # number of a line in its file, from 1, and its cells without spaces around them


def read_table(path: str | Path, *, must: str = "") -> tuple[list[str], list[Line]]:
    """Names of the columns, and the lines that have any text, see `read_text`; raises BadInput if it is no CSV."""
    text = read_text(path, LARGEST_TABLE, must=must, hint=_HINT)
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise BadInput([f"{must}{path} cannot be read as CSV ({error}): {_HINT}"]) from error
    return header, [line for line in lines if any(line[1])]
