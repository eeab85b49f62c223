"""Training plans: instances that are paid for in advance, for a time, and what AWS says of them.

Prices and durations are those of DescribeTrainingPlan and SearchTrainingPlanOfferings (botocore 1.44.5). What a job on
the instances of a plan costs is nothing more; its share of the upfront fee is told apart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paretune.core.finding import Finding, fine, not_asked, wrong
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, code, explain, is_missing
from paretune.spec.cluster import SEARCHED_PLAN, Cluster

PLAN = "training plan"
_OF_TRAINING_JOBS = "training-job"
_HOUR_S = 3600.0
_GONE = {"ResourceNotFound", "ResourceNotFoundException"}
_LONGEST_SHOWN_OFFERS = 5


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """Instances of one type, reserved for a time.

    Attributes:
        seconds: how long, per instance.
        ends: seconds since the epoch; None where AWS has not said it.
    """

    instance_type: str
    count: int
    seconds: float
    ends: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training plan, or an offer of one.

    Attributes:
        name: its name, or the id of the offer.
        status: Pending, Active, Scheduled, Expired, Failed; Offered of an offer.
        upfront_usd: its fee; None where AWS names none, or another currency.
        starts: seconds since the epoch, as is `ends`; None where AWS has not said it.
        available: instances that are free now; None where AWS has not said it.
    """

    name: str
    status: str
    reserved: tuple[Reserved, ...]
    upfront_usd: float | None
    targets: tuple[str, ...]
    starts: float | None = None
    ends: float | None = None
    available: int | None = None

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> "TrainingPlan":
        """The plan of an answer of DescribeTrainingPlan, or of an offering of SearchTrainingPlanOfferings."""
        parts = said.get("ReservedCapacitySummaries") or said.get("ReservedCapacityOfferings") or ()
        reserved = tuple(_reserved(part, _seconds(said)) for part in parts)
        is_usd = said.get("CurrencyCode", "USD").upper() == "USD"
        ends = [part.ends for part in reserved if part.ends is not None]
        starts = [moment for part in parts if (moment := _moment(part.get("StartTime"))) is not None]
        return cls(
            name=said.get("TrainingPlanName") or said["TrainingPlanOfferingId"],
            status=said.get("Status", "Offered"),
            reserved=reserved,
            upfront_usd=_number(said.get("UpfrontFee")) if is_usd else None,
            targets=tuple(said.get("TargetResources", ())),
            starts=_moment(said.get("StartTime")) or min(starts, default=None),
            ends=_moment(said.get("EndTime")) or max(ends, default=None),
            available=said.get("AvailableInstanceCount"),
        )

    @property
    def instance_seconds(self) -> float:
        """Seconds of all its instances together."""
        return sum(part.count * part.seconds for part in self.reserved)

    def count_of(self, instance_type: str) -> int:
        """The most instances of a type that it has at one time."""
        return max((part.count for part in self.reserved if part.instance_type == instance_type), default=0)

    def share_usd(self, instance_seconds: float) -> float | None:
        """The part of the upfront fee that so many seconds of one instance are; None where either is not known."""
        if self.upfront_usd is None or not self.instance_seconds:
            return None
        return self.upfront_usd * instance_seconds / self.instance_seconds

    def break_even_hours(self, usd_per_hour: float) -> float | None:
        """Hours of use of all its instances from which on demand is dearer; None where its fee is not known."""
        count = max((part.count for part in self.reserved), default=0)
        if self.upfront_usd is None or not count or usd_per_hour <= 0:
            return None
        return self.upfront_usd / (usd_per_hour * count)

    def sentence(self, usd_per_hour: float | None) -> str:
        """What it costs and holds, and from how many hours of use it beats on demand at that price of an instance."""
        count = max((part.count for part in self.reserved), default=0)
        hours = self.instance_seconds / _HOUR_S / count if count else 0.0
        types = " and ".join(dict.fromkeys(part.instance_type for part in self.reserved))
        fee = "a fee that AWS does not tell in USD" if self.upfront_usd is None else f"{self.upfront_usd:,.2f} USD"
        start = f" from {_day(self.starts)}" if self.starts else ""
        held = f"training plan {self.name} ({self.status}): {fee} upfront for {count} x {types} over {hours:g} h{start}"
        even = None if usd_per_hour is None else self.break_even_hours(usd_per_hour)
        if even is None:
            return f"{held}; from how many hours of use it beats on demand is not known without both prices"
        beats = f"beats on demand ({usd_per_hour:g} USD an hour each) from {even:,.1f} hours of use"
        return f"{held}; {beats}" + (f" ({even / hours:.0%} of them)" if even <= hours else ", more than it has")


def described(arn: str, account: Account) -> TrainingPlan:
    """What DescribeTrainingPlan says; raises as boto does."""
    return TrainingPlan.read(account.client("sagemaker").describe_training_plan(TrainingPlanName=arn))


def offered(cluster: Cluster, account: Account) -> list[TrainingPlan]:
    """The offers for training jobs on a cluster, cheapest per instance and second first; raises as boto does."""
    answer = account.client("sagemaker").search_training_plan_offerings(
        InstanceType=cluster.instance_type, InstanceCount=cluster.instance_count, TargetResources=[_OF_TRAINING_JOBS]
    )
    found = [TrainingPlan.read(offering) for offering in answer["TrainingPlanOfferings"]]
    found.sort(key=lambda plan: plan.share_usd(1.0) or float("inf"))
    return found[:_LONGEST_SHOWN_OFFERS]


def plan_findings(cluster: Cluster, account: Account, now: float, overrun_s: float) -> Iterator[Finding]:
    """Whether the plan that a job names, if it does, has its instances until the job has ended at the latest."""
    arn = cluster.training_plan
    if arn is None:
        return
    if arn == SEARCHED_PLAN:
        yield wrong(
            PLAN, f"training_plan={SEARCHED_PLAN} is for estimates: give the ARN of the plan that you have bought"
        )
        return
    region = arn.split(":")[3]
    if region != account.region:
        yield wrong(PLAN, f"training_plan lies in {region}, the job would run in {account.region}: set region={region}")
        return
    try:
        plan = described(arn, account)
    except AWS_ERRORS as error:
        if code(error) in _GONE or is_missing(error):
            yield wrong(PLAN, f"training_plan {arn} does not exist: `aws sagemaker list-training-plans` shows yours")
        else:  # may not be asked; CreateTrainingJob will tell
            yield not_asked(PLAN, explain(error, "look at the training plan"))
        return
    faults = list(_plan_faults(plan, cluster, now, overrun_s))
    yield from (wrong(PLAN, fault) for fault in faults)
    if not faults:
        free = "" if plan.available is None else f", {plan.available} instances free now"
        yield fine(PLAN, f"{plan.name} is {plan.status}{free}")


def _plan_faults(plan: TrainingPlan, cluster: Cluster, now: float, overrun_s: float) -> Iterator[str]:
    what = f"training_plan {plan.name}"
    if plan.status != "Active":
        when = f" and begins {_day(plan.starts)}" if plan.starts and plan.starts > now else ""
        yield f"{what} must be Active, and is {plan.status}{when}: start the job then, or leave training_plan out"
    if plan.targets and _OF_TRAINING_JOBS not in plan.targets:
        yield f"{what} must be of training jobs, and is of {', '.join(plan.targets)}: it cannot be used for a job"
    have, wanted = plan.count_of(cluster.instance_type), cluster.instance_count
    if not have:
        types = " or ".join(dict.fromkeys(part.instance_type for part in plan.reserved))
        yield f"{what} is of {types or 'no instances'}, got {cluster.instance_type}: set instance_type to that"
    elif wanted > have:
        yield f"{what} has {have} x {cluster.instance_type}, and the job needs {wanted}: lower instance_count"
    left_s = None if plan.ends is None else plan.ends - now
    needed_s = cluster.max_runtime_minutes * 60 + overrun_s
    if left_s is not None and plan.status == "Active" and left_s < needed_s:
        most = max(0.0, (left_s - overrun_s) // 60)
        yield (
            f"{what} ends {_day(plan.ends)}, in {left_s / 60:.0f} minutes, and the job may take "
            f"{needed_s / 60:.0f}: set max_runtime_minutes to {most:.0f} at most"
        )


def _reserved(part: Mapping[str, Any], usual_s: float) -> Reserved:
    return Reserved(
        instance_type=part["InstanceType"],
        count=part.get("TotalInstanceCount") or part.get("InstanceCount") or 0,
        seconds=_seconds(part) or usual_s,
        ends=_moment(part.get("EndTime")),
    )


def _seconds(said: Mapping[str, Any]) -> float:
    return float(said.get("DurationHours") or 0) * _HOUR_S + float(said.get("DurationMinutes") or 0) * 60


def _moment(value: Any) -> float | None:
    return float(value.timestamp()) if isinstance(value, datetime) else None


def _day(moment: float | None) -> str:
    return "some day" if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"


def _number(text: Any) -> float | None:
    """The number that AWS gives as text; None for anything else."""
    try:
        return float(str(text).replace(",", ""))
    except ValueError:
        return None
