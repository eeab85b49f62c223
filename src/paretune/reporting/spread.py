"""Repeats: mean, sample standard deviation, intervals, and the ratio of two means."""

import math
from collections.abc import Iterable
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
class Ratio:
    """A mean divided by another one, with its interval of CONFIDENCE; None where there are too few repeats."""

    value: float
    low: float | None = None
    high: float | None = None


def ratio(one: Spread, base: Spread) -> Ratio | None:
    """Mean of `one` divided by that of `base`; None where a value is not above 0.

    The interval is Welch's for the difference of the means of logarithms (Welch, Biometrika 34, 1947).
    """
    if min(*one.values, *base.values) <= 0:
        return None
    value = one.mean / base.mean
    if one.n < 2 or base.n < 2:
        return Ratio(value=value)
    from scipy.stats import t

    logs = [[math.log(item) for item in spread.values] for spread in (one, base)]
    parts = [stdev(items) ** 2 / len(items) for items in logs]
    error = math.sqrt(sum(parts))
    if not error:
        return Ratio(value=value, low=value, high=value)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(items) - 1) for part, items in zip(parts, logs, strict=True))
    margin = float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    centre = fmean(logs[0]) - fmean(logs[1])
    return Ratio(value=value, low=math.exp(centre - margin), high=math.exp(centre + margin))
