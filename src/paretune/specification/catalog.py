"""The instance types of all launchers with their hardware, and the regions of SageMaker.

Prices are in `pricing`, and data sheets of the accelerators in `estimating.hardware`.

launchers/sagemaker/instances.csv has every type of CreateTrainingJob's TrainingInstanceType (botocore 1.44.5), except
types whose hardware is not published. Its columns `memory_gb` and `accelerator_memory_gb` are in GiB, as AWS lists
them; `local_storage_gb` is in GB. Users can add newer types, or override these, in ~/.paretune/instances.csv, which has
the same columns.
"""

import csv
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from paretune.core.errors import BadInput, did_you_mean, refuse
from paretune.core.reading import LARGEST_TABLE, is_file, read_text
from paretune.specification import launchers
from paretune.specification.launchers import AUTO, LauncherTraits

OWN_TYPES = "~/.paretune/instances.csv"  # the user's own rows, which override the shipped ones

# Source: botocore 1.44.5, endpoints of SageMaker in the partitions aws, aws-us-gov and aws-cn (read 2026-11-20).
REGIONS = frozenset(
    {
        *("af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1"),
        *("ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5"),
        *("ap-southeast-6", "ap-southeast-7", "ca-central-1", "ca-west-1", "eu-central-1", "eu-central-2"),
        *("eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "il-central-1"),
        *("me-central-1", "me-south-1", "mx-central-1", "sa-east-1"),
        *("us-east-1", "us-east-2", "us-west-1", "us-west-2"),
        *("us-gov-east-1", "us-gov-west-1", "cn-north-1", "cn-northwest-1"),
    }
)
USUAL = "us-east-1"  # the region whose prices are used if neither the user nor the environment names one


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance type of a launcher, such as SageMaker's ml.g5.12xlarge.

    Source of disks and sustained bandwidth: InstanceStorageInfo and BaselineBandwidthInGbps of EC2
    DescribeInstanceTypes, as included in moto 5.2.5, read 2026-11-21. For ml.p3.2xlarge, which AWS has withdrawn, the
    bandwidth is that of other types with 8 vCPUs.
    """

    instance_type: str
    launcher: str  # name of the launcher that offers it
    accelerator: str  # model of the GPU or chip; the word "none" for a CPU instance
    accelerator_count: int
    accelerator_memory_gib: float  # nominal memory of one accelerator
    network_gbps: float  # peak network bandwidth in Gbit/s
    vcpus: int
    memory_gib: float  # main memory
    local_storage_gib: int = 0  # size of its own NVMe disks, which the hardware encrypts; 0 if it has none
    sustained_gbps: float | None = None  # network bandwidth in Gbit/s without bursts; None if unknown
    flow_gbps: float = 10.0
    """Limit of one TCP flow in Gbit/s. EC2's is 10 in a cluster placement group and 5 outside of one (EC2 User Guide,
    "Network bandwidth", read 2026-11-26). The user's own file may set it in an optional column."""

    @property
    def family(self) -> str:
        """The part before the size in the name, such as g5 in ml.g5.12xlarge; the whole name if it has no dots."""
        _, _, middle = self.instance_type.rpartition(".")[0].rpartition(".")
        return middle or self.instance_type

    @property
    def has_gpu(self) -> bool:
        """Whether its accelerators are NVIDIA GPUs."""
        return self.accelerator.startswith("NVIDIA")


def instance(instance_type: str) -> Instance:
    """Return the hardware of an instance type. If the type is unknown, raises BadInput, which suggests similar ones."""
    listed = instances().get(instance_type)
    if listed is None:
        remedy = f"describe a new type in {OWN_TYPES}, with the columns of the shipped instances.csv"
        if "," in instance_type:
            remedy = (
                "a job uses one type, and others only in fallback_instance_types; `estimate` and a study take several"
            )
        raise BadInput([f"{unknown_type(instance_type, instances())}; {remedy}"])
    return listed


def unknown_type(instance_type: str, types: Collection[str], parameter: str = "instance_type") -> str:
    """Return the message for an instance type that is not in `types`; `parameter` is the option that names it."""
    hint = similar_types(instance_type, types)
    return f"{parameter} must be one of the {len(types)} known types, got {instance_type!r}{hint}"


def similar_types(instance_type: str, types: Collection[str]) -> str:
    """Return the end of a message, which suggests up to three similar types; empty if none is similar.

    For a family such as `p4d`, it suggests types of that family. For `A100`, it suggests types with that GPU, and for
    `A100:8`, types with eight of them.
    """
    bare, prefixes = short_name(instance_type), {item.instance_prefix for item in launchers.known().values()}
    gpu, _, count = bare.lower().partition(":")
    meant = [
        item.instance_type
        for item in instances().values()
        if (item.family == gpu or gpu in item.accelerator.lower().split())
        and count in ("", str(item.accelerator_count))
        and item.instance_type in types
    ]
    if meant:
        return f": did you mean {' or '.join(meant[:3])}?"
    whole = [f"{prefix}{bare}" for prefix in sorted(prefixes, reverse=True)]
    hints = (did_you_mean(name, types, lead=": ", most=1 if name in types else 3, cutoff=0.7) for name in whole)
    return next(filter(None, hints), "")


def owner(instance_type: str) -> LauncherTraits:
    """Return the traits of the launcher that offers an instance type.

    For an unknown type, these are the traits of the launcher that launcher=auto would use.
    """
    listed = instances().get(instance_type)
    return launchers.chosen(AUTO, instance_type) if listed is None else launchers.known()[listed.launcher]


def short_name(instance_type: str) -> str:
    """Return the name without the prefix of its launcher: g5.xlarge for ml.g5.xlarge."""
    return instance_type.removeprefix(launchers.chosen(AUTO, instance_type).instance_prefix)


@cache
def rows() -> tuple[dict[str, str], ...]:
    """Return the rows of all tables, with their price, launcher and file; the user's own rows override others."""
    tables = [(str(item.instance_table), item.name) for item in launchers.known().values() if item.instance_table]
    by_type = dict[str, dict[str, str]]()
    for table, launcher in [*tables, (OWN_TYPES, "")]:
        for row in csv.DictReader(read_text(table, LARGEST_TABLE).splitlines()) if is_file(table) else ():
            name = row.get("instance_type") or ""
            by_type[name] = {**row, "launcher": launcher or launchers.chosen(AUTO, name).name, "table": table}
    return tuple(by_type.values())


@cache
def instances() -> dict[str, Instance]:
    """Return all instance types by name. Raises BadInput if a row of a table cannot be read."""
    return {instance.instance_type: instance for instance in map(_instance_of, rows())}


def add(raw: Mapping[str, Any]) -> None:
    """Add an instance type, if it is unknown, from its fields. A running job may lack the table that lists its type."""
    instances().setdefault(raw["instance_type"], Instance(**raw))


def _instance_of(row: Mapping[str, str]) -> Instance:
    try:
        return Instance(
            instance_type=row["instance_type"],
            launcher=row["launcher"],
            accelerator=row["accelerator"],
            accelerator_count=int(row["accelerator_count"]),
            accelerator_memory_gib=float(row["accelerator_memory_gb"]),
            network_gbps=float(row["network_gbps"]),
            sustained_gbps=float(row["sustained_gbps"]) if row.get("sustained_gbps") else None,
            flow_gbps=float(row.get("flow_gbps") or Instance.flow_gbps),
            vcpus=int(row["vcpus"]),
            memory_gib=float(row["memory_gb"]),
            local_storage_gib=int(float(row.get("local_storage_gb") or 0) * 1e9 / 2**30),
        )
    except (KeyError, TypeError, ValueError) as error:
        text = f"{row['table']} has a row that cannot be read ({error!r})"
        raise BadInput([f"{text}: it must have the columns of the shipped instances.csv"]) from error


def usual_region(named: str | None, environment: Mapping[str, str]) -> str:
    """Return the first of `named`, AWS_REGION, AWS_DEFAULT_REGION and us-east-1 that is set, without asking AWS.

    Raises BadInput if that region has no SageMaker.
    """
    region = named or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or USUAL
    refuse(region_faults(region))
    return region


def region_faults(region: str | None) -> list[str]:
    """Return one fault if the region does not exist or does not have SageMaker, else none."""
    if region is None or region in REGIONS:
        return []
    hint = did_you_mean(region, sorted(REGIONS)) or "use one such as us-east-1"
    return [f"region must be an AWS region that has SageMaker, got {region!r}: {hint}"]
