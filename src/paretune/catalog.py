"""SageMaker's training instances: what is in them, what an hour costs, and where that figure comes from."""

import csv
import difflib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from paretune.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Price:
    """One price row: the hourly price of one instance, with region, date and source.

    `region` and `as_of` are empty where they have no meaning.
    """

    usd_per_hour: float
    region: str
    as_of: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance type of SageMaker Training.

    Attributes:
        instance_type: such as ml.g5.12xlarge.
        accelerator: model of the GPU or chip; none for a CPU instance.
        accelerator_count: accelerators in one instance.
        accelerator_memory_gib: nominal memory of one accelerator.
        network_gbps: highest network bandwidth, Gbit/s.
        vcpus: virtual processors.
        memory_gib: main memory.
        price: the row of the price list that is known, of one region; None if there is none.
    """

    instance_type: str
    accelerator: str
    accelerator_count: int
    accelerator_memory_gib: float
    network_gbps: float
    vcpus: int
    memory_gib: float
    price: Price | None

    @property
    def family(self) -> str:
        """The middle of the name: g5 of ml.g5.12xlarge."""
        return self.instance_type.split(".")[1]

    @property
    def has_gpu(self) -> bool:
        """Whether its accelerators are NVIDIA GPUs."""
        return self.accelerator.startswith("NVIDIA")


# SageMaker Training price of ml.m5.large (2 vCPUs, 8 GiB), us-east-1: usage type USE1-Train:ml.m5.large of the AWS
# price list, read on 2026-08-11.
ML_M5_LARGE = Price(
    usd_per_hour=0.115,
    region="us-east-1",
    as_of="2026-08-11",
    source="notional: AWS price list, SageMaker Training, ml.m5.large; a local job is not billed",
)


def local_price(usd_per_hour: float) -> Price:
    """The notional price of a local instance: that of ml.m5.large, or a figure the user has set."""
    if usd_per_hour == ML_M5_LARGE.usd_per_hour:
        return ML_M5_LARGE
    return Price(usd_per_hour=usd_per_hour, region="", as_of="", source="notional: local_price_usd_per_hour")


def instance(instance_type: str) -> Instance:
    """What is known of an instance type.

    Raises:
        BadInput: it is not in the catalogue; the message names the nearest ones.
    """
    known = instances()
    if instance_type not in known:
        near = nearest(instance_type)
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        raise BadInput([f"instance_type must be one of the {len(known)} known types, got {instance_type!r}{hint}"])
    return known[instance_type]


def nearest(instance_type: str) -> list[str]:
    """Up to three types whose names are like the given one."""
    return difflib.get_close_matches(instance_type, instances(), n=3, cutoff=0.7)


def training_price(instance_type: str, region: str) -> Price | None:
    """The on-demand price of SageMaker Training in `region`; None when that region's is not known.

    A price of another region is never taken instead. One that the sources contradict says so in its `source`.
    """
    price = instance(instance_type).price
    return price if price is not None and price.region == region else None


@cache
def instances() -> dict[str, Instance]:
    """All known types by name, from instances.csv."""
    lines = files("paretune").joinpath("instances.csv").read_text(encoding="utf-8").splitlines()
    return {row["instance_type"]: _read(row) for row in csv.DictReader(lines)}


def _read(row: dict[str, str]) -> Instance:
    price = None
    if row["price_usd_per_hour"]:
        doubt = {"uncertain": "uncertain: ", "single_source": "one source: "}.get(row["confidence"], "")
        price = Price(
            usd_per_hour=float(row["price_usd_per_hour"]),
            region=row["region"],
            as_of=row["as_of"],
            source=doubt + row["source"],
        )
    return Instance(
        instance_type=row["instance_type"],
        accelerator=row["accelerator"],
        accelerator_count=int(row["accelerator_count"]),
        accelerator_memory_gib=float(row["accelerator_memory_gb"]),
        network_gbps=float(row["network_gbps"]),
        vcpus=int(row["vcpus"]),
        memory_gib=float(row["memory_gb"]),
        price=price,
    )
