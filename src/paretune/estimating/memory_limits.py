"""The batches that fit into memory, concluded from jobs that fitted and jobs that did not.

Only jobs with equal values of every parameter that affects memory are compared; one with other `training_arguments`
(such as gradient_checkpointing) shows nothing. Otherwise more rows, longer rows and fp32 instead of bf16 need more, and
less memory is harder. Memory is what CUDA reports of a device (hardware.py), not its data sheet: two types with "24 GB"
differ.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from paretune.estimating.memory import MemorySetting
from paretune.estimating.timing_features import share_of
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec

_DOUBLED = 0.75  # probability that twice the largest batch that fitted fits, too
_SURE_BATCH = 8.0  # rows that nearly always fit
_TOLERANCE = 1.001  # for sizes that were summed in different orders


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory that one device needs in a job, and memory that it has."""

    alike: tuple[object, ...]  # all further settings that must be equal
    rows: int  # per-device batch
    dataset: str
    max_seq_length: int
    units_per_row: float  # what the activations of a row are proportional to; NaN, which equals nothing, if unknown
    half: bool  # whether the device multiplies in bf16 or fp16
    sharers: tuple[int, int]  # devices that share the weights, and gradients and moments; 1 if each holds all
    usable_gib: float  # that a training may take of the device; processes on a machine without any share it evenly
    machine_gib: float  # of that whole machine; equal to `usable_gib` with accelerators
    run_id: str = field(default="", compare=False)  # the run that has measured it; empty for a question

    @classmethod
    def of(cls, spec: JobSpec, plan: BatchPlan, memory: MemorySetting | None = None) -> "Footprint":
        """Return the footprint of one job; `memory` is given if its model and its data are known."""
        share = share_of(spec)
        return cls(
            alike=(share.on_processor, *spec.key_of("memory", but="max_seq_length")),
            rows=plan.per_device_train_batch_size,
            dataset=spec.dataset,
            max_seq_length=spec.max_seq_length,
            units_per_row=math.nan if memory is None else memory.units / plan.per_device_train_batch_size,
            half=share.half,
            sharers=(share.weight_sharers, share.state_sharers),
            usable_gib=share.usable_gib,
            machine_gib=share.usable_gib * (share.devices if share.on_processor else 1),
        )

    def unshared(self) -> "Footprint":
        """Return the footprint as if each process had the machine to itself.

        Processes of a machine share its memory unevenly, so a batch that fits in one is expected to fit in two until it
        has failed.
        """
        return replace(self, usable_gib=self.machine_gib)

    def is_no_easier(self, other: "Footprint") -> bool:
        """Whether this one fits only if the other does: it needs as much or more, and has no more."""
        return (
            self.alike == other.alike
            and self.rows >= other.rows
            and self.max_seq_length >= other.max_seq_length
            and (self.dataset == other.dataset or self.units_per_row * _TOLERANCE >= other.units_per_row)
            and self.half <= other.half
            and self.sharers[0] <= other.sharers[0]
            and self.sharers[1] <= other.sharers[1]
            and self.usable_gib <= other.usable_gib * _TOLERANCE
        )


class MemoryLimits:
    """Jobs that fitted and jobs that did not; `full` are those that ran out of memory."""

    def __init__(self, full: Iterable[Footprint] = ()) -> None:
        self._fitted: set[Footprint] = set()
        self._full = dict.fromkeys(full)
        self._pending: set[Footprint] = set()

    def fitted(self, job: Footprint) -> None:
        """Note that a job has run."""
        self._fitted.add(job.unshared())

    def ran_out(self, job: Footprint) -> None:
        """Note that a job ran out of memory."""
        self._full[job] = None

    def set_pending(self, jobs: Iterable[Footprint]) -> None:
        """Set the jobs that run now."""
        self._pending = {job.unshared() for job in jobs}

    @property
    def has_full(self) -> bool:
        """Whether any job has run out of memory."""
        return bool(self._full)

    def why_full(self, job: Footprint) -> Footprint | None:
        """Return a job that ran out of memory although it was no harder, or None."""
        return next((full for full in self._full if job.is_no_easier(full)), None)

    def chance(self, job: Footprint) -> float:
        """Return the probability that the job fits: 0 or 1 if it is known."""
        if self.why_full(job) is not None:
            return 0.0
        job = job.unshared()
        if any(fitted.is_no_easier(job) for fitted in self._fitted):
            return 1.0
        fewer = (fitted.rows for fitted in self._fitted if fitted.is_no_easier(replace(job, rows=fitted.rows)))
        largest = max(fewer, default=0)
        return float(_DOUBLED ** max(0.0, math.log2(job.rows / max(largest, _SURE_BATCH))))

    def is_pending(self, job: Footprint) -> bool:
        """Whether a running job will show if this one fits."""
        waits = any(job.unshared().is_no_easier(other) for other in self._pending)
        return waits and self.chance(job) not in (0.0, 1.0)
