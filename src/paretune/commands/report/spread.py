"""Repeats: mean, sample standard deviation, intervals, and the ratio and the difference of two means."""

import math
from collections.abc import Iterable, Mapping, Sequence
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


Blocks = Mapping[float | None, Sequence[float]]
"""The values of one quantity by the size of the data that their runs were trained on."""


def ratio(values: Blocks, base: Blocks) -> Compared | None:
    """Return the mean of `values` divided by that of `base`, or None if a value is not above 0.

    With several data sizes it is the ratio within a size. The interval is that of a difference of logarithms.
    """
    if min(min(block) for both in (values, base) for block in both.values()) <= 0:
        return None
    logs = [{size: [math.log(item) for item in block] for size, block in both.items()} for both in (values, base)]
    within = difference(logs[0], logs[1])
    ends = [None if end is None else math.exp(end) for end in (within.low, within.high)]
    is_plain = len({*values, *base}) == 1
    value = _mean(values) / _mean(base) if is_plain else math.exp(within.value)
    return Compared(value=value, low=ends[0], high=ends[1])


def difference(values: Blocks, base: Blocks) -> Compared:
    """Return the mean of `values` minus that of `base`.

    With several data sizes it is the difference within a size, by least squares with a constant for each of these
    blocks (Montgomery, Design and Analysis of Experiments, 2017, chapter 4); a size that only one of the two has
    counts for nothing, unless they share none.
    """
    shared = [size for size in values if size in base]
    if len({*values, *base}) == 1 or not shared:
        centre, margin = _mean(values) - _mean(base), _margin(_all(values), _all(base))
    else:
        centre, margin = _within(values, base, shared)
    return (
        Compared(value=centre) if margin is None else Compared(value=centre, low=centre - margin, high=centre + margin)
    )


def _all(blocks: Blocks) -> list[float]:
    return [item for block in blocks.values() for item in block]


def _mean(blocks: Blocks) -> float:
    return fmean(_all(blocks))


def _within(values: Blocks, base: Blocks, shared: Sequence[float | None]) -> tuple[float, float | None]:
    """Return the difference within blocks, and half of its interval; None if there are too few repeats."""
    weights = {size: 1 / (1 / len(values[size]) + 1 / len(base[size])) for size in shared}
    gaps = {size: fmean(values[size]) - fmean(base[size]) for size in shared}
    total = sum(weights.values())
    centre = sum(weights[size] * gaps[size] for size in shared) / total
    squares = sum(weights[size] * (gaps[size] - centre) ** 2 for size in shared) + sum(
        (item - fmean(both[size])) ** 2 for both in (values, base) for size in shared for item in both[size]
    )
    freedom = sum(len(values[size]) + len(base[size]) for size in shared) - len(shared) - 1
    if freedom < 1:
        return centre, None
    from scipy.stats import t

    return centre, float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(squares / freedom / total)


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
