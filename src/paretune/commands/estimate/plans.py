"""Remarks on a SageMaker training plan, or on those that AWS offers: from how many hours of use one beats on demand."""

from paretune.launchers.base import Launcher
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, explain
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.training_plans import (
    FOR_TRAINING_JOBS,
    TrainingPlan,
    day_of,
    read_plan,
    training_plan,
)
from paretune.specification.job import JobSpec
from paretune.specification.limits import SEARCHED_PLAN
from paretune.specification.placement import Placement

_MOST_OFFERS = 5


def plan_remarks(spec: JobSpec, launcher: Launcher) -> list[str]:
    """AWS's description of the job's plan, or of the plans that it offers for the cluster; empty without a plan."""
    if spec.training_plan is None or not isinstance(launcher, SageMakerLauncher):
        return []
    price = launcher.on_demand_price(spec)
    usd_per_hour = None if price is None else price.usd_per_hour
    try:
        if spec.training_plan != SEARCHED_PLAN:
            paid = "USD of the rows are what a job costs beyond the plan's fee, which is paid already"
            return [sentence(training_plan(spec.training_plan, launcher.account), usd_per_hour), paid]
        offers = offered_plans(spec, launcher.account)
    except AWS_ERRORS as error:
        return [explain(error, "look at training plans")]
    cluster = f"{spec.instance_count} x {spec.instance_type} in {launcher.account.region}"
    return [sentence(plan, usd_per_hour) for plan in offers] or [f"AWS offers no training plan of {cluster} now"]


def offered_plans(cluster: Placement, account: Account) -> list[TrainingPlan]:
    """The five cheapest offers for training jobs on a cluster, by price per instance-second; raises boto's errors."""
    answer = account.client("sagemaker").search_training_plan_offerings(
        InstanceType=cluster.instance_type, InstanceCount=cluster.instance_count, TargetResources=[FOR_TRAINING_JOBS]
    )
    offers = [read_plan(offering) for offering in answer["TrainingPlanOfferings"]]
    offers.sort(key=lambda plan: plan.share_usd(1.0) or float("inf"))
    return offers[:_MOST_OFFERS]


def break_even_hours(plan: TrainingPlan, usd_per_hour: float) -> float | None:
    """Hours of use of all instances from which a plan is cheaper than on demand, or None if its fee is unknown."""
    count = _most_instances(plan)
    if plan.upfront_usd is None or not count or usd_per_hour <= 0:
        return None
    return plan.upfront_usd / (usd_per_hour * count)


def sentence(plan: TrainingPlan, usd_per_hour: float | None) -> str:
    """Fee, instances and break-even hours at this on-demand price of an instance, as one sentence."""
    count = _most_instances(plan)
    hours = plan.instance_seconds / 3600.0 / count if count else 0.0
    types = " and ".join(dict.fromkeys(part.instance_type for part in plan.reserved))
    fee = "a fee that AWS does not tell in USD" if plan.upfront_usd is None else f"{plan.upfront_usd:,.2f} USD"
    start = f" from {day_of(plan.starts)}" if plan.starts else ""
    text = f"training plan {plan.name} ({plan.status}): {fee} upfront for {count} x {types} over {hours:g} h{start}"
    even = None if usd_per_hour is None else break_even_hours(plan, usd_per_hour)
    if even is None:
        return f"{text}; from how many hours of use it beats on demand is not known without both prices"
    beats = f"beats on demand ({usd_per_hour:g} USD an hour each) from {even:,.1f} hours of use"
    return f"{text}; {beats}" + (f" ({even / hours:.0%} of them)" if even <= hours else ", more than it has")


def _most_instances(plan: TrainingPlan) -> int:
    return max((part.count for part in plan.reserved), default=0)
