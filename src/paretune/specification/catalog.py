"""SageMaker's training instances and what is in them; what an hour costs is in `prices`.

instances.csv holds every type of CreateTrainingJob's TrainingInstanceType (botocore 1.44.5) but for those of which only
the name is known: they, and types that are newer, are described by the parameter `instance_facts`.
"""

import csv
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from paretune.core.errors import BadInput, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance type of SageMaker Training.

    `accelerator` is the model of the GPU or chip, none for a CPU instance; `accelerator_memory_gib` the nominal memory
    of one accelerator; `network_gbps` the highest network bandwidth, Gbit/s, and `sustained_gbps` the one that lasts,
    None where it is not known; `memory_gib` main memory; `local_storage_gib` its own NVMe disks, 0 for none. Source of
    disks and sustained bandwidth: InstanceStorageInfo and BaselineBandwidthInGbps of EC2 DescribeInstanceTypes, as moto
    5.2.5 holds them, read 2026-11-21; of the withdrawn ml.p3.2xlarge, that of other types with 8 processors.
    """

    instance_type: str
    accelerator: str
    accelerator_count: int
    accelerator_memory_gib: float
    network_gbps: float
    vcpus: int
    memory_gib: float
    local_storage_gib: int = 0
    sustained_gbps: float | None = None

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


FACTS = {
    "gpu": "accelerator",
    "gpus": "accelerator_count",
    "gpu_memory_gib": "accelerator_memory_gib",
    "network_gbps": "network_gbps",
    "vcpus": "vcpus",
    "memory_gib": "memory_gib",
    "local_storage_gib": "local_storage_gib",
}
"""What `instance_facts` may say of a type, and the field of `Instance` it is."""
FACTS_EXAMPLE = (
    '{"ml.p9.48xlarge": {"gpu": "H200", "gpus": 8, "gpu_memory_gib": 141, "network_gbps": 3200, "vcpus": 192, '
    '"memory_gib": 2048, "local_storage_gib": 28312}}'
)
"""An `instance_facts`."""


def instance(instance_type: str, facts: Mapping[str, Any] | None = None) -> Instance:
    """What is known of an instance type; `facts`, an `instance_facts`, comes before the catalogue.

    Raises:
        BadInput: it is not in the catalogue, nor in `facts`; the message names the nearest ones.
    """
    told = (facts or {}).get(instance_type)
    known = instances().get(instance_type)
    if told:
        return _described(instance_type, told, known)
    if known is None:
        raise BadInput([f"{unknown_type(instance_type, instances())}; instance_facts can describe another one"])
    return known


def fact_faults(facts: Mapping[str, Any]) -> list[str]:
    """What is wrong with an `instance_facts`; empty if nothing is."""
    found = []
    for name, told in facts.items():
        if not name.startswith("ml.") or name.count(".") != 2 or not isinstance(told, Mapping):
            found.append(
                f"instance_facts must map types to what they have, such as {FACTS_EXAMPLE}, got {name!r}: {told!r}"
            )
            continue
        if unknown := [fact for fact in told if fact not in FACTS]:
            found.append(f"instance_facts must be of {', '.join(FACTS)}, got {', '.join(unknown)} for {name}")
        found += [fault for fact, value in told.items() if fact in FACTS for fault in _value_faults(name, fact, value)]
        missing = [fact for fact in _needed(told) if fact not in told]
        if missing and name not in instances():
            found.append(f"instance_facts must also say {', '.join(missing)} for {name}, which is not in the catalogue")
    return found


def _value_faults(name: str, fact: str, value: object) -> list[str]:
    if fact == "gpu":
        return [] if isinstance(value, str) else [f"instance_facts: gpu of {name} must be a name, got {value!r}"]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    least = 1 if fact in {"vcpus", "memory_gib"} else 0
    is_whole = fact not in {"gpus", "vcpus"} or isinstance(value, int)
    if is_number and is_whole and value >= least:  # type: ignore[operator]  # a number
        return []
    return [f"instance_facts: {fact} of {name} must be a number of at least {least}, got {value!r}"]


def _needed(told: Mapping[str, Any]) -> tuple[str, ...]:
    """Facts without which a new type cannot be used."""
    return ("gpus", *(("gpu", "gpu_memory_gib") if told.get("gpus") else ()), "network_gbps", "vcpus", "memory_gib")


def _described(instance_type: str, told: Mapping[str, Any], known: Instance | None) -> Instance:
    values: dict[str, Any] = {FACTS[fact]: value for fact, value in told.items()}
    if "gpu" in told:
        values["accelerator"] = f"NVIDIA {told['gpu'].removeprefix('NVIDIA').strip()}"
    before = {"accelerator": "none", "accelerator_memory_gib": 0.0} if known is None else asdict(known)
    return Instance(**(before | {"instance_type": instance_type} | values))


def unknown_type(instance_type: str, known: Collection[str]) -> str:
    """The sentence that refuses a type that is not in `known`."""
    hint = meant_type(instance_type, known)
    return f"instance_type must be one of the {len(known)} known types, got {instance_type!r}{hint}"


def meant_type(instance_type: str, known: Collection[str]) -> str:
    """The question whether one of at most three known types was meant, behind a colon; empty where none is similar."""
    name = f"ml.{instance_type.removeprefix('ml.')}"
    return did_you_mean(name, known, lead=": ", most=1 if name in known else 3, cutoff=0.7)


@cache
def rows() -> tuple[dict[str, str], ...]:
    """The lines of instances.csv: a type each, with its price."""
    lines = files("paretune.specification").joinpath("instances.csv").read_text(encoding="utf-8").splitlines()
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
            sustained_gbps=float(row["sustained_gbps"]),
            vcpus=int(row["vcpus"]),
            memory_gib=float(row["memory_gb"]),
            local_storage_gib=int(float(row["local_storage_gb"]) * 1e9 / 2**30),
        )
        for row in rows()
    }
