"""Positions of values on an axis, and its labelled ticks. Outliers are drawn past a break of the axis."""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

LOG_FROM = 20  # ratio of the largest to the smallest value above which an axis is logarithmic
FEWEST_TICKS = 3
_BAND = 0.13  # share of the axis that a break and the values past it take
_FAR = 3.0
"""Interquartile ranges beyond the quartiles from which on a value is an outlier: Tukey's outer fences (Exploratory Data
Analysis, 1977, section 2D)."""
_WORTH = 0.5  # an axis is broken if the values without outliers take less than this share of the whole range
_NARROW = 0.15  # share of the range below which the important values count as flattened
_AROUND = 2.0  # extents of flattened important values that are shown in full on both sides of them
_MOST_BEYOND = 1 / 3  # largest share of all values that may be put past a break for that
_EQUAL = 1e-9  # share of the values by which they differ if only rounding does
_FOR_BARS = 0.3  # most of the extent of the values that error bars may add at either end, unless most are longer


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis from 0, left or bottom, to 1."""

    low: float  # lower end of the part that is drawn in full
    high: float  # its upper end
    is_log: bool = False  # whether that part is logarithmic
    least: float | None = None  # the smallest value if the axis is broken below `low`, else None
    most: float | None = None  # the largest value if the axis is broken above `high`, else None
    beyond: int = 0  # number of values past a break

    @property
    def breaks(self) -> list[float]:
        """Positions of the breaks."""
        ends = [(self.least, _BAND), (self.most, 1 - _BAND)]
        return [position for end, position in ends if end is not None]

    def at(self, value: float) -> float:
        """Position of a value, 0 to 1; values outside the scale lie at its ends."""
        bottom, top = 0.0 if self.least is None else _BAND, 1.0 if self.most is None else 1 - _BAND
        if value < self.low:
            share = 1.0 if self.least is None else (value - self.least) / (self.low - self.least)
            return bottom if self.least is None else _in_band(share)
        if value > self.high:
            share = 1.0 if self.most is None else (self.most - value) / (self.most - self.high)
            return top if self.most is None else 1 - _in_band(share)
        transform = _transform(self.is_log)
        share = (transform(value) - transform(self.low)) / (transform(self.high) - transform(self.low))
        return bottom + share * (top - bottom)

    def ticks(self) -> list[tuple[float, str]]:
        """Position and text of at least FEWEST_TICKS ticks, in ascending order; the last value past a break has one."""
        values = tick_values(self.low, self.high, is_log=self.is_log)
        ticks = list(zip(map(self.at, values), tick_texts(values), strict=True))
        if self.least is not None:
            ticks.insert(0, (self.at(self.least), _short(self.least)))
        if self.most is not None:
            ticks.append((self.at(self.most), _short(self.most)))
        return ticks

    def break_note(self, name: str) -> str:
        """A sentence that says how the axis is broken; empty if it is not."""
        ends = [
            f"{'down' if is_low else 'up'} to {_short(end)}"
            for is_low, end in ((True, self.least), (False, self.most))
            if end is not None
        ]
        if not ends:
            return ""
        points = f"{self.beyond} point{' lies' if self.beyond == 1 else 's lie'}"
        return f"The axis of {name} is broken: {points} past the break, {' and '.join(ends)}, not to scale."


def scale_of(
    values: Sequence[float],
    important: Sequence[float] = (),
    *,
    bar_ends: Sequence[float] = (),
    may_be_log: bool = True,
) -> Scale:
    """The scale for N >= 1 finite values.

    `important` are the values among them that the others must not flatten, `bar_ends` the ends of their error bars,
    which get room unless they need too much of it.
    """
    is_log = may_be_log and _spans(values)
    low, high = _core(values, important, bar_ends, is_log=is_log)
    core = [value for value in values if low <= value <= high]
    is_log = is_log and _spans(core)
    beyond = len(values) - len(core)
    least, most = min(values), max(values)
    transform = _transform(is_log)
    first, last = transform(low), transform(high)
    extent = last - first if last - first > _EQUAL * max(abs(first), abs(last)) else 0.0
    room = 0.06 * extent or 0.05 * abs(low) or 1.0
    ends = [transform(value) for value in bar_ends if not is_log or value > 0]
    beyond_ends = [max(first - value, value - last) for value in ends if not first <= value <= last]
    typical = statistics.median(beyond_ends) if beyond_ends else 0.0
    if 0 < extent < typical:  # values that differ by less than their errors: the picture shows the errors
        room = typical
    most_room = max(_FOR_BARS * extent, room)
    start = first - min(max(first - min(ends, default=first), room), most_room)
    end = last + min(max(max(ends, default=last) - last, room), most_room)
    if is_log:
        start, end = math.exp(start), math.exp(end)
    elif min(core) >= 0:
        start = max(start, 0.0) if low > 0 or end > 0 else start  # values that are never negative get no negative tick
    return Scale(
        low=start if least >= low else max(start, _between(values, low, is_low=True)),
        high=end if most <= high else min(end, _between(values, high, is_low=False)),
        is_log=is_log,
        least=least if least < low else None,
        most=most if most > high else None,
        beyond=beyond,
    )


def tick_values(low: float, high: float, *, is_log: bool = False) -> list[float]:
    """At least FEWEST_TICKS round values within [low, high], low < high; with `is_log`, even in their ratio."""
    from matplotlib.ticker import MaxNLocator

    if is_log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        for leads in ((1,), (1, 3), (1, 2, 5)):
            ticks = [lead * 10.0**power for power in range(first, last + 1) for lead in leads]
            ticks = [tick for tick in ticks if low <= tick <= high]
            if len(ticks) >= FEWEST_TICKS:
                return ticks[:: math.ceil(len(ticks) / 8)]
    locator = MaxNLocator(nbins=8, steps=(1, 2, 2.5, 5, 10), min_n_ticks=FEWEST_TICKS + 1)  # one more reads better
    return [tick for tick in map(float, locator.tick_values(low, high)) if low <= tick <= high]


def tick_texts(values: Sequence[float]) -> list[str]:
    """The ticks as text, with as many decimals as distinguish them; very small and large ones with an exponent."""
    largest = max(map(abs, values))
    if not 1e-4 <= largest < 1e7:
        return [f"{value:.6g}" for value in values]
    if min(values) > 0 and largest / min(values) > LOG_FROM:
        return [f"{value:,.6f}".rstrip("0").rstrip(".") if value >= 1e-4 else f"{value:g}" for value in values]
    step = min((abs(after - before) for before, after in itertools.pairwise(values)), default=largest)
    decimals = next((d for d in range(13) if all(abs(round(value, d) - value) < 1e-3 * step for value in values)), 12)
    return [f"{value + 0.0:,.{decimals}f}" for value in values]


def legible_texts(ticks: Sequence[tuple[float, str]], length: float, character: float) -> list[str]:
    """The texts of ticks beside each other, empty where a text would touch the one before.

    `length` is that of the axis, `character` the width of a character, in one unit.
    """
    width = (max(len(text) for _, text in ticks) + 1) * character / length
    texts, end = [], -math.inf
    for position, text in ticks:
        is_free = position - width / 2 >= end - _EQUAL
        texts.append(text if is_free else "")
        end = position + width / 2 if is_free else end
    return texts


def _core(
    values: Sequence[float], important: Sequence[float], bar_ends: Sequence[float], *, is_log: bool
) -> tuple[float, float]:
    """The smallest and the largest value that are drawn in full."""
    transform = _transform(is_log)
    places = sorted(map(transform, values))
    low, high = places[0], places[-1]
    first, third = np.quantile(places, (0.25, 0.75))
    reach = _FAR * (third - first)
    near = [value for value in places if first - reach <= value <= third + reach]
    if reach and near[-1] - near[0] < _WORTH * (high - low):
        low, high = near[0], near[-1]
        both = [low, high, *map(transform, important)]
        if max(both) - min(both) < _WORTH * (places[-1] - places[0]):  # the important outliers fit in
            low, high = min(both), max(both)
    inside = [value for value in map(transform, important) if low <= value <= high]
    ends = [*inside, *(transform(value) for value in bar_ends if not is_log or value > 0)]
    extent = max(ends) - min(ends) if len(set(inside)) > 1 else 0.0
    if 0 < extent < _NARROW * (high - low):
        around = min(inside) - _AROUND * extent, max(inside) + _AROUND * extent
        near = [value for value in places if around[0] <= value <= around[1]]
        if len(near) >= (1 - _MOST_BEYOND) * len(places):
            low, high = near[0], near[-1]
    core = [value for value in values if low <= transform(value) <= high]
    return min(core), max(core)


def _between(values: Sequence[float], end: float, *, is_low: bool) -> float:
    """The middle between an end of the core and the next value past it."""
    neighbour = max(value for value in values if value < end) if is_low else min(v for v in values if v > end)
    return (end + neighbour) / 2


def _spans(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > LOG_FROM


def _in_band(share: float) -> float:
    """Position in the lower band; the value at the end of the axis has the share 0."""
    return 0.02 + share * (_BAND - 0.05)


def _transform(is_log: bool) -> Callable[[float], float]:
    return math.log if is_log else float


def _short(value: float) -> str:
    """The value with three digits: 0.412, 310, 12,400."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.6g}" if 1e-3 <= abs(rounded) < 1e6 or not rounded else f"{rounded:g}"
