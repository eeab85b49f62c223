"""The batches that fit into memory, concluded from jobs that did not fit.

Only jobs with equal values of every parameter that affects memory are compared; one with other `training_arguments`
(such as gradient_checkpointing) shows nothing. Otherwise more rows, longer rows and fp32 instead of bf16 need more, and
less memory is harder. Memory is what CUDA reports of a device (hardware.py), not its data sheet: two types with "24 GB"
differ.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from paretune.estimating.memory import MemorySetting
from paretune.estimating.timing_features import share_of
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec

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
        )

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

    def why_full(self, full: Iterable["Footprint"]) -> "Footprint | None":
        """Return one of these jobs, which have all run out of memory, that was no harder than this one, or None."""
        return next((other for other in full if self.is_no_easier(other)), None)
