"""Objectives as text: names, units, and values with standard errors."""

from paretune.presentation.numbers import with_error
from paretune.studies.definition.objectives import OBJECTIVES
from paretune.studies.results.trials import Trial


def label(objective: str) -> str:
    """The name in words, such as training time."""
    return OBJECTIVES[objective].label if objective in OBJECTIVES else objective


def axis(objective: str) -> str:
    """Name and unit, for an axis or the header of a column."""
    unit = _unit(objective)
    return f"{label(objective)} ({unit})" if unit else label(objective)


def format_value(objective: str, value: float, error: float | None = None) -> str:
    """The value with its standard error and unit: 2.310 ± 0.032 USD; seconds become minutes and hours."""
    unit = _unit(objective)
    if unit == "s":
        size, unit = (3600, "h") if abs(value) >= 7200 else (60, "min") if abs(value) >= 120 else (1, "s")
        value, error = value / size, None if error is None else error / size
    return f"{with_error(value, error)} {unit}".strip()


def between(trial: Trial, objective: str) -> str:
    """A predicted value with the ends of its interval: 0.9130 (0.9080 to 0.9170)."""
    value = with_error(trial.values[objective])
    low, high = trial.intervals.get(objective, (None, None))
    return value if low is None or high is None else f"{value} ({with_error(low)} to {with_error(high)})"


def _unit(objective: str) -> str:
    return OBJECTIVES[objective].unit if objective in OBJECTIVES else ""
