"""Results of commands and of the Python API: rows with named fields, a text for the terminal, one JSON document."""

import csv
import io
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from paretune.core.errors import BadInput, JobFailed, ParetuneError

if TYPE_CHECKING:
    from pandas import DataFrame

Row = dict[str, object]  # field name to value; None if a value is not known
_FORMULA = re.compile("[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-].")  # source: OWASP, "CSV Injection" (read 2026-11-22)
_MOST_ROWS = 60  # rows that a notebook shows


class Result(ABC):
    """Base of the results of the Python API: `str` is what a command prints, `to_dict` what it prints with `--json`."""

    exit_code = 0  # the exit code of the command

    @property
    @abstractmethod
    def title(self) -> str:
        """The subject of the rows in one line."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """Return one row per job, estimate, trial or price. All rows have the same fields."""

    @abstractmethod
    def to_dict(self) -> dict[str, object]:
        """Return the result as JSON values: objects, lists, strings, numbers, true, false and null."""

    def notes(self) -> list[str]:
        """Return sentences about the numbers: where they come from and what is missing."""
        return []

    def summary(self) -> Mapping[str, str]:
        """Return the parts of a single result, by headings such as `worst case`; empty if rows are shown instead."""
        return {}

    def __str__(self) -> str:
        """Return title, summary and notes as text."""
        summary = self.summary()
        width = max(map(len, summary), default=0)
        lines = [f"  {name:<{width}}  {text}" for name, text in summary.items()]
        return "\n".join(["", self.title, *lines, "", *(f"  {note}" for note in self.notes())]).rstrip()

    def to_frame(self) -> "DataFrame":
        """Return the rows as a pandas DataFrame. Unknown values are NaN or None."""
        import pandas

        return pandas.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        frame = self._shown().dropna(axis="columns", how="all").fillna(float("nan"))  # pandas 2 would print None
        table = frame.to_html(index=False, escape=True, na_rep="", border=0, max_rows=_MOST_ROWS)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes())
        return f"<p><strong>{escape(self.title)}</strong></p>{table}{notes}"

    def _shown(self) -> "DataFrame":
        import pandas

        summary = list(self.summary().items())
        return pandas.DataFrame(summary, columns=["", "value"]) if summary else self.to_frame()


@dataclass(frozen=True, kw_only=True)
class CommandOutput:
    """The output of a command that does not return a `Result`: text, or `document` with `--json`.

    An empty string is not printed. `exit_code` is that of the command: not 0 after a failed check, for example.
    """

    text: str = ""
    document: Mapping[str, object] = field(default_factory=dict)
    exit_code: int = 0

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, object]:
        """Return the JSON document."""
        return dict(self.document)


def error_document(error: BaseException, message: str, exit_code: int) -> dict[str, object]:
    """Return the document that `--json` prints when a command fails: `{"error": {class, message, faults, exit_code}}`.

    A failed job adds `job_name`, `reason`, `cause`, `log_tail` and `where`, the location of its whole log.
    """
    details: dict[str, object] = {
        "class": type(error).__name__ if isinstance(error, (ParetuneError, OSError)) else "Interrupted",
        "message": message,
        "faults": list(error.faults) if isinstance(error, BadInput) else [],
        "exit_code": exit_code,
    }
    if isinstance(error, JobFailed):
        details |= {"job_name": error.job_name, "reason": error.reason, "cause": error.cause}
        details |= {"log_tail": list(error.log_tail), "where": error.where}
    return {"error": details}


def as_json(value: object) -> object:
    """Convert the value to JSON's types. Numbers that are not finite become null."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, inf_nan_mode="null", fallback=str)


def rows_of(frame: "DataFrame") -> list[Row]:
    """Return the rows of a DataFrame, with its column names as strings."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return a CSV with a header and one line per row; None and NaN are empty cells.

    An apostrophe precedes cells that a spreadsheet would run as a formula.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writerow({name: _as_cell(name) for name in columns})
    writer.writerows({name: _as_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _as_cell(value: object) -> object:
    if isinstance(value, float) and math.isnan(value):
        return None
    is_formula = isinstance(value, str) and _FORMULA.match(value) and isinstance(value_of(value), str)
    return f"'{value}" if is_formula else value


def _of_cell(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell[1:]) else cell


def read_rows(text: str) -> list[Row]:
    """Read the rows of a CSV. Numbers and booleans are converted, empty cells are None, and a run_id stays a string."""
    return [
        {_of_cell(name): (cell or None) if name == "run_id" else value_of(_of_cell(cell)) for name, cell in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]


def value_of(text: str) -> object:
    """Convert a string to a boolean or a finite number, and an empty one to None; return any other string unchanged."""
    if text in ("", "true", "True", "false", "False"):
        return None if not text else text.lower() == "true"
    if "_" in text:  # Python would read 2024_01 as a number
        return text
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    return text
