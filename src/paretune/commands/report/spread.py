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
        """Return the spread of the values that are not None, or None if there are none."""
        present = tuple(value for value in values if value is not None)
        return cls(values=present) if present else None

    @property
    def n(self) -> int:
        """Number of values."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation, or None for a single value."""
        return stdev(self.values) if self.n > 1 else None


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A mean compared with another one; its interval of CONFIDENCE is None if there are too few repeats."""

    value: float
    low: float | None = None
    high: float | None = None


def ratio(spread: Spread, base: Spread) -> Compared | None:
    """Return the mean of `spread` divided by that of `base`, or None if a value is not above 0.

    The interval is that of the difference of the means of logarithms.
    """
    if min(*spread.values, *base.values) <= 0:
        return None
    value = spread.mean / base.mean
    logs = [[math.log(item) for item in both.values] for both in (spread, base)]
    if (margin := _margin(*logs)) is None:
        return Compared(value=value)
    centre = fmean(logs[0]) - fmean(logs[1])
    return Compared(value=value, low=math.exp(centre - margin), high=math.exp(centre + margin))


def difference(spread: Spread, base: Spread) -> Compared:
    """Return the mean of `spread` minus that of `base`."""
    value = spread.mean - base.mean
    margin = _margin(spread.values, base.values)
    return Compared(value=value) if margin is None else Compared(value=value, low=value - margin, high=value + margin)


def _margin(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return half of the interval of a difference of means (Welch, Biometrika 34, 1947); None without repeats."""
    if len(first) < 2 or len(second) < 2:
        return None
    from scipy.stats import t

    parts = [stdev(items) ** 2 / len(items) for items in (first, second)]
    if not any(parts):
        return 0.0
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(items) - 1) for part, items in zip(parts, (first, second), strict=True)
    )
    return float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(sum(parts))
