"""The devices of a job as a mesh, in the order of `spec.parallel_degrees`."""

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from paretune.specification.parallel_degrees import ParallelDegrees

PIPELINE, REPLICATE, SHARD, TENSOR = "pipeline", "replicate", "shard", "tensor"
"""Names of the dimensions, in the order of the ranks: those of tensor groups are adjacent."""


def mesh_of(degrees: ParallelDegrees, device_type: str) -> DeviceMesh:
    """All processes of the job: stages x copies of the weights x sharers of a copy x members of a tensor group.

    The process group must be initialised. `device_type` is `cuda` or `cpu`.
    """
    shape = (degrees.pipeline, degrees.replicas, degrees.sharers, degrees.group)
    return init_device_mesh(device_type, shape, mesh_dim_names=(PIPELINE, REPLICATE, SHARD, TENSOR))
