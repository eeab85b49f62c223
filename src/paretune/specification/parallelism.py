"""The division of one job over devices: strategies, degrees of parallelism, the batch plan and its learning rate.

    global batch size = per-device batch x devices x gradient accumulation steps

The micro-batches of a step may differ by a row: 127 rows are trained as 64 and 63. `devices` are the data-parallel
devices of the whole cluster; locally each instance is one process with one device.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paretune.core.errors import BadInput

if TYPE_CHECKING:
    from paretune.specification.job import JobSpec

DEVICE_MAP, ZERO3 = "device_map", "deepspeed_zero3"
DEEPSPEED = ("deepspeed", ZERO3)  # DeepSpeed with ZeRO stage 2 and 3
SHARDED = ("fsdp", "smp", ZERO3)  # strategies that share the weights
DIVISIONS = ("tensor_parallel_degree", "pipeline_parallel_degree", "hybrid_shard_degree", "cpu_offload")
"""Parameters of a job that define how its devices share the model; their defaults fit one device."""
OF_STRATEGY = ("strategy", *DIVISIONS)
OF_THE_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size")
"""Parameters of a job, and fields of its plan, that define the rows of a step."""

DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE = 16
REFERENCE_BATCH_SIZE = 16  # the global batch size for which learning rates are given
MICRO_BATCH_TOKENS = 16_384
"""A device's share of a step is split into micro-batches only above this many tokens. Smaller ones wait for kernel
launches: BERT base in bf16 on an H200 took 27 ms for 16 rows of 128 tokens, and 37 ms for 64."""
PART_TOKENS = 1024
"""Least tokens of a part of a batch in a pipeline; with fewer, devices wait for kernel launches. A layer of a model
with 7 billion weights has 113, of 20 us, and computes a token in 2.4 us: 72 x 4096^2 FLOP at half the peak of an
H100."""
LARGEST_BATCH_SIZE = 1_000_000  # per device and globally; messages never suggest a larger one


@dataclass(frozen=True, kw_only=True)
class ParallelDegrees:
    """The degrees of parallelism of one job; 1 means that a kind is not used.

        rank = ((stage x replicas + replica) x sharers + sharer) x tensor + member

    A group of `tensor` devices trains on the same rows; its members have adjacent ranks, because they exchange
    activations in every layer. The `sharers` of one copy of the weights come next, then its `replicas`, then the stages
    of a pipeline, which exchange least. Source of the order: PyTorch's DeviceMesh examples (torch 2.13, "Getting
    Started with DeviceMesh"), and AWS, "The SageMaker model parallel library v2 reference".

    `devices` is the number of devices of the whole job, one process each; those of one instance (`per_instance`) have
    faster links. `hybrid_shard` devices share one copy of the weights; None or 0 means all data-parallel devices.
    """

    devices: int
    per_instance: int
    tensor: int = 1
    pipeline: int = 1
    hybrid_shard: int | None = None

    @property
    def data(self) -> int:
        """Number of data-parallel devices, or groups of devices: each trains on its own rows."""
        return max(1, self.devices // (self.tensor * self.pipeline))

    @property
    def sharers(self) -> int:
        """Number of data-parallel devices that share one copy of the weights, if the strategy shards them."""
        return self.hybrid_shard or self.data

    @property
    def replicas(self) -> int:
        """Number of copies of the weights, if the strategy shards them."""
        return self.data // self.sharers

    def faults(self) -> list[str]:
        """Return the degrees that do not divide the devices, each with the degrees that do."""
        for name, degree in (("tensor_parallel_degree", self.tensor), ("pipeline_parallel_degree", self.pipeline)):
            if self.devices % degree:
                return [f"{name} must divide the {self.devices} devices, got {degree}: {_divisors(self.devices)}"]
        if self.per_instance % self.tensor:
            rule = f"tensor_parallel_degree must divide the {self.per_instance} devices of one instance"
            why = "its devices exchange activations in every layer"
            return [f"{rule}, got {self.tensor}: {why}; {_divisors(self.per_instance)}"]
        if self.data % self.sharers:
            rule = f"hybrid_shard_degree must divide the {self.data} devices that have their own rows"
            return [f"{rule}, got {self.hybrid_shard}: {_divisors(self.data)}, or 0 for all"]
        return []


def pipeline_parts(batch: int, stages: int, row_tokens: int) -> int:
    """Choose how many parts of a per-device batch follow each other through a pipeline, equal ones if possible.

    At least one for each stage, and at most four: then devices are idle for a fifth of the time at most (Huang et al.,
    arXiv 1811.06965, section 2.3). A batch with fewer than PART_TOKENS in each is not cut further.
    """
    most = min(4 * stages, batch * row_tokens // PART_TOKENS)
    equal = [parts for parts in range(stages, most + 1) if batch % parts == 0]
    return max(equal, default=stages) if stages > 1 else 1


def _divisors(number: int) -> str:
    divisors = [size for size in range(1, number + 1) if number % size == 0]
    return f"use {', '.join(map(str, divisors))}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """The rows of an optimizer step, split over data-parallel devices and micro-batches, and the learning rate."""

    per_device_train_batch_size: int  # rows of the largest micro-batch
    gradient_accumulation_steps: int
    devices: int
    learning_rate: float
    global_batch_size: int = 0
    """Training rows per optimizer step; 0 stands for the product of the three numbers."""

    def __post_init__(self) -> None:
        if not self.global_batch_size:
            rows = self.per_device_train_batch_size * self.devices * self.gradient_accumulation_steps
            object.__setattr__(self, "global_batch_size", rows)

    def with_less_memory(self) -> "BatchPlan | None":
        """Divide the per-device batch by its smallest factor at the same global batch size; None at batch 1."""
        batch = self.per_device_train_batch_size
        factor = next((factor for factor in range(2, batch + 1) if batch % factor == 0), None)
        if factor is None:
            return None
        steps = -(-self.global_batch_size // (self.devices * batch // factor))
        return replace(self, per_device_train_batch_size=batch // factor, gradient_accumulation_steps=steps)


def plan_batch(job: "JobSpec", *, devices: int, learning_rate: float) -> BatchPlan:
    """Plan the batch on this many devices; `learning_rate` is the rate at the reference batch size.

    Without `global_batch_size`, the per-device batch is 16 and accumulation 1 unless set. With it, the one that is not
    set follows from the other. If neither is set, a device computes its share of a step at once, in micro-batches of
    MICRO_BATCH_TOKENS if it is longer; a script of the user's own in the largest divisor up to 16. Raises BadInput with
    all possible parts if the parts do not give `global_batch_size`.
    """
    batch = job.per_device_train_batch_size or DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE
    steps = job.gradient_accumulation_steps or 1
    if job.global_batch_size is not None:
        batch, steps = _split(job, job.global_batch_size, devices)
    total = job.global_batch_size or batch * steps * devices
    return BatchPlan(
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=steps,
        devices=devices,
        learning_rate=scale_learning_rate(learning_rate, job.learning_rate_scaling, total),
        global_batch_size=total,
    )


def scale_learning_rate(learning_rate: float, learning_rate_scaling: str, global_batch_size: int) -> float:
    """Scale the learning rate from REFERENCE_BATCH_SIZE to `global_batch_size`.

    `linear`: proportional to the batch (Goyal et al., arXiv 1706.02677). `sqrt`: to its square root, which keeps the
    variance of Adam's steps (Malladi et al., arXiv 2205.10287). `none`: unchanged.
    """
    exponent = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}[learning_rate_scaling]
    return learning_rate * math.pow(global_batch_size / REFERENCE_BATCH_SIZE, exponent)


def _split(job: "JobSpec", total: int, devices: int) -> tuple[int, int]:
    if total % devices:
        below = total - total % devices
        multiples = " or ".join(str(size) for size in (below, below + devices) if 0 < size <= LARGEST_BATCH_SIZE)
        raise BadInput([f"global_batch_size must be a multiple of the {devices} devices, got {total}: use {multiples}"])
    share, is_script = total // devices, job.runs_user_code  # whose micro-batches are of one size
    batch, accumulation = job.per_device_train_batch_size, job.gradient_accumulation_steps
    small = [size for size in range(1, math.isqrt(share) + 1) if share % size == 0]
    divisors = sorted({*small, *(share // size for size in small)})
    if batch is None and accumulation is None and is_script:
        batch = max(size for size in divisors if size <= DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE)
    elif batch is None:
        most = max(DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE, MICRO_BATCH_TOKENS // job.max_seq_length)
        batch = -(-share // (accumulation or -(-share // most)))
    steps = -(-share // batch)
    if accumulation in (None, steps) and (batch in divisors or (not is_script and batch <= share)):
        return batch, steps
    parts = {
        "per_device_train_batch_size": job.per_device_train_batch_size,
        "gradient_accumulation_steps": accumulation,
    }
    conditions = " and ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
    listed = divisors if len(divisors) <= 16 else [*divisors[:8], *divisors[-8:]]
    pairs = ", ".join(f"{size} x {share // size}" for size in listed)
    rule = f"global_batch_size {total} on {devices} device{'s' if devices > 1 else ''} cannot be made with {conditions}"
    raise BadInput([f"{rule}: possible per_device_train_batch_size x gradient_accumulation_steps are {pairs}"])
