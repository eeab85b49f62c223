"""Limits of a job: time, money, and what to do when AWS has no capacity."""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from paretune.specification.parameters import parameter

SEARCHED_PLAN = "search"  # `training_plan` of an estimate that asks AWS which plans it offers
DEADLINE = ("finish_by", "finish_confidence")
_PLAN = re.compile(r"arn:aws[a-z\-]*:sagemaker:([a-z0-9\-]*):[0-9]{12}:training-plan/[a-zA-Z0-9](-*[a-zA-Z0-9]){0,63}")
"""Source: DescribeTrainingPlan, TrainingPlanName (botocore 1.44.5)."""
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?:in)?)?", re.ASCII)
LONGEST_S = 28 * 86_400  # SageMaker's limit for a training job (quota, read 2026-11-20)
PLAN_EXAMPLE = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/NAME"


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
    finish_by: str | None = parameter(
        None,
        "be done by this time with its zone (2026-11-24T08:00+01:00) or within a duration (6h, 90m), for few dollars: "
        "on spot instances first, on demand once the time gets short; a study ends its search by then",
        affects={"stopping"},
        not_searched="it says when a job has to be done, and changes no result",
    )
    finish_confidence: float = parameter(
        0.95,
        "finish_by: probability with which the job has to be done by then; above 0.5 and below 1",
        affects={"stopping"},
        not_searched="it changes no result",
    )
    training_plan: str | None = parameter(
        None,
        "SageMaker: ARN of a training plan (prepaid instances); for estimate, `search` shows what AWS offers",
        affects={"dollars"},
        not_searched="it changes the bill and no result",
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


def deadline_faults(section: Limits) -> list[str]:
    """Faults of finish_by and finish_confidence that do not depend on the present time."""
    faults = []
    if not 0.5 < section.finish_confidence < 1:
        faults.append(
            f"finish_confidence must be above 0.5 and below 1, got {section.finish_confidence:g}: 0.95 is usual"
        )
    if section.finish_by is None:
        return faults
    try:
        finish_moment(section.finish_by, 0.0)
    except ValueError as error:
        faults.append(str(error))
    reasons = {
        "spot": (section.spot, "it chooses between spot and on demand itself"),
        "max_wait_minutes": (section.max_wait_minutes is not None, "it waits for spot as long as there is time"),
        "training_plan": (section.training_plan is not None, "its instances are paid already"),
    }
    names = [(name, reason) for name, (is_set, reason) in reasons.items() if is_set]
    return faults + [f"finish_by goes without {name}: {reason}; leave one of them out" for name, reason in names]


def past_faults(finish_by: str, now: float) -> list[str]:
    """The fault of a deadline that was over at `now`, to report beside others: alone, a job of before is adopted."""
    with suppress(ValueError):  # reported by `deadline_faults`
        if finish_by and finish_moment(finish_by, now) <= now:
            return [f"finish_by={finish_by} is over: set a later time, or a duration such as 6h"]
    return []


def finish_moment(text: str, now: float) -> float:
    """The time that `finish_by` names, in seconds since the epoch; a duration counts from `now`.

    Raises:
        ValueError: it is neither a duration nor a time with its zone; the message is a whole sentence.
    """
    rule = "finish_by must be a duration such as 6h, 90m or 1d12h, or a time with its zone such as"
    rule += " 2026-11-24T08:00+01:00"
    if (parts := _DURATION.fullmatch(text)) and any(parts.groups()):
        seconds = sum(float(part) * unit for part, unit in zip(parts.groups(), (86_400, 3600, 60), strict=True) if part)
        if not 0 < seconds <= LONGEST_S:
            raise ValueError(f"{rule}, more than 0 and at most 28 days away, got {text}")
        return now + seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{rule}, got {text!r}") from None
    if moment.tzinfo is None:
        here = moment.astimezone().isoformat(timespec="minutes")
        raise ValueError(f"{rule}, got {text} without a zone: write {here} for this machine's time")
    return moment.timestamp()


def plan_region(training_plan: str) -> str | None:
    """The AWS region in the ARN of a training plan, or None if the text is no such ARN."""
    match = _PLAN.fullmatch(training_plan)
    return None if match is None else match[1]
