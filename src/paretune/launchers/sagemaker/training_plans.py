"""SageMaker training plans: instances that were paid for in advance, for a period.

A job on the instances of a plan costs nothing more; its share of the upfront fee is reported separately.

Source: DescribeTrainingPlan and SearchTrainingPlanOfferings (botocore 1.44.5).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paretune.core.checks import Finding, failed, not_checked, passed
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_missing
from paretune.specification.limits import SEARCHED_PLAN
from paretune.specification.placement import Placement

PLAN = "training plan"
FOR_TRAINING_JOBS = "training-job"  # TargetResources of plans whose instances training jobs can use
_MISSING = {"ResourceNotFound", "ResourceNotFoundException"}


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """Reserved instances of one type. `seconds` is the duration per instance; `ends` is None if AWS does not state it.

    Moments are seconds since the epoch.
    """

    instance_type: str
    count: int
    seconds: float
    ends: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training plan, or an offer of one. Values that AWS does not state are None; moments are epoch seconds."""

    name: str  # its name, or the id of the offer
    status: str  # Pending, Active, Scheduled, Expired or Failed; Offered for an offer
    reserved: tuple[Reserved, ...]
    upfront_usd: float | None  # its fee, None also for another currency
    targets: tuple[str, ...]
    starts: float | None = None
    ends: float | None = None
    available: int | None = None  # instances that are free now

    @property
    def instance_seconds(self) -> float:
        """Reserved seconds of all instances together."""
        return sum(part.count * part.seconds for part in self.reserved)

    def count_of(self, instance_type: str) -> int:
        """The highest number of instances of a type at one time."""
        return max((part.count for part in self.reserved if part.instance_type == instance_type), default=0)

    def share_usd(self, instance_seconds: float) -> float | None:
        """The share of so many instance-seconds in the upfront fee, or None if either is unknown."""
        if self.upfront_usd is None or not self.instance_seconds:
            return None
        return self.upfront_usd * instance_seconds / self.instance_seconds


def training_plan(arn: str, account: Account) -> TrainingPlan:
    """The plan that DescribeTrainingPlan describes; raises boto's errors."""
    return read_plan(account.client("sagemaker").describe_training_plan(TrainingPlanName=arn))


def plan_findings(cluster: Placement, account: Account, now: float, billed_after_limit_s: float) -> Iterator[Finding]:
    """Whether the job's plan, if it has one, has its instances until the latest end of the job."""
    arn = cluster.training_plan
    if arn is None:
        return
    if arn == SEARCHED_PLAN:
        yield failed(
            PLAN, f"training_plan={SEARCHED_PLAN} is for estimates: give the ARN of the plan that you have bought"
        )
        return
    region = arn.split(":")[3]
    if region != account.region:
        yield failed(
            PLAN, f"training_plan lies in {region}, the job would run in {account.region}: set region={region}"
        )
        return
    try:
        plan = training_plan(arn, account)
    except AWS_ERRORS as error:
        if code(error) in _MISSING or is_missing(error):
            yield failed(PLAN, f"training_plan {arn} does not exist: `aws sagemaker list-training-plans` shows yours")
        else:  # the identity may not ask; CreateTrainingJob will tell
            yield not_checked(PLAN, explain(error, "look at the training plan"))
        return
    faults = list(_faults(plan, cluster, now, billed_after_limit_s))
    yield from (failed(PLAN, fault) for fault in faults)
    if not faults:
        free = "" if plan.available is None else f", {plan.available} instances free now"
        yield passed(PLAN, f"{plan.name} is {plan.status}{free}")


def _faults(plan: TrainingPlan, cluster: Placement, now: float, billed_after_limit_s: float) -> Iterator[str]:
    subject = f"training_plan {plan.name}"
    if plan.status != "Active":
        start = f" and begins {day_of(plan.starts)}" if plan.starts and plan.starts > now else ""
        yield f"{subject} must be Active, and is {plan.status}{start}: start the job then, or leave training_plan out"
    if plan.targets and FOR_TRAINING_JOBS not in plan.targets:
        yield f"{subject} must be of training jobs, and is of {', '.join(plan.targets)}: it cannot be used for a job"
    count, needed = plan.count_of(cluster.instance_type), cluster.instance_count
    if not count:
        types = " or ".join(dict.fromkeys(part.instance_type for part in plan.reserved))
        yield f"{subject} is of {types or 'no instances'}, got {cluster.instance_type}: set instance_type to that"
    elif needed > count:
        yield f"{subject} has {count} x {cluster.instance_type}, and the job needs {needed}: lower instance_count"
    left_s = None if plan.ends is None else plan.ends - now
    needed_s = cluster.max_runtime_minutes * 60 + billed_after_limit_s
    if left_s is not None and plan.status == "Active" and left_s < needed_s:
        most_minutes = max(0.0, (left_s - billed_after_limit_s) // 60)
        yield (
            f"{subject} ends {day_of(plan.ends)}, in {left_s / 60:.0f} minutes, and the job may take "
            f"{needed_s / 60:.0f}: set max_runtime_minutes to {most_minutes:.0f} at most"
        )


def day_of(moment: float | None) -> str:
    """Day and time of a moment in UTC."""
    return "some day" if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


def read_plan(answer: Mapping[str, Any]) -> TrainingPlan:
    """The plan in an answer of DescribeTrainingPlan, or in an offering of SearchTrainingPlanOfferings."""
    parts = answer.get("ReservedCapacitySummaries") or answer.get("ReservedCapacityOfferings") or ()
    reserved = tuple(
        Reserved(
            instance_type=part["InstanceType"],
            count=part.get("TotalInstanceCount") or part.get("InstanceCount") or 0,
            seconds=_seconds(part) or _seconds(answer),
            ends=_moment(part.get("EndTime")),
        )
        for part in parts
    )
    is_usd = answer.get("CurrencyCode", "USD").upper() == "USD"
    ends = [part.ends for part in reserved if part.ends is not None]
    starts = [moment for part in parts if (moment := _moment(part.get("StartTime"))) is not None]
    return TrainingPlan(
        name=answer.get("TrainingPlanName") or answer["TrainingPlanOfferingId"],
        status=answer.get("Status", "Offered"),
        reserved=reserved,
        upfront_usd=_number(answer.get("UpfrontFee")) if is_usd else None,
        targets=tuple(answer.get("TargetResources", ())),
        starts=_moment(answer.get("StartTime")) or min(starts, default=None),
        ends=_moment(answer.get("EndTime")) or max(ends, default=None),
        available=answer.get("AvailableInstanceCount"),
    )


def _seconds(answer: Mapping[str, Any]) -> float:
    return float(answer.get("DurationHours") or 0) * 3600.0 + float(answer.get("DurationMinutes") or 0) * 60


def _moment(value: Any) -> float | None:
    return float(value.timestamp()) if isinstance(value, datetime) else None


def _number(text: Any) -> float | None:
    try:
        return float(str(text).replace(",", ""))
    except ValueError:
        return None
