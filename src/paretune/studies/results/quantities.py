"""Objectives as text: names, units, and values with their standard errors."""

import math

from paretune.spec import metrics

_NAMES = {
    metrics.COST_USD: ("cost", "USD"),
    metrics.TRAIN_SECONDS: ("training time", "s"),
    metrics.JOB_SECONDS: ("job time", "s"),
    metrics.BILLABLE_SECONDS: ("billed time", "s"),
    metrics.F1: ("F1", ""),
    metrics.THROUGHPUT_SAMPLES: ("throughput", "samples/s"),
    metrics.PERPLEXITY: ("perplexity", ""),
    metrics.EVAL_LOSS: ("evaluation loss", ""),
}
QUALITIES = (metrics.F1, metrics.PERPLEXITY, metrics.EVAL_LOSS)
"""Objectives that measure the model, the most informative first."""
TIMES = (metrics.TRAIN_SECONDS, metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS, metrics.THROUGHPUT_SAMPLES)
"""Objectives that measure how fast a job is."""


def label(objective: str) -> str:
    """Its name in words, such as training time."""
    return _NAMES.get(objective, (objective, ""))[0]


def axis(objective: str) -> str:
    """Name and unit, as an axis or the head of a column has them."""
    name, unit = _NAMES.get(objective, (objective, ""))
    return f"{name} ({unit})" if unit else name


def format_value(objective: str, value: float, error: float | None = None) -> str:
    """The value with its standard error and unit: 2.310 ± 0.032 USD; seconds become minutes and hours."""
    unit = _NAMES.get(objective, ("", ""))[1]
    if unit == "s":
        size, unit = next(
            ((size, name) for size, name in ((3600, "h"), (60, "min")) if abs(value) >= 2 * size), (1, "s")
        )
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


def _plain(value: float, digits: int) -> str:
    """So many digits, without an exponent."""
    if not value:
        return "0"
    decimals = min(max(0, digits - 1 - math.floor(math.log10(abs(value)))), 12)
    return f"{value:,.{decimals}f}"
