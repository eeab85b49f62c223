"""Which batches fit into memory, concluded from jobs of a study that did and jobs that did not."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from paretune.core.errors import BadInput
from paretune.spec import catalog
from paretune.spec.batch_size import BatchPlan
from paretune.spec.job import JobSpec

_DOUBLED = 0.75  # chance that a batch fits which is twice as large as the largest that did
_SURE_BATCH = 8.0  # which nearly always fits
_SHARDED = {"fsdp", "smp", "deepspeed"}  # what one device holds depends on how many there are
_HELD = (
    *("model", "task", "fine_tuning", "max_seq_length", "precision", "compiler", "strategy", "training_arguments"),
    *("tensor_parallel_degree", "context_parallel_degree", "expert_parallel_degree", "activation_offloading"),
)


@dataclass(frozen=True)
class Footprint:
    """What one device holds in a job, and where.

    Attributes:
        instance_type: of the device.
        memory_gib: of the device; NaN, which compares with nothing, where it is not known.
        alike: whatever else decides, to be equal.
        devices: that share weights and states; 1 where each holds all of them.
        rows: per-device batch.
    """

    instance_type: str
    memory_gib: float
    alike: tuple[str, ...]
    devices: int
    rows: int

    @classmethod
    def by(cls, spec: JobSpec, plan: BatchPlan) -> "Footprint":
        """Of one job."""
        texts = spec.as_text()
        return cls(
            instance_type=spec.instance_type,
            memory_gib=_memory_gib(spec.instance_type),
            alike=tuple(texts[name] for name in _HELD),
            devices=plan.devices if spec.strategy in _SHARDED else 1,
            rows=plan.per_device_train_batch_size,
        )

    def is_no_easier(self, other: "Footprint") -> bool:
        """Whether it fits only if the other one does: rows at least as many, device and shards no larger."""
        same = self.instance_type == other.instance_type or self.memory_gib <= other.memory_gib
        return same and self.alike == other.alike and self.devices <= other.devices and self.rows >= other.rows


class MemoryLimits:
    """What is known of batches."""

    def __init__(self) -> None:
        self._fitted: set[Footprint] = set()
        self._full: set[Footprint] = set()
        self._pending: set[Footprint] = set()

    def fitted(self, held: Footprint) -> None:
        """A job has run."""
        self._fitted.add(held)

    def ran_out(self, held: Footprint) -> None:
        """A job ran out of memory."""
        self._full.add(held)

    def set_pending(self, jobs: Iterable[Footprint]) -> None:
        """These jobs are under way, and no others."""
        self._pending = set(jobs)

    @property
    def has_full(self) -> bool:
        """Whether any job has run out of memory."""
        return bool(self._full)

    def is_full(self, held: Footprint) -> bool:
        """Whether it is known that the job runs out of memory."""
        return any(held.is_no_easier(full) for full in self._full)

    def chance(self, held: Footprint) -> float:
        """That the job fits: 0 and 1 where it is known."""
        if self.is_full(held):
            return 0.0
        if any(fitted.is_no_easier(held) for fitted in self._fitted):
            return 1.0
        fewer = (one.rows for one in self._fitted if one.is_no_easier(replace(held, rows=one.rows)))
        largest = max(fewer, default=0)
        return float(_DOUBLED ** max(0.0, math.log2(held.rows / max(largest, _SURE_BATCH))))

    def is_pending(self, held: Footprint) -> bool:
        """Whether a job under way will show whether this one fits."""
        return any(held.is_no_easier(asked) for asked in self._pending) and self.chance(held) not in (0.0, 1.0)


def _memory_gib(instance_type: str) -> float:
    try:
        found = catalog.instance(instance_type)
    except BadInput:
        return math.nan
    return found.accelerator_memory_gib if found.has_gpu else math.nan
