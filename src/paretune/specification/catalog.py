"""SageMaker's training instances and their hardware; their prices are in `pricing`.

The data sheets of their accelerators are in `estimating.hardware`. instances.csv has every type of CreateTrainingJob's
TrainingInstanceType (botocore 1.44.5), except for those of which only the name is known. The parameter `instance_facts`
describes these and newer types.
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

    Source of disks and sustained bandwidth: InstanceStorageInfo and BaselineBandwidthInGbps of EC2
    DescribeInstanceTypes, as moto 5.2.5 has them, read 2026-11-21; the withdrawn ml.p3.2xlarge has the bandwidth of
    other types with 8 processors.
    """

    instance_type: str
    accelerator: str  # model of the GPU or chip; none for a CPU instance
    accelerator_count: int
    accelerator_memory_gib: float  # nominal memory of one accelerator
    network_gbps: float  # highest network bandwidth in Gbit/s; `sustained_gbps` is the lasting one, None if unknown
    vcpus: int
    memory_gib: float  # main memory
    local_storage_gib: int = 0  # its own NVMe disks, 0 for none
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
        """Whether it trains on its own NVMe disks; the hardware encrypts them, so AWS accepts no KMS key for them."""
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
"""Key of a description in `instance_facts` to the field of `Instance`."""
FACTS_EXAMPLE = (
    '{"ml.p9.48xlarge": {"gpu": "H200", "gpus": 8, "gpu_memory_gib": 141, "network_gbps": 3200, "vcpus": 192, '
    '"memory_gib": 2048, "local_storage_gib": 28312}}'
)


def instance(instance_type: str, facts: Mapping[str, Any] | None = None) -> Instance:
    """Hardware of an instance type, from `facts` before the catalogue; raises BadInput that names similar types."""
    description = (facts or {}).get(instance_type)
    listed = instances().get(instance_type)
    if description:
        values: dict[str, Any] = {FACTS[fact]: value for fact, value in description.items()}
        if "gpu" in description:
            values["accelerator"] = f"NVIDIA {description['gpu'].removeprefix('NVIDIA').strip()}"
        defaults = {"accelerator": "none", "accelerator_memory_gib": 0.0} if listed is None else asdict(listed)
        return Instance(**(defaults | {"instance_type": instance_type} | values))
    if listed is None:
        raise BadInput([f"{unknown_type(instance_type, instances())}; instance_facts can describe another one"])
    return listed


def fact_faults(facts: Mapping[str, Any]) -> list[str]:
    """Invalid and missing entries of a value of `instance_facts`."""
    faults = []
    for name, description in facts.items():
        if not name.startswith("ml.") or name.count(".") != 2 or not isinstance(description, Mapping):
            rule = f"instance_facts must map types to their hardware, such as {FACTS_EXAMPLE}"
            faults.append(f"{rule}, got {name!r}: {description!r}")
            continue
        if unknown := [fact for fact in description if fact not in FACTS]:
            faults.append(f"instance_facts must be of {', '.join(FACTS)}, got {', '.join(unknown)} for {name}")
        for fact, value in description.items():
            if fact in FACTS:
                faults += _value_faults(name, fact, value)
        of_gpus = ("gpu", "gpu_memory_gib") if description.get("gpus") else ()
        required = ("gpus", *of_gpus, "network_gbps", "vcpus", "memory_gib")
        missing = [fact for fact in required if fact not in description]
        if missing and name not in instances():
            rule = f"instance_facts must also have {', '.join(missing)} for {name}"
            faults.append(f"{rule}, which is not in the catalogue")
    return faults


def _value_faults(name: str, fact: str, value: object) -> list[str]:
    if fact == "gpu":
        return [] if isinstance(value, str) else [f"instance_facts: gpu of {name} must be a name, got {value!r}"]
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    least = 1 if fact in {"vcpus", "memory_gib"} else 0
    is_whole = fact not in {"gpus", "vcpus"} or isinstance(value, int)
    if is_number and is_whole and value >= least:  # type: ignore[operator]  # a number
        return []
    return [f"instance_facts: {fact} of {name} must be a number of at least {least}, got {value!r}"]


def unknown_type(instance_type: str, types: Collection[str]) -> str:
    """The message for an instance type that is not in `types`."""
    hint = similar_types(instance_type, types)
    return f"instance_type must be one of the {len(types)} known types, got {instance_type!r}{hint}"


def similar_types(instance_type: str, types: Collection[str]) -> str:
    """Suffix of a message that suggests at most three similar types, or empty if none is similar.

    A family such as `p4d`, and GPUs such as `A100` or `A100:8`, suggest the types of `types` that have them.
    """
    gpu, _, count = instance_type.removeprefix("ml.").lower().partition(":")
    meant = [
        item.instance_type
        for item in instances().values()
        if (item.family == gpu or gpu in item.accelerator.lower().split())
        and count in ("", str(item.accelerator_count))
        and item.instance_type in types
    ]
    if meant:
        return f": did you mean {' or '.join(meant[:3])}?"
    name = f"ml.{instance_type.removeprefix('ml.')}"
    return did_you_mean(name, types, lead=": ", most=1 if name in types else 3, cutoff=0.7)


@cache
def rows() -> tuple[dict[str, str], ...]:
    """The rows of instances.csv, one per type, with its price."""
    lines = files("paretune.specification").joinpath("instances.csv").read_text(encoding="utf-8").splitlines()
    return tuple(csv.DictReader(lines))


@cache
def instances() -> dict[str, Instance]:
    """All instance types of the catalogue by name."""
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
