"""Where values lie on an axis, and its labelled ticks; far-off values are put past a break of the axis."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

LOG_FROM = 20
"""Largest over smallest value from which an axis is logarithmic."""
FEWEST_TICKS = 3
_BAND = 0.13
"""Share of the axis that the values past a break take, with the break itself."""
_FAR = 3.0
"""Interquartile ranges beyond the quartiles from which on a value is far off: Tukey's outer fences (Exploratory Data
Analysis, 1977, section 2D)."""
_WORTH = 0.5
"""An axis is broken if the rest takes less than this share of the whole range."""
_NARROW = 0.15
"""Share of the range below which what matters counts as flattened."""
_AROUND = 2.0
"""Extents of what matters that are shown in full to both sides of it, where it would be flattened otherwise."""
_MOST_BEYOND = 1 / 3
"""Of all values that may be put past a break for that."""
_FOR_BARS = 0.3
"""Of the extent of the values, which the bars may add at either end."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis from 0, left or bottom, to 1.

    Attributes:
        low, high: ends of the part that is drawn in full.
        is_log: whether that part is logarithmic.
        least: the smallest value, where the axis is broken below `low`; else None.
        most: the largest value, where it is broken above `high`; else None.
        beyond: how many values lie past a break.
    """

    low: float
    high: float
    is_log: bool = False
    least: float | None = None
    most: float | None = None
    beyond: int = 0

    @property
    def breaks(self) -> list[float]:
        """Where the axis is broken."""
        ends = [(self.least, _BAND), (self.most, 1 - _BAND)]
        return [place for end, place in ends if end is not None]

    def at(self, value: float) -> float:
        """Where the value lies; values outside of all that is shown lie at the ends."""
        bottom, top = 0.0 if self.least is None else _BAND, 1.0 if self.most is None else 1 - _BAND
        if value < self.low:
            share = 1.0 if self.least is None else (value - self.least) / (self.low - self.least)
            return bottom if self.least is None else _in_band(share)
        if value > self.high:
            share = 1.0 if self.most is None else (self.most - value) / (self.most - self.high)
            return top if self.most is None else 1 - _in_band(share)
        bend = _bend(self.is_log)
        share = (bend(value) - bend(self.low)) / (bend(self.high) - bend(self.low))
        return bottom + share * (top - bottom)

    def ticks(self) -> list[tuple[float, str]]:
        """Place and text of at least FEWEST_TICKS marks, the least first; the last value past a break has one too."""
        values = tick_values(self.low, self.high, is_log=self.is_log)
        found = list(zip(map(self.at, values), tick_texts(values), strict=True))
        if self.least is not None:
            found.insert(0, (self.at(self.least), _short(self.least)))
        if self.most is not None:
            found.append((self.at(self.most), _short(self.most)))
        return found

    def said(self, name: str) -> str:
        """That the axis is broken, in words; empty where it is not."""
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
    reaching: Sequence[float] = (),
    may_be_log: bool = True,
) -> Scale:
    """The axis of N >= 1 finite values.

    `important` are those of them that must not be flattened by the others, `reaching` the ends of their bars, for
    which there is room where it is not much.
    """
    is_log = may_be_log and _spans(values)
    low, high = _core(values, important, reaching, is_log=is_log)
    core = [value for value in values if low <= value <= high]
    is_log = is_log and _spans(core)
    beyond = len(values) - len(core)
    least, most = min(values), max(values)
    bend = _bend(is_log)
    extent = bend(high) - bend(low)
    room = 0.06 * extent or 0.05 * abs(low) or 1.0
    ends = [bend(value) for value in reaching if not is_log or value > 0]
    most_room = max(_FOR_BARS * extent, room)
    start = bend(low) - min(max(bend(low) - min(ends, default=bend(low)), room), most_room)
    end = bend(high) + min(max(max(ends, default=bend(high)) - bend(high), room), most_room)
    if is_log:
        start, end = math.exp(start), math.exp(end)
    elif min(core) >= 0:
        start = max(start, 0.0) if low > 0 or end > 0 else start  # nothing that is never negative has a negative tick
    return Scale(
        low=start if least >= low else max(start, _between(values, low, is_low=True)),
        high=end if most <= high else min(end, _between(values, high, is_low=False)),
        is_log=is_log,
        least=least if least < low else None,
        most=most if most > high else None,
        beyond=beyond,
    )


def tick_values(low: float, high: float, *, is_log: bool = False) -> list[float]:
    """At least FEWEST_TICKS round values within [low, high], low < high; even in their ratio where `is_log`."""
    if is_log:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        for leads in ((1,), (1, 3), (1, 2, 5)):
            found = [lead * 10.0**power for power in range(first, last + 1) for lead in leads]
            found = [value for value in found if low <= value <= high]
            if len(found) >= FEWEST_TICKS:
                return found[:: math.ceil(len(found) / 8)]
    power = math.ceil(math.log10(high - low))
    while True:
        for lead in (10, 5, 2.5, 2):
            step = lead * 10.0 ** (power - 1)
            start, end = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
            if end - start >= FEWEST_TICKS:  # one more than the fewest reads better
                return [number * step for number in range(start, end + 1)]
        power -= 1


def tick_texts(values: Sequence[float]) -> list[str]:
    """The ticks as text, with as many decimals as tell them apart; very small and large ones with an exponent."""
    largest = max(map(abs, values))
    if not 1e-3 <= largest < 1e7:
        return [f"{value:.6g}" for value in values]
    if min(values) > 0 and largest / min(values) > LOG_FROM:
        return [f"{value:,.6f}".rstrip("0").rstrip(".") if value >= 1e-4 else f"{value:g}" for value in values]
    step = min((abs(one - other) for one, other in itertools.pairwise(values)), default=largest)
    decimals = next((d for d in range(13) if all(abs(round(value, d) - value) < 1e-3 * step for value in values)), 12)
    return [f"{value + 0.0:,.{decimals}f}" for value in values]


def _core(
    values: Sequence[float], important: Sequence[float], reaching: Sequence[float], *, is_log: bool
) -> tuple[float, float]:
    """Ends of the values that are drawn in full."""
    bend = _bend(is_log)
    bent = sorted(map(bend, values))
    low, high = bent[0], bent[-1]
    first, third = np.quantile(bent, (0.25, 0.75))
    reach = _FAR * (third - first)
    near = [value for value in bent if first - reach <= value <= third + reach]
    if reach and near[-1] - near[0] < _WORTH * (high - low):
        low, high = near[0], near[-1]
        both = [low, high, *map(bend, important)]
        if max(both) - min(both) < _WORTH * (bent[-1] - bent[0]):  # what matters is far off, and there is room for it
            low, high = min(both), max(both)
    inside = [value for value in map(bend, important) if low <= value <= high]
    ends = [*inside, *(bend(value) for value in reaching if not is_log or value > 0)]
    extent = max(ends) - min(ends) if len(set(inside)) > 1 else 0.0
    if 0 < extent < _NARROW * (high - low):
        wanted = min(inside) - _AROUND * extent, max(inside) + _AROUND * extent
        near = [value for value in bent if wanted[0] <= value <= wanted[1]]
        if len(near) >= (1 - _MOST_BEYOND) * len(bent):
            low, high = near[0], near[-1]
    kept = [value for value in values if low <= bend(value) <= high]
    return min(kept), max(kept)


def _between(values: Sequence[float], end: float, *, is_low: bool) -> float:
    """Half-way from an end of the core to the next value past it."""
    next_one = max(value for value in values if value < end) if is_low else min(v for v in values if v > end)
    return (end + next_one) / 2


def _spans(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) > LOG_FROM


def _in_band(share: float) -> float:
    """Place in the lower band; 0 for the value at the end of the axis."""
    return 0.02 + share * (_BAND - 0.05)


def _bend(is_log: bool) -> Callable[[float], float]:
    return math.log if is_log else float


def _short(value: float) -> str:
    """Three digits: 0.412, 310, 12,400."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.6g}" if 1e-3 <= abs(rounded) < 1e6 or not rounded else f"{rounded:g}"
