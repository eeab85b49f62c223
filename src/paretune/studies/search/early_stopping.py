"""Whether a running job can still end on the front, if it gains as much F1 as the best finished job has from there."""

import operator
from collections.abc import Mapping, Sequence

import numpy as np

from paretune.spec.container import Event
from paretune.studies.definition.objectives import costs

Curve = Sequence[tuple[float, float]]
"""Share of the training done, 0 to 1, and F1 measured then; in order."""

FEWEST_CURVES = 3
"""Finished curves without which nothing is known of how a curve ends."""
_MARGIN = 2.0  # standard deviations of F1


class Progress:
    """How fast a training goes, from its events."""

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


def optimistic_end(curve: Curve, finished: Sequence[Curve], f1_noise: float) -> float | None:
    """F1 that a job may still reach: what it has, the largest gain from here that any job has made, and noise.

    At most 1; None while too few jobs have shown how curves end. `f1_noise` is a standard deviation between runs of one
    job.
    """
    if not curve:
        return None
    share, value = curve[-1]
    known = [other for other in finished if other and other[-1][0] >= 1.0 and other[0][0] <= share <= other[-1][0]]
    gains = [other[-1][1] - float(np.interp(share, *np.transpose(other))) for other in known]
    if len(gains) < FEWEST_CURVES:
        return None
    return min(1.0, value + max(0.0, *gains) + _MARGIN * f1_noise)


def is_hopeless(
    optimistic: Mapping[str, float], front: Sequence[Mapping[str, float]], objectives: Mapping[str, str]
) -> bool:
    """Whether a point of the front is at least as good in every objective as the job's optimistic end."""
    if not set(objectives) <= set(optimistic):
        return False
    hoped = costs(optimistic, objectives)
    return any(all(map(operator.le, costs(point, objectives), hoped)) for point in front)
