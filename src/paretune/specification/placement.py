"""The placement of a job: cluster, parallelism, limits and account together, and the rules between them.

Facts that only an account knows (quotas, images, permissions) are checked by its launcher.
"""

from dataclasses import dataclass, replace
from typing import Self

from paretune.core.errors import BadInput, collecting
from paretune.specification import catalog
from paretune.specification.account import AccountSettings, network_faults, owner_faults
from paretune.specification.cluster import Cluster, simulation_faults
from paretune.specification.limits import (
    Limits,
    spot_faults,
)
from paretune.specification.parallelism import DEEPSPEED, DEVICE_MAP, ParallelDegrees, Parallelism, parallelism_faults
from paretune.specification.parameters import split_list

SMDDP_INSTANCE_TYPES = ("ml.p4d.24xlarge", "ml.p4de.24xlarge")
"""AWS, "Supported frameworks, regions and instance types" of SMDDP; older ones (p3) have no current image."""
SMP_FAMILIES = ("p4d", "p4de", "p5", "p5e", "p5en")  # AWS, "Supported instance types" of SMP v2


@dataclass(frozen=True, kw_only=True)
class Placement(AccountSettings, Limits, Cluster, Parallelism):
    """All sections of a job but those about its training. Fields are in the order of the bases, the last one first."""

    @property
    def degrees(self) -> ParallelDegrees:
        """The degrees of parallelism of the whole cluster."""
        devices = self.processes * self.instance_count
        return ParallelDegrees(
            devices=devices,
            per_instance=self.processes if self.has_instances else devices,  # locally all are on one machine
            tensor=self.tensor_parallel_degree or 1,
            pipeline=devices if self.strategy == DEVICE_MAP else self.pipeline_parallel_degree or 1,
            hybrid_shard=self.hybrid_shard_degree,
        )

    @property
    def batch_parts(self) -> int:
        """Micro-batches that a per-device batch is split into; with a device_map 1, so one device works at a time."""
        return self.micro_batches or (1 if self.strategy == DEVICE_MAP else self.degrees.pipeline)

    @property
    def data_parallel_devices(self) -> int:
        """Number of devices, or groups of devices, that train on rows of their own, over the whole cluster."""
        return self.degrees.data

    def instance_types(self) -> tuple[str, ...]:
        """The instance type and its fallbacks, each once."""
        return tuple(dict.fromkeys((self.instance_type, *split_list(self.fallback_instance_types))))

    def clusters(self) -> tuple[Self, ...]:
        """The job on its instance type, then on each of the fallbacks."""
        return (self, *(self.on_instance_type(name) for name in self.instance_types()[1:]))

    def on_instance_type(self, instance_type: str) -> Self:
        """The same job on another instance type."""
        return replace(self, **self._changes_for(instance_type))  # type: ignore[arg-type]  # names of fields

    def _changes_for(self, instance_type: str) -> dict[str, object]:
        is_same = instance_type == self.instance_type
        return {
            "instance_type": instance_type,
            "fallback_instance_types": None,
            "processes_per_instance": self.processes_per_instance if is_same else None,
        }


def placement_faults(placement: Placement) -> list[str]:
    """All faults of the sections, and contradictions between them."""
    faults = parallelism_faults(placement) + simulation_faults(placement) + owner_faults(placement)
    if placement.strategy == DEVICE_MAP and (placement.instance_count > 1 or placement.processes_per_instance):
        rule = "strategy device_map puts the layers of one model on the GPUs of one instance"
        faults.append(f"{rule}: set instance_count=1 and leave processes_per_instance out, or set strategy=fsdp")
    if fact_faults := catalog.fact_faults(placement.instance_facts):
        return faults + fact_faults
    if not placement.has_instances:
        return faults + _local_faults(placement) + ([] if faults else placement.degrees.faults())
    if not placement.instance_type.startswith("ml."):
        rule = "launcher sagemaker needs an instance_type such as ml.g5.xlarge"
        return [*faults, f"{rule}, got {placement.instance_type!r}"]
    for instance_type in placement.instance_types():
        with collecting(faults):
            chip = placement.instance(instance_type).accelerator
            if chip.startswith("AWS"):
                faults.append(f"instance_type {instance_type} has {chip} chips, which paretune cannot use")
    degree_faults = [] if faults else placement.degrees.faults()
    faults += spot_faults(placement) + network_faults(placement)
    return faults + _warm_pool_faults(placement) + _volume_faults(placement) + degree_faults


def _local_faults(placement: Placement) -> list[str]:
    faults = []
    if placement.launcher == "local" and placement.instance_type.startswith("ml."):
        rule = f"launcher local runs on this machine, got instance_type={placement.instance_type}"
        faults.append(f"{rule}: leave one out")
    elif placement.instance_type != "local":
        hint = catalog.similar_types(placement.instance_type, catalog.instances())
        rule = "instance_type must be local or one of SageMaker's (ml.*)"
        faults.append(f"{rule}, got {placement.instance_type!r}{hint}")
    if placement.strategy in {"smddp", "smp", *DEEPSPEED}:
        faults.append(f"strategy {placement.strategy} needs GPU instances of SageMaker: set instance_type, or use ddp")
    if placement.processes_per_instance is not None:
        faults.append("processes_per_instance is for SageMaker: locally an instance is one process")
    if placement.spot:
        faults.append("spot is for SageMaker: set instance_type to one of its types (ml.*)")
    if placement.fallback_instance_types is not None:
        faults.append("fallback_instance_types is for SageMaker: set instance_type too, or leave it out")
    return faults


def _warm_pool_faults(placement: Placement) -> list[str]:
    if placement.keep_alive_minutes and placement.spot:
        return ["keep_alive_minutes and spot exclude each other: AWS keeps no warm pool of spot instances"]
    return []


def _volume_faults(placement: Placement) -> list[str]:
    """Disks that cannot be enlarged. Source: ProcessingClusterConfig and ResourceConfig, VolumeSizeInGB (botocore)."""
    faults = []
    for name in placement.instance_types():
        try:
            local_gib = placement.instance(name).local_storage_gib
        except BadInput:  # already reported
            continue
        if 0 < local_gib < (placement.volume_gib or 0):
            rule = f"volume_gib must be at most {local_gib} for {name}, which has disks of its own and no other volume"
            faults.append(f"{rule}, got {placement.volume_gib}: leave it out, or take a larger instance_type")
    return faults


def unsupported(placement: Placement) -> list[str]:
    """Instance types that do not support the strategy or the number of processes, one fault each."""
    faults = []
    for instance_type in placement.instance_types():
        instance = placement.instance(instance_type)
        if placement.strategy == "smddp" and instance_type not in SMDDP_INSTANCE_TYPES:
            rule = f"strategy smddp needs {' or '.join(SMDDP_INSTANCE_TYPES)}"
            faults.append(f"{rule}, got {instance_type}: use ddp, which uses NCCL, on all others")
        elif placement.strategy == "smp" and instance.family not in SMP_FAMILIES:
            rule = f"strategy smp needs an instance of {', '.join(SMP_FAMILIES)}"
            faults.append(f"{rule}, got {instance_type}: use fsdp, or another instance_type")
        elif placement.strategy in DEEPSPEED and not instance.has_gpu:
            faults.append(f"strategy {placement.strategy} needs GPUs, and {instance_type} has none: use fsdp or ddp")
        processes, most = placement.processes_per_instance, instance.accelerator_count
        if processes and 0 < most < processes:
            rule = f"processes_per_instance must be at most {most}, one per GPU of {instance_type}"
            faults.append(f"{rule}, got {processes}: lower it, or leave it out")
    return faults
