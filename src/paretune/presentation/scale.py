"""Labelled ticks of an axis."""

import itertools
import math
from collections.abc import Sequence

LOG_FROM = 20  # ratio of the largest to the smallest value above which an axis is logarithmic
FEWEST_TICKS = 3


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
