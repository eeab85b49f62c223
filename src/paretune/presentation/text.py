"""Values as text (dollars, durations, values with their errors), and tables for a terminal."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

_TO_THE_MINUTE_S = 1800  # durations of at least this are rounded to the minute, those of a minute or more to the second
_IN_DAYS_S = 4 * 86_400  # durations of at least this are given in days and hours
_NUMBER = re.compile(r"[-+]? ?[\d,.]*\d(e[-+]\d+)?%?( ± \S+)?")
Format = str | Callable[[Any], str]
"""Format specification such as `,.2f`, or a function from the value to its text."""
Columns = Mapping[str, str | tuple[str, Format]]
"""Maps each header of a table to a column of a frame, or to a column and its format."""


def usd(value: float) -> str:
    """Format dollars to the cent, or below one dollar to three significant digits: 1,204.50 USD, 0.0123 USD."""
    return f"{dollars(value)} USD"


def dollars(value: float) -> str:
    """Format dollars as `usd` does, without the unit."""
    return plain(value, 3) if value and abs(value) < 1 else f"{value:,.2f}"


def limit_usd(value: float) -> str:
    """Format a limit in dollars, such as a worst case, as `usd` does, but rounded up: this many dollars cover it."""
    if not math.isfinite(value):
        return usd(value)
    digits = 2 if value >= 1 or value <= 0 else 2 - math.floor(math.log10(value))
    return usd(math.ceil(round(value * 10.0**digits, 6)) / 10.0**digits)


def with_error(value: float, error: float | None = None) -> str:
    """Format a value and its error to two digits of the error: 0.9130 ± 0.0049. Without an error, show four digits."""
    text = to_error(value, error)
    return f"{text} ± {error:,.{len(text.partition('.')[2])}f}" if error and math.isfinite(error) else text


def to_error(value: float, error: float | None = None) -> str:
    """Format the value as `with_error` does, without the error. If the error is 0, trailing zeros are left out: 0.8."""
    if not error or not math.isfinite(error):
        text = plain(value, 4)
        return text.rstrip("0").rstrip(".") if error == 0 and "." in text else text
    return f"{value:,.{min(max(0, 1 - math.floor(math.log10(error))), 12)}f}"


def plain(value: float, digits: int) -> str:
    """Format the value with at least this many significant digits: all digits before the point, and no exponent."""
    if not math.isfinite(value):
        return str(value)
    if not value:
        return "0"
    decimals = min(max(0, digits - 1 - math.floor(math.log10(abs(value)))), 12)
    return f"{value:,.{decimals}f}"


def duration(seconds: float) -> str:
    """Format a duration: 5 d 3 h, 18 h 17 m, 53 m, 6 m 30 s, 4.1 s.

    Half an hour or more is rounded to the minute, four days or more to the hour.
    """
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 59.95:
        return f"{plain(seconds, 2 if seconds < 10 else 3)} s"
    step = 3600 if seconds >= _IN_DAYS_S else 60 if seconds >= _TO_THE_MINUTE_S else 1
    whole = round(seconds / step) * step
    days = whole // 86_400 if whole >= _IN_DAYS_S else 0
    hours = whole // 3600 - 24 * days
    parts = [(days, "d"), (hours, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit that suits durations of about this length: the unit's length in seconds, and its name."""
    return (3600.0, "h") if seconds >= 7200 else (60.0, "min") if seconds >= 120 else (1.0, "s")


def texts(frame: "DataFrame", columns: Columns) -> "DataFrame":
    """Return columns of a frame as strings. Unknown values are empty, and empty columns are left out."""
    import pandas as pd

    table = pd.DataFrame(index=frame.index)
    for header, column in columns.items():
        name, form = (column, str) if isinstance(column, str) else column
        write = form if callable(form) else f"{{:{form}}}".format
        table[header] = ["" if pd.isna(value) else write(value) for value in frame[name]]
    return without_empty_columns(table)


def without_empty_columns(table: "DataFrame") -> "DataFrame":
    """Return a table of strings without the columns that are empty in all rows."""
    return table[[name for name in table if table[name].ne("").any()]]


def aligned(frame: "DataFrame | Mapping[str, Sequence[str]]") -> str:
    """Return a frame of strings as a table for a terminal, with columns of numbers aligned to the right."""
    columns = [[str(name), *map(str, cells)] for name, cells in frame.items()]
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
