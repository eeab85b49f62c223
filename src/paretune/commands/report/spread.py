"""Repeats: mean, sample standard deviation, intervals, and the ratio and the difference of two means."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Values of one quantity in runs that repeat each other.

    Attributes:
        deviation: sample standard deviation (n - 1 in the denominator); None for one value.
    """

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """The spread of the values that are known; None where none is."""
        known = tuple(value for value in values if value is not None)
        return cls(values=known) if known else None

    @property
    def n(self) -> int:
        """How many values there are."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Their mean."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Their sample standard deviation; None for one value."""
        return stdev(self.values) if self.n > 1 else None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A mean against another one, with its interval of CONFIDENCE; None where there are too few repeats."""

    value: float
    low: float | None = None
    high: float | None = None


def ratio(one: Spread, base: Spread) -> Compared | None:
    """Mean of `one` divided by that of `base`; None where a value is not above 0.

    The interval is that of the difference of the means of logarithms.
    """
    if min(*one.values, *base.values) <= 0:
        return None
    value = one.mean / base.mean
    logs = [[math.log(item) for item in spread.values] for spread in (one, base)]
    if (margin := _margin(*logs)) is None:
        return Compared(value=value)
    centre = fmean(logs[0]) - fmean(logs[1])
    return Compared(value=value, low=math.exp(centre - margin), high=math.exp(centre + margin))


def difference(one: Spread, base: Spread) -> Compared:
    """Mean of `one` less that of `base`."""
    value = one.mean - base.mean
    margin = _margin(one.values, base.values)
    return Compared(value=value) if margin is None else Compared(value=value, low=value - margin, high=value + margin)


def _margin(one: Sequence[float], base: Sequence[float]) -> float | None:
    """Half of the interval of a difference of means (Welch, Biometrika 34, 1947); None without repeats of both."""
    if len(one) < 2 or len(base) < 2:
        return None
    from scipy.stats import t

    parts = [stdev(items) ** 2 / len(items) for items in (one, base)]
    if not any(parts):
        return 0.0
    freedom = sum(parts) ** 2 / sum(part**2 / (len(items) - 1) for part, items in zip(parts, (one, base), strict=True))
    return float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(sum(parts))
