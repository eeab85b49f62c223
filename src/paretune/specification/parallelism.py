"""The division of one job over devices: the parameters, and the degrees of parallelism that follow from them."""

from dataclasses import MISSING, dataclass, fields
from typing import Any

from paretune.specification.parameters import STEP, parameter

DEVICE_MAP, ZERO3 = "device_map", "deepspeed_zero3"
DEEPSPEED = ("deepspeed", ZERO3)  # DeepSpeed with ZeRO stage 2 and 3
SHARDED = ("fsdp", "smp", ZERO3)  # strategies that share the weights
STRATEGIES = ("ddp", "fsdp", "smddp", "smp", *DEEPSPEED, DEVICE_MAP)
ZERO3_LIVE = 10**9  # most weights gathered on a device with ZeRO 3: DeepSpeed's default `stage3_max_live_parameters`
_STRATEGIES_OF = {
    "hybrid_shard_degree": ("fsdp", "smp"),
    "tensor_parallel_degree": ("fsdp", "smp"),
    "pipeline_parallel_degree": ("fsdp",),
    "cpu_offload": ("fsdp",),
}
"""Parameter to the only strategies that accept it."""


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """Section of a job: the strategy and its degrees."""

    strategy: str = parameter(
        "ddp",
        "how one job is spread over devices",
        choices=STRATEGIES,
        affects=STEP,
        group="strategy: how one job is spread over devices",
    )
    hybrid_shard_degree: int | None = parameter(
        None, "fsdp, smp: number of devices that share one copy of the weights; 0 = all", minimum=0, affects=STEP
    )
    tensor_parallel_degree: int | None = parameter(
        None, "fsdp, smp: number of devices of one instance that split each layer's matrices", minimum=1, affects=STEP
    )
    pipeline_parallel_degree: int | None = parameter(
        None, "fsdp: number of pipeline stages, each with a part of the layers", minimum=1, affects=STEP
    )
    micro_batches: int | None = parameter(
        None,
        "pipeline: micro-batches that a per-device batch is split into; by default one per stage",
        minimum=1,
        affects=STEP,
    )
    activation_checkpointing: bool = parameter(
        False,
        "save memory: keep only the input of each layer and recompute the rest in the backward pass",
        affects=STEP,
    )
    activation_offloading: bool = parameter(
        False, "save device memory: move checkpointed activations to main memory", affects=STEP
    )
    cpu_offload: bool = parameter(
        False, "fsdp: keep weights, gradients and optimiser state in main memory", affects=STEP
    )


def single_device_defaults() -> dict[str, Any]:
    """The parameters of `Parallelism` with their defaults, which are the right values for one device."""
    return {item.name: {} if item.default is MISSING else item.default for item in fields(Parallelism)}


def parallelism_faults(section: Parallelism) -> list[str]:
    """Parameters that the strategy does not accept, or that exclude each other."""
    misplaced: dict[tuple[str, ...], list[str]] = {}
    for name, strategies in _STRATEGIES_OF.items():
        value = getattr(section, name)
        is_used = value if not name.endswith("_parallel_degree") else (value or 1) > 1
        if is_used and section.strategy not in strategies:
            misplaced.setdefault(strategies, []).append(name)
    faults = [
        f"{', '.join(names)} go{'es' if len(names) == 1 else ''} with strategy={' or '.join(strategies)}, got "
        f"strategy={section.strategy}"
        for strategies, names in misplaced.items()
    ]
    tensor, stages = section.tensor_parallel_degree or 1, section.pipeline_parallel_degree or 1
    if section.micro_batches and stages == 1:
        faults.append("micro_batches are those of a pipeline: set pipeline_parallel_degree above 1, or leave it out")
    if section.strategy != "smp" and section.activation_offloading and not section.activation_checkpointing:
        faults.append("activation_offloading keeps checkpointed activations: set activation_checkpointing=true too")
    if stages > 1 and tensor > 1:
        faults.append(
            f"pipeline_parallel_degree and tensor_parallel_degree exclude each other, got {stages} and {tensor}: set "
            "one of them to 1"
        )
    return faults


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
        """Number of data-parallel devices, or groups of devices: each trains on rows of its own."""
        return max(1, self.devices // (self.tensor * self.pipeline))

    @property
    def sharers(self) -> int:
        """Number of data-parallel devices that share one copy of the weights, if the strategy shards them."""
        return self.hybrid_shard or self.data

    @property
    def replicas(self) -> int:
        """Number of copies of the weights, if the strategy shards them."""
        return self.data // self.sharers

    def data_rank(self, rank: int) -> int:
        """Data-parallel rank of a process, from 0 to `data` - 1."""
        return rank // self.tensor % self.data

    def is_last_with_its_rows(self, rank: int) -> bool:
        """Whether a process is the first one in the last stage of all that train on the same rows."""
        return rank % self.tensor == 0 and self.stage(rank) == self.pipeline - 1

    def stage(self, rank: int) -> int:
        """Pipeline stage of a process, from 0 to `pipeline` - 1."""
        return rank // (self.tensor * self.data)

    def faults(self) -> list[str]:
        """Degrees that do not divide the devices, each with the degrees that do."""
        degrees = {"tensor_parallel_degree": self.tensor, "pipeline_parallel_degree": self.pipeline}
        used = {name: degree for name, degree in degrees.items() if degree > 1}
        faults = []
        if self.devices % (self.tensor * self.pipeline):
            names, product = " x ".join(used), " x ".join(map(str, used.values()))
            faults.append(f"{names} must divide the {self.devices} devices, got {product}: {_divisors(self.devices)}")
        elif self.per_instance % self.tensor:
            faults.append(
                f"tensor_parallel_degree must divide the {self.per_instance} devices of one instance, got "
                f"{self.tensor}: its devices exchange activations in every layer; {_divisors(self.per_instance)}"
            )
        if not faults and self.data % self.sharers:
            faults.append(
                f"hybrid_shard_degree must divide the {self.data} devices with rows of their own, got "
                f"{self.hybrid_shard}: {_divisors(self.data)}, or 0 for all"
            )
        return faults


def _divisors(number: int) -> str:
    divisors = [size for size in range(1, number + 1) if number % size == 0]
    return f"use {', '.join(map(str, divisors))}"
