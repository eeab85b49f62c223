"""The division of one job over devices: strategies, and the degrees of parallelism that follow from the parameters."""

from dataclasses import dataclass

DEVICE_MAP, ZERO3 = "device_map", "deepspeed_zero3"
DEEPSPEED = ("deepspeed", ZERO3)  # DeepSpeed with ZeRO stage 2 and 3
SHARDED = ("fsdp", "smp", ZERO3)  # strategies that share the weights
OF_STRATEGY = (
    *("strategy", "tensor_parallel_degree", "pipeline_parallel_degree", "micro_batches", "hybrid_shard_degree"),
    *("activation_offloading", "cpu_offload"),
)
"""Parameters of a job that say how it is spread over devices; their defaults are right for one device."""


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
