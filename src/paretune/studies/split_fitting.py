"""Which per-device batches fit into memory, concluded from jobs of a split search that did and jobs that did not."""

import math
from dataclasses import dataclass, field

from paretune import catalog
from paretune.errors import BadInput
from paretune.studies.split_models import Key

_DOUBLED = 0.75  # chance that a batch fits which is twice as large as the largest that did
_UNTRIED_BATCH = 16.0  # which nearly always fits


@dataclass
class Fitting:
    """What is known of batches, by what the memory of a device depends on.

    A batch that fits also fits, if all else is equal, with fewer rows and on devices with more memory; one that does
    not, does not with more rows and on devices with less.
    """

    _fitted: list[tuple[Key, float]] = field(default_factory=list)
    _full: list[tuple[Key, float]] = field(default_factory=list)
    _asked: list[tuple[Key, float]] = field(default_factory=list)

    def fitted(self, step: Key) -> None:
        """A job with this step (`split_space.step_of`) has run."""
        self._fitted.append(_place(step))

    def ran_out(self, step: Key) -> None:
        """A job with this step ran out of memory."""
        self._full.append(_place(step))

    def ask(self, step: Key) -> None:
        """A job with this step is under way."""
        self._asked.append(_place(step))

    def chance(self, step: Key) -> float:
        """That a job fits: 0 and 1 where it is known."""
        kind, batch = _place(step)
        if any(batch >= other and _is_no_larger(kind, full) for full, other in self._full):
            return 0.0
        largest = max((other for fitted, other in self._fitted if _is_no_larger(fitted, kind)), default=0.0)
        if batch <= largest:
            return 1.0
        return float(_DOUBLED ** max(0.0, math.log2(batch / max(largest, _UNTRIED_BATCH / 2))))

    def is_asked(self, step: Key) -> bool:
        """Whether a job under way will show whether this one fits."""
        kind, batch = _place(step)
        if self.chance(step) in (0.0, 1.0):
            return False
        return any(_is_no_larger(kind, asked) and batch >= other for asked, other in self._asked)


def _place(step: Key) -> tuple[Key, float]:
    """Device and what it holds besides rows; rows."""
    (instance_type, *rest), (_, log2_batch) = step
    return ((instance_type, *rest), (_memory_gib(instance_type),)), 2.0**log2_batch


def _memory_gib(instance_type: str) -> float:
    """Of one accelerator; NaN, which compares with nothing, where it is not known."""
    try:
        found = catalog.instance(instance_type)
    except BadInput:
        return math.nan
    return found.accelerator_memory_gib if found.has_gpu else math.nan


def _is_no_larger(one: Key, other: Key) -> bool:
    """Whether the one's device has at most as much memory as the other's, and holds the same besides rows."""
    return one[0][1:] == other[0][1:] and (one[0][0] == other[0][0] or one[1][0] <= other[1][0])


__all__ = ["Fitting"]
