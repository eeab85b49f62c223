"""Whether a running job can still end on the front if it gains as much F1 as the best finished job from there."""

import operator
from collections.abc import Mapping, Sequence

import numpy as np

from paretune.specification.container import Event
from paretune.studies.definition.objectives import costs
from paretune.studies.definition.quality import F1, Quality

Curve = Sequence[tuple[float, float]]
"""Shares of the training, 0 to 1, with F1 or another quality measured then; in order."""

FEWEST_CURVES = 3
"""Finished curves that are needed to predict how a curve ends."""
_MARGIN = 2.0  # standard deviations of one run


class Progress:
    """The speed of a training, from its events."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._share = 0.0
        self.last = 0.0
        """Time of its last event with a step, seconds since the epoch."""

    def add(self, event: Event) -> None:
        """Take an event into account; the last event before the first step is the beginning of the training."""
        if event.total_steps and event.step > 0:
            share = min(1.0, event.step / event.total_steps)
            if share > self._share:
                self._share, self.last = share, event.time
        elif not self._share:
            self._begun = event.time

    def seconds_left(self) -> float | None:
        """Seconds from its last step to the end of the training; None before its first step."""
        if self._begun is None or not self._share:
            return None
        return (1.0 - self._share) * (self.last - self._begun) / self._share


def optimistic_end(curve: Curve, finished: Sequence[Curve], quality: Quality = F1) -> float | None:
    """The quality that a job may still reach: its value now, the largest gain of any job from here, and noise.

    At most the best possible value. None while too few jobs have shown how curves end, or if the metric's noise is
    unknown.
    """
    if not curve or quality.noise is None:
        return None
    share, value = curve[-1]
    complete = [other for other in finished if other and other[-1][0] >= 1.0 and other[0][0] <= share <= other[-1][0]]
    gains = [quality.sign * (other[-1][1] - float(np.interp(share, *np.transpose(other)))) for other in complete]
    if len(gains) < FEWEST_CURVES:
        return None
    noise = quality.noise * (abs(value) if quality.is_relative else 1.0)
    hoped = value + quality.sign * (max(0.0, *gains) + _MARGIN * noise)
    return min(quality.highest, max(quality.lowest, hoped))


def is_hopeless(
    optimistic: Mapping[str, float], front: Sequence[Mapping[str, float]], objectives: Mapping[str, str]
) -> bool:
    """Whether a point of the front is at least as good in every objective as the job's optimistic end."""
    if not set(objectives) <= set(optimistic):
        return False
    hoped = costs(optimistic, objectives)
    return any(all(map(operator.le, costs(point, objectives), hoped)) for point in front)
