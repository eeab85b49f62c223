"""Objectives as text: names, units, and values with their standard errors."""

import math

from paretune.studies.definition.objectives import OBJECTIVES
from paretune.studies.results.trials import Trial


def label(objective: str) -> str:
    """Its name in words, such as training time."""
    return OBJECTIVES[objective].label if objective in OBJECTIVES else objective


def axis(objective: str) -> str:
    """Name and unit, as an axis or the head of a column has them."""
    unit = _unit(objective)
    return f"{label(objective)} ({unit})" if unit else label(objective)


def format_value(objective: str, value: float, error: float | None = None) -> str:
    """The value with its standard error and unit: 2.310 ± 0.032 USD; seconds become minutes and hours."""
    unit = _unit(objective)
    if unit == "s":
        size, unit = (3600, "h") if abs(value) >= 7200 else (60, "min") if abs(value) >= 120 else (1, "s")
        value, error = value / size, None if error is None else error / size
    return f"{with_error(value, error)} {unit}".strip()


def usd(value: float) -> str:
    """Dollars to the cent, or to three digits where there is less than a dollar: 1,204.50 USD, 0.0123 USD."""
    if value and abs(value) < 1:
        return f"{_plain(value, 3)} USD"
    return f"{value:,.2f} USD"


def with_error(value: float, error: float | None = None) -> str:
    """The value to two digits of its error: 0.9130 ± 0.0049; to four digits where there is none."""
    if not error or not math.isfinite(error):
        return _plain(value, 4)
    decimals = min(max(0, 1 - math.floor(math.log10(error))), 12)
    return f"{value:,.{decimals}f} ± {error:,.{decimals}f}"


def between(trial: Trial, objective: str) -> str:
    """A predicted value with the ends of its interval: 0.9130 (0.9080 to 0.9170)."""
    said = with_error(trial.values[objective])
    low, high = trial.intervals.get(objective, (None, None))
    return said if low is None or high is None else f"{said} ({with_error(low)} to {with_error(high)})"


def _unit(objective: str) -> str:
    return OBJECTIVES[objective].unit if objective in OBJECTIVES else ""


def _plain(value: float, digits: int) -> str:
    """So many digits, without an exponent."""
    if not value:
        return "0"
    decimals = min(max(0, digits - 1 - math.floor(math.log10(abs(value)))), 12)
    return f"{value:,.{decimals}f}"
