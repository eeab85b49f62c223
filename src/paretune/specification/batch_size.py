"""Batch size and learning rate: the batch plan that follows from the parameters of a job.

    global batch size = per-device batch x devices x gradient accumulation steps

`devices` are the data-parallel devices of the whole cluster; locally each instance is one process with one device.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paretune.core.errors import BadInput

if TYPE_CHECKING:
    from paretune.specification.job import JobSpec

DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE = 16
LARGEST_BATCH_SIZE = 1_000_000  # per device and globally; messages never suggest a larger one


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """The rows of an optimiser step, split over data-parallel devices and micro-batches, and the learning rate."""

    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    devices: int
    learning_rate: float

    @property
    def global_batch_size(self) -> int:
        """Training rows per optimiser step."""
        return self.per_device_train_batch_size * self.devices * self.gradient_accumulation_steps

    def with_less_memory(self) -> "BatchPlan | None":
        """The same global batch size with a per-device batch divided by its smallest factor, or None at batch 1."""
        batch = self.per_device_train_batch_size
        factor = next((factor for factor in range(2, batch + 1) if batch % factor == 0), None)
        if factor is None:
            return None
        return replace(
            self,
            per_device_train_batch_size=batch // factor,
            gradient_accumulation_steps=self.gradient_accumulation_steps * factor,
        )


def plan_batch(job: "JobSpec", *, devices: int, learning_rate: float) -> BatchPlan:
    """The batch plan on so many devices; `learning_rate` is the rate at the reference batch size.

    Without `global_batch_size`, the per-device batch is 16 and accumulation 1 unless set. With it, the one that is not
    set follows from the other; if neither is set, the per-device batch is the largest divisor up to 16.

    Raises:
        BadInput: the parts do not multiply to `global_batch_size`; the message lists the possible parts.
    """
    batch = job.per_device_train_batch_size or DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE
    steps = job.gradient_accumulation_steps or 1
    if job.global_batch_size is not None:
        batch, steps = _split(job, job.global_batch_size, devices)
    rate = scale_learning_rate(
        learning_rate, job.learning_rate_scaling, batch * steps * devices, job.reference_batch_size
    )
    return BatchPlan(
        per_device_train_batch_size=batch, gradient_accumulation_steps=steps, devices=devices, learning_rate=rate
    )


def scale_learning_rate(
    learning_rate: float, learning_rate_scaling: str, global_batch_size: int, reference_batch_size: int
) -> float:
    """The learning rate at `global_batch_size`, from the one at `reference_batch_size`.

    `linear`: proportional to the batch (Goyal et al., arXiv 1706.02677). `sqrt`: to its square root, which keeps the
    variance of Adam's steps (Malladi et al., arXiv 2205.10287). `none`: unchanged.
    """
    exponent = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}[learning_rate_scaling]
    return learning_rate * math.pow(global_batch_size / reference_batch_size, exponent)


def _split(job: "JobSpec", total: int, devices: int) -> tuple[int, int]:
    """Per-device batch and accumulation steps whose product with the devices is `total`."""
    if total % devices:
        below = total - total % devices
        multiples = " or ".join(str(size) for size in (below, below + devices) if 0 < size <= LARGEST_BATCH_SIZE)
        raise BadInput([f"global_batch_size must be a multiple of the {devices} devices, got {total}: use {multiples}"])
    share = total // devices
    small = [size for size in range(1, math.isqrt(share) + 1) if share % size == 0]
    divisors = sorted({*small, *(share // size for size in small)})
    batch, accumulation = job.per_device_train_batch_size, job.gradient_accumulation_steps
    if batch is None and accumulation is None:
        batch = max(size for size in divisors if size <= DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE)
    elif batch is None and accumulation in divisors:
        batch = share // accumulation
    if batch in divisors and accumulation in (None, share // batch):
        return batch, share // batch
    parts = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    conditions = " and ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
    listed = divisors if len(divisors) <= 16 else [*divisors[:8], *divisors[-8:]]
    pairs = ", ".join(f"{size} x {share // size}" for size in listed)
    rule = f"global_batch_size {total} on {devices} device{'s' if devices > 1 else ''} cannot be made with {conditions}"
    raise BadInput([f"{rule}: possible per_device_train_batch_size x gradient_accumulation_steps are {pairs}"])
