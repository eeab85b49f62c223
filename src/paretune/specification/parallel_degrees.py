"""How the devices of one job are divided: which share rows, layers, matrices and weights.

    rank = ((stage x replicas + replica) x sharers + sharer) x group + member

A `group` of tensor x context parallel devices trains on the same rows; its members have adjacent ranks, because they
exchange activations in every layer. The `sharers` of one copy of the weights come next, then its `replicas`, then the
stages of a pipeline, which exchange least. Source of the order: PyTorch's DeviceMesh examples (torch 2.13,
"Getting Started with DeviceMesh"), and AWS, "The SageMaker model parallel library v2 reference".
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ParallelDegrees:
    """The degrees of parallelism of one job; 1 means none of a kind.

    Attributes:
        devices: of the whole job, one process each.
        per_instance: devices of one instance, which are linked faster than instances are.
        tensor: devices that share the matrices of a layer; `context` share a sequence, `expert` a layer's experts.
        pipeline: stages, each with its part of the layers.
        hybrid_shard: devices that share one copy of the weights; None or 0 for all that have rows of their own.
    """

    devices: int
    per_instance: int
    tensor: int = 1
    context: int = 1
    expert: int = 1
    pipeline: int = 1
    hybrid_shard: int | None = None

    @property
    def group(self) -> int:
        """Devices that train on the same rows in the same stage."""
        return self.tensor * self.context

    @property
    def data(self) -> int:
        """Devices, or groups of them, that train on rows of their own."""
        return max(1, self.devices // (self.group * self.pipeline))

    @property
    def sharers(self) -> int:
        """Of `data`, how many share one copy of the weights where a strategy shares them."""
        return self.hybrid_shard or self.data

    @property
    def replicas(self) -> int:
        """Copies of the weights where a strategy shares them."""
        return self.data // self.sharers

    def data_rank(self, rank: int) -> int:
        """Number of the process among those with rows of their own, from 0 to `data` - 1."""
        return rank // self.group % self.data

    def is_first_with_its_rows(self, rank: int) -> bool:
        """Whether no process of a lower rank trains on the same rows: the first of its group, in the first stage."""
        return rank % self.group == 0 and self.stage(rank) == 0

    def stage(self, rank: int) -> int:
        """The stage of the process, from 0 to `pipeline` - 1."""
        return rank // (self.group * self.data)

    def faults(self) -> list[str]:
        """What the devices cannot be divided into, each with what is possible; empty if nothing is wrong."""
        asked = {
            "tensor_parallel_degree": self.tensor,
            "context_parallel_degree": self.context,
            "pipeline_parallel_degree": self.pipeline,
        }
        given = {name: degree for name, degree in asked.items() if degree > 1}
        product = " x ".join(str(degree) for degree in given.values())
        found = []
        if self.devices % (self.group * self.pipeline):
            named = " x ".join(given)
            found.append(f"{named} must divide the {self.devices} devices, got {product}: {_possible(self.devices)}")
        elif self.per_instance % self.tensor:
            found.append(
                f"tensor_parallel_degree must divide the {self.per_instance} devices of one instance, got "
                f"{self.tensor}: its devices exchange activations in every layer; {_possible(self.per_instance)}"
            )
        if self.devices % self.expert:
            found.append(f"expert_parallel_degree must divide the {self.devices} devices, got {self.expert}")
        if not found and self.data % self.sharers:
            found.append(
                f"hybrid_shard_degree must divide the {self.data} devices with rows of their own, got "
                f"{self.hybrid_shard}: {_possible(self.data)}, or 0 for all"
            )
        return found


def _possible(whole: int) -> str:
    divisors = [size for size in range(1, whole + 1) if whole % size == 0]
    return f"use {', '.join(map(str, divisors))}"
