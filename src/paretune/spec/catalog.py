"""SageMaker's training instances and what is in them; what an hour costs is in `prices`."""

import csv
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from paretune.core.errors import BadInput, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance type of SageMaker Training.

    `accelerator` is the model of the GPU or chip, none for a CPU instance; `accelerator_memory_gib` the nominal memory
    of one accelerator; `network_gbps` the highest network bandwidth, Gbit/s; `memory_gib` main memory;
    `local_storage_gib` its own NVMe disks, 0 for none. Source of the disks: InstanceStorageInfo of EC2
    DescribeInstanceTypes, as moto 5.2.5 holds it, read 2026-11-21.
    """

    instance_type: str
    accelerator: str
    accelerator_count: int
    accelerator_memory_gib: float
    network_gbps: float
    vcpus: int
    memory_gib: float
    local_storage_gib: int

    @property
    def family(self) -> str:
        """The middle of the name: g5 of ml.g5.12xlarge."""
        return self.instance_type.split(".")[1]

    @property
    def has_gpu(self) -> bool:
        """Whether its accelerators are NVIDIA GPUs."""
        return self.accelerator.startswith("NVIDIA")

    @property
    def has_local_storage(self) -> bool:
        """Whether it trains on NVMe disks of its own, encrypted by hardware: no KMS key may be named for them."""
        return self.local_storage_gib > 0


def instance(instance_type: str) -> Instance:
    """What is known of an instance type.

    Raises:
        BadInput: it is not in the catalogue; the message names the nearest ones.
    """
    if instance_type not in instances():
        raise BadInput([unknown_type(instance_type, instances())])
    return instances()[instance_type]


def unknown_type(instance_type: str, known: Collection[str]) -> str:
    """The sentence that refuses a type that is not in `known`."""
    hint = did_you_mean(instance_type, known, lead=": ", cutoff=0.7)
    return f"instance_type must be one of the {len(known)} known types, got {instance_type!r}{hint}"


@cache
def rows() -> tuple[dict[str, str], ...]:
    """The lines of instances.csv: a type each, with its price."""
    lines = files("paretune.spec").joinpath("instances.csv").read_text(encoding="utf-8").splitlines()
    return tuple(csv.DictReader(lines))


@cache
def instances() -> dict[str, Instance]:
    """All known types by name."""
    return {
        row["instance_type"]: Instance(
            instance_type=row["instance_type"],
            accelerator=row["accelerator"],
            accelerator_count=int(row["accelerator_count"]),
            accelerator_memory_gib=float(row["accelerator_memory_gb"]),
            network_gbps=float(row["network_gbps"]),
            vcpus=int(row["vcpus"]),
            memory_gib=float(row["memory_gb"]),
            local_storage_gib=int(float(row["local_storage_gb"]) * 1e9 / 2**30),
        )
        for row in rows()
    }
