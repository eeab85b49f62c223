"""Values as text: dollars, durations, values with their errors."""

import math

_TO_THE_MINUTE_S = 1800  # durations from here on are rounded to the minute, shorter ones to the second


def usd(value: float) -> str:
    """Dollars to the cent, or to three digits below one dollar: 1,204.50 USD, 0.0123 USD."""
    return f"{dollars(value)} USD"


def dollars(value: float) -> str:
    """Dollars as `usd` writes them, without the unit."""
    return plain(value, 3) if value and abs(value) < 1 else f"{value:,.2f}"


def with_error(value: float, error: float | None = None) -> str:
    """The value with its error to two digits: 0.9130 ± 0.0049; the value to four digits if there is no error."""
    text = to_error(value, error)
    return f"{text} ± {error:,.{len(text.partition('.')[2])}f}" if error and math.isfinite(error) else text


def to_error(value: float, error: float | None = None) -> str:
    """The value with as many decimals as `with_error` gives it, without the error; 0.8 if that is 0."""
    if not error or not math.isfinite(error):
        text = plain(value, 4)
        return text.rstrip("0").rstrip(".") if error == 0 and "." in text else text
    return f"{value:,.{min(max(0, 1 - math.floor(math.log10(error))), 12)}f}"


def plain(value: float, digits: int) -> str:
    """The value with this many significant digits, without an exponent."""
    if not value:
        return "0"
    decimals = min(max(0, digits - 1 - math.floor(math.log10(abs(value)))), 12)
    return f"{value:,.{decimals}f}"


def duration(seconds: float) -> str:
    """A duration in words: 18 h 17 m, 53 m, 6 m 30 s, 4.1 s; rounded to the minute from half an hour on."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 59.95:
        return f"{plain(seconds, 2 if seconds < 10 else 3)} s"
    step = 60 if seconds >= _TO_THE_MINUTE_S else 1
    whole = round(seconds / step) * step
    parts = [(whole // 3600, "h"), (whole % 3600 // 60, "m"), (whole % 60, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"


def p_value(value: float) -> str:
    """The p-value of a test: p 0.0006, p 0.12, p < 0.0001."""
    return "p < 0.0001" if value < 0.0001 else f"p {plain(value, 1 if value < 0.01 else 2)}"
