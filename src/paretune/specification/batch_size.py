"""The one rule that ties per-device batch, accumulation, devices, global batch size and learning rate together.

    global batch size = per-device batch x devices x gradient accumulation steps

`devices` is devices per instance x instances; locally an instance is one process with one device.
"""

import math
from dataclasses import dataclass, replace

from paretune.core.errors import BadInput

DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE = 16
LARGEST_BATCH_SIZE = 1_000_000
"""Of one device as of all; what a message proposes is never above it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """How one optimiser step is spread over devices and time, and the learning rate that goes with it."""

    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    devices: int
    learning_rate: float

    @property
    def global_batch_size(self) -> int:
        """Training samples per optimiser step."""
        return self.per_device_train_batch_size * self.devices * self.gradient_accumulation_steps

    def with_less_memory(self) -> "BatchPlan | None":
        """The same global batch size from a smaller per-device batch: half of it where it is even.

        An odd batch is divided by its smallest factor, so that the global batch size stays exact. None at batch 1.
        """
        batch = self.per_device_train_batch_size
        factor = next((factor for factor in range(2, batch + 1) if batch % factor == 0), None)
        if factor is None:
            return None
        return replace(
            self,
            per_device_train_batch_size=batch // factor,
            gradient_accumulation_steps=self.gradient_accumulation_steps * factor,
        )


def plan_batch(
    *,
    per_device_train_batch_size: int | None,
    gradient_accumulation_steps: int | None,
    global_batch_size: int | None,
    devices: int,
    learning_rate: float,
    learning_rate_scaling: str,
    reference_batch_size: int,
) -> BatchPlan:
    """The batch plan that was asked for, with whatever was left open derived.

    Without `global_batch_size`, an open per-device batch is 16 and open accumulation is 1. With it, the open one of the
    two follows from the other; if both are open, the per-device batch is the largest divisor that is at most 16.

    Raises:
        BadInput: the parts do not multiply to `global_batch_size`; the message lists what would.
    """
    batch = per_device_train_batch_size or DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE
    steps = gradient_accumulation_steps or 1
    if global_batch_size is not None:
        batch, steps = _split(global_batch_size, devices, per_device_train_batch_size, gradient_accumulation_steps)
    rate = scale_learning_rate(learning_rate, learning_rate_scaling, batch * steps * devices, reference_batch_size)
    return BatchPlan(
        per_device_train_batch_size=batch, gradient_accumulation_steps=steps, devices=devices, learning_rate=rate
    )


def scale_learning_rate(
    learning_rate: float, learning_rate_scaling: str, global_batch_size: int, reference_batch_size: int
) -> float:
    """Learning rate for `global_batch_size`, given one that suits `reference_batch_size`.

    `linear`: proportional to the batch (Goyal et al., arXiv 1706.02677). `sqrt`: to its square root, which keeps the
    variance of Adam's steps (Malladi et al., arXiv 2205.10287). `none`: unchanged.
    """
    exponent = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}[learning_rate_scaling]
    return learning_rate * math.pow(global_batch_size / reference_batch_size, exponent)


def _split(total: int, devices: int, batch: int | None, accumulation: int | None) -> tuple[int, int]:
    if total % devices:
        below = total - total % devices
        possible = " or ".join(str(size) for size in (below, below + devices) if 0 < size <= LARGEST_BATCH_SIZE)
        raise BadInput([f"global_batch_size must be a multiple of the {devices} devices, got {total}: use {possible}"])
    share = total // devices
    small = [size for size in range(1, math.isqrt(share) + 1) if share % size == 0]
    divisors = sorted({*small, *(share // size for size in small)})
    if batch is None and accumulation is None:
        batch = max(size for size in divisors if size <= DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE)
    elif batch is None and accumulation in divisors:
        batch = share // accumulation
    if batch in divisors and accumulation in (None, share // batch):
        return batch, share // batch
    given = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation}
    asked = " and ".join(f"{name} {value}" for name, value in given.items() if value is not None)
    listed = divisors if len(divisors) <= 16 else [*divisors[:8], *divisors[-8:]]
    pairs = ", ".join(f"{size} x {share // size}" for size in listed)
    wanted = f"global_batch_size {total} on {devices} device{'s' if devices > 1 else ''}"
    possible = f"possible per_device_train_batch_size x gradient_accumulation_steps are {pairs}"
    raise BadInput([f"{wanted} cannot be made with {asked}: {possible}"])
