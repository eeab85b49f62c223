"""Limits of a job: time, money, and what to do when AWS has no capacity."""

from dataclasses import dataclass

from paretune.specification.parameters import parameter

LONGEST_S = 28 * 86_400  # SageMaker's limit for a training job (quota, read 2026-11-20)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Section of a job: time, money and capacity."""

    max_runtime_minutes: float = parameter(
        60.0,
        "stop the job after this many minutes; every job has a limit",
        above=0,
        maximum=40_320,
        affects={"stopping"},
        group="limits, money and capacity",
    )
    max_silence_minutes: float = parameter(
        30.0,
        "stop a job that hangs: no events and no CPU or GPU in use for this many minutes; 0 = never",
        minimum=0,
        maximum=40_320,
        affects={"stopping"},
    )
    max_cost_usd: float | None = parameter(
        None,
        "do not launch the job if its worst case costs more",
        minimum=0,
        affects={"stopping", "ownership"},
        basic=True,
    )
    budget: str | None = parameter(
        None,
        "YAML file with monthly budgets, for all jobs or by tags; a job that does not fit is refused",
        affects={"ownership"},
    )
    local_price_usd_per_hour: float = parameter(
        0.115,
        "notional price of one local process; the default is the price of ml.m5.large",
        minimum=0,
        affects={"dollars"},
        not_searched="it is a notion of yours, not a result",
    )
    spot: bool = parameter(
        False,
        "SageMaker: use spare capacity at a discount; an interrupted job continues from its checkpoint",
        affects={"dollars"},
        not_searched="spot changes the bill and no result; `paretune report --spot_share 0.3` prices the runs again",
    )
    max_wait_minutes: float | None = parameter(
        None,
        "spot: limit of running and waiting together; by default max_runtime_minutes + 60",
        above=0,
        maximum=40_320,
        affects={"stopping"},
    )
    fallback_instance_types: str | None = parameter(
        None,
        "comma-separated types to use if AWS has no capacity, best first; the global batch size stays",
        affects={"stopping"},
        not_searched="search instance_type itself",
    )
    capacity_wait_minutes: float = parameter(
        0.0,
        "how long to keep trying when no instance type has capacity",
        minimum=0,
        maximum=10_080,
        affects={"stopping"},
    )


def spot_faults(section: Limits) -> list[str]:
    """Waiting times that are not for spot jobs or too short."""
    faults = []
    if section.max_wait_minutes is not None and not section.spot:
        faults.append("max_wait_minutes is for spot jobs: set spot=true, or leave it out")
    if section.max_wait_minutes is not None and section.max_wait_minutes < section.max_runtime_minutes:
        least = f"max_runtime_minutes ({section.max_runtime_minutes:g})"
        faults.append(f"max_wait_minutes must be at least {least}, got {section.max_wait_minutes:g}")
    return faults
