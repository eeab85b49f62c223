"""How one job is divided over devices: strategies, degrees of parallelism, the batch plan and its learning rate.

    global batch size = per-device batch x devices x gradient accumulation steps

The micro-batches of a step may differ by one row: 127 rows in two micro-batches on one device have 64 and 63.
`devices` counts the data-parallel devices of the whole cluster. On this machine, each "instance" is one process with
one device.
"""

import math
from dataclasses import dataclass, replace

from paretune.core.errors import BadInput

DEVICE_MAP, ZERO3 = "device_map", "deepspeed_zero3"
ZERO2 = ("deepspeed",)  # it divides gradients and optimizer states, and each device holds all weights
DEEPSPEED = (*ZERO2, ZERO3)  # DeepSpeed with ZeRO stage 2 and 3
DATA_PARALLEL = "dp"  # torch's DataParallel: one process computes on all GPUs of an instance
SHARDED = ("fsdp", "smp", ZERO3)  # strategies that shard the weights over devices
DIVISIONS = ("tensor_parallel_degree", "pipeline_parallel_degree", "hybrid_shard_degree", "cpu_offload")
"""Parameters that, together with `strategy`, define how devices share the model."""
OF_STRATEGY = ("strategy", *DIVISIONS)
OF_THE_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size")
"""Parameters of a job, and fields of its batch plan, that define the number of rows in a step."""

DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE = 16
TRAINERS_BATCH_SIZE = 8  # default of per_device_train_batch_size in Hugging Face's Trainer
REFERENCE_BATCH_SIZE = 16  # the global batch size that the parameter learning_rate is meant for
MICRO_BATCH_TOKENS = 16_384
"""By default, a device splits its share of a step into micro-batches only if the share has more tokens than this and
more than 16 rows. Small micro-batches waste time on kernel launches: BERT base in bf16 on an H200 took 27 ms for 16
rows of 128 tokens, and 37 ms for 64 such rows."""
PART_TOKENS = 1024
"""A pipeline splits a batch into more parts than it has stages only if each part has at least this many tokens. With
fewer, devices wait for kernel launches: a layer of a model with 7 billion weights launches 113 kernels, which take 20
us each, and computes a token in 2.4 us (72 x 4096^2 FLOP at half the peak of an H100)."""
LARGEST_BATCH_SIZE = 1_000_000  # per device and globally; messages never suggest a larger one


@dataclass(frozen=True, kw_only=True)
class ParallelDegrees:
    """The strategy and the degrees of parallelism of one job. A degree of 1 means that such parallelism is not used.

        rank = ((stage x replicas + replica) x sharers + sharer) x tensor + member

    `stage`, `replica`, `sharer` and `member` are indices. The `tensor` members of a tensor group train on the same
    rows. They have adjacent ranks, because they exchange activations in every layer. Next come the `sharers` of one
    copy of the weights, then the `replicas` of that copy, and last the stages of a pipeline, which exchange least.
    Source of the order: PyTorch's DeviceMesh examples (torch 2.13, "Getting Started with DeviceMesh"), and AWS, "The
    SageMaker model parallel library v2 reference".

    `devices` is the number of devices in the whole job, with one process each. The `per_instance` devices in one
    instance have faster links to each other. `hybrid_shard` devices share one copy of the weights; None or 0 means all
    data-parallel devices.
    """

    devices: int
    per_instance: int
    tensor: int = 1
    pipeline: int = 1
    hybrid_shard: int | None = None
    strategy: str = "ddp"
    cpu_offload: bool = False

    @property
    def data(self) -> int:
        """Number of data-parallel devices, or groups of devices, each of which trains on its own rows."""
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
        """Return a fault for the first degree that does not divide the number of its devices, with degrees that do."""
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
    """Return the number of parts into which a pipeline splits a per-device batch; 1 if there is only one stage.

    There are one to four parts per stage, of equal size if possible. With four, devices are idle for at most a fifth of
    the time (Huang et al., arXiv 1811.06965, section 2.3). There are more parts than stages only if each part has at
    least PART_TOKENS tokens.
    """
    most = min(4 * stages, batch * row_tokens // PART_TOKENS)
    equal = [parts for parts in range(stages, most + 1) if batch % parts == 0]
    return max(equal, default=stages) if stages > 1 else 1


def _divisors(number: int) -> str:
    divisors = [size for size in range(1, number + 1) if number % size == 0]
    return f"use {', '.join(map(str, divisors))}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """The learning rate, and how the rows of an optimizer step are split over devices and micro-batches."""

    per_device_train_batch_size: int  # rows of the largest micro-batch
    gradient_accumulation_steps: int
    devices: int
    learning_rate: float
    global_batch_size: int = 0
    """Training rows per optimizer step. 0 is replaced by per-device batch x accumulation steps x devices."""

    def __post_init__(self) -> None:
        if not self.global_batch_size:
            rows = self.per_device_train_batch_size * self.devices * self.gradient_accumulation_steps
            object.__setattr__(self, "global_batch_size", rows)

    def in_parts(self, most: int) -> "BatchPlan":
        """Return a plan of the same global batch size, in as few micro-batches of at most `most` rows as possible."""
        share = -(-self.global_batch_size // self.devices)
        steps = -(-share // most)
        return replace(self, per_device_train_batch_size=-(-share // steps), gradient_accumulation_steps=steps)

    def with_less_memory(self) -> "BatchPlan | None":
        """Return a plan with a smaller per-device batch and the same global batch size.

        The per-device batch is divided by its smallest prime factor. Returns None if it is already a single row.
        """
        batch = self.per_device_train_batch_size
        factor = next((factor for factor in range(2, batch + 1) if batch % factor == 0), None)
        if factor is None:
            return None
        steps = -(-self.global_batch_size // (self.devices * batch // factor))
        return replace(self, per_device_train_batch_size=batch // factor, gradient_accumulation_steps=steps)


def scale_learning_rate(learning_rate: float, learning_rate_scaling: str, global_batch_size: int) -> float:
    """Scale the learning rate from REFERENCE_BATCH_SIZE to `global_batch_size`.

    `linear`: proportional to the batch size (Goyal et al., arXiv 1706.02677). `sqrt`: proportional to its square root,
    which keeps the variance of Adam's steps (Malladi et al., arXiv 2205.10287). `none`: unchanged.
    """
    exponent = {"none": 0.0, "sqrt": 0.5, "linear": 1.0}[learning_rate_scaling]
    return learning_rate * math.pow(global_batch_size / REFERENCE_BATCH_SIZE, exponent)


def split_batch(
    total: int, devices: int, batch: int | None, accumulation: int | None, *, most: int, is_script: bool
) -> tuple[int, int]:
    """Return per-device batch and accumulation steps; those of the two that are None are chosen: see `JobSpec.plan`.

    `total` is the global batch size. A chosen micro-batch has at most `most` rows. Raises BadInput with possible values
    if the devices cannot share `total` evenly, or if the given values do not result in it.
    """
    if total % devices:
        below = total - total % devices
        multiples = " or ".join(str(size) for size in (below, below + devices) if 0 < size <= LARGEST_BATCH_SIZE)
        raise BadInput([f"global_batch_size must be a multiple of the {devices} devices, got {total}: use {multiples}"])
    share, given = total // devices, batch
    small = [size for size in range(1, math.isqrt(share) + 1) if share % size == 0]
    divisors = sorted({*small, *(share // size for size in small)})
    if batch is None and accumulation is None and is_script:  # its micro-batches all have the same size
        batch = max(size for size in divisors if size <= DEFAULT_PER_DEVICE_TRAIN_BATCH_SIZE)
    elif batch is None:
        batch = -(-share // (accumulation or -(-share // most)))
    steps = -(-share // batch)
    if accumulation in (None, steps) and (batch in divisors or (not is_script and batch <= share)):
        return batch, steps
    parts = {"per_device_train_batch_size": given, "gradient_accumulation_steps": accumulation}
    conditions = " and ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
    listed = divisors if len(divisors) <= 16 else [*divisors[:8], *divisors[-8:]]
    pairs = ", ".join(f"{size} x {share // size}" for size in listed)
    rule = f"global_batch_size {total} on {devices} device{'s' if devices > 1 else ''} is impossible with {conditions}"
    raise BadInput([f"{rule}: possible per_device_train_batch_size x gradient_accumulation_steps are {pairs}"])
