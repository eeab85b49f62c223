"""What a job may ask for when it names several instance types, or a training plan; and the plans of the account."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tests.stand_ins.sagemaker.validation import Invalid, Refusal, check

MOST_TYPES = 5
_NOT_WITH_PREFERENCES = ("InstanceType", "InstanceGroups", "InstancePlacementConfig")


class TrainingPlans:
    """The training plans that were bought, and those that are offered; both as AWS describes them."""

    def __init__(self) -> None:
        self._bought: dict[str, dict[str, Any]] = {}
        self._offered: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    @property
    def operations(self) -> Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Operation to what answers it."""
        return {"DescribeTrainingPlan": self.describe, "SearchTrainingPlanOfferings": self.search}

    def buy(self, plan: dict[str, Any]) -> None:
        """Have a plan, or another state of it; `plan` is the answer of DescribeTrainingPlan."""
        with self._lock:
            self._bought[plan["TrainingPlanArn"]] = plan

    def offer(self, offerings: list[dict[str, Any]]) -> None:
        """Offer these plans and no others."""
        with self._lock:
            self._offered = offerings

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeTrainingPlan, by name or ARN."""
        check("DescribeTrainingPlan", request)
        with self._lock:
            for arn, plan in self._bought.items():
                if request["TrainingPlanName"] in (arn, plan["TrainingPlanName"]):
                    return plan
        raise Refusal("ResourceNotFound", f"Training plan {request['TrainingPlanName']} does not exist.")

    def search(self, request: dict[str, Any]) -> dict[str, Any]:
        """SearchTrainingPlanOfferings."""
        check("SearchTrainingPlanOfferings", request)
        with self._lock:
            return {"TrainingPlanOfferings": [item for item in self._offered if _is_wanted(item, request)]}

    def admit(self, wanted: list[tuple[str, str, int]]) -> None:
        """Raise unless the plans, each with a type and a count, are active and have such instances."""
        for arn, kind, count in wanted:
            plan = self._bought.get(arn)
            if plan is None:
                raise Invalid(f"Training plan {arn} does not exist.")
            if plan["Status"] not in ("Active", "Scheduled"):
                raise Invalid(f"Training plan {arn} is in status {plan['Status']}.")
            have = [
                reserved_capacity_summary["TotalInstanceCount"]
                for reserved_capacity_summary in plan["ReservedCapacitySummaries"]
                if reserved_capacity_summary["InstanceType"] == kind
            ]
            if not have or max(have) < count:
                raise Invalid(f"Training plan {arn} does not have {count} instances of type {kind}.")


def _is_wanted(offering: dict[str, Any], request: dict[str, Any]) -> bool:
    parts = offering["ReservedCapacityOfferings"]
    kind, count, targets = request.get("InstanceType"), request.get("InstanceCount"), request.get("TargetResources")
    return any(
        kind in (None, part["InstanceType"]) and count in (None, part["InstanceCount"]) for part in parts
    ) and set(targets or ()) <= set(offering["TargetResources"])


def clusters_asked_for(resources: Mapping[str, Any]) -> list[tuple[str, int, str | None]]:
    """Type, count and training plan of each cluster that a job may run on, best first; none of instance groups."""
    preferences = resources.get("InstancePreferences")
    if not preferences:
        plan = resources.get("TrainingPlanArn")
        return [(resources["InstanceType"], resources["InstanceCount"], plan)] if "InstanceType" in resources else []
    whole = resources.get("TrainingPlanArn")
    return [
        (
            preference["InstanceType"],
            preference.get("InstanceCount") or resources["InstanceCount"],
            (preference.get("TrainingPlanArns") or [whole])[0],
        )
        for preference in preferences
    ]


def check_preferences(request: Mapping[str, Any]) -> None:
    """Raise `Invalid` for what ResourceConfig's documentation says of InstancePreferences (botocore 1.44.5)."""
    resources = request["ResourceConfig"]
    for name in ("SelectedInstanceType", "SelectedInstanceCount"):
        if name in resources:
            raise Invalid(f"{name} is read-only and isn't accepted in CreateTrainingJob requests.")
    preferences = resources.get("InstancePreferences")
    if preferences is None:
        return
    others = [name for name in _NOT_WITH_PREFERENCES if resources.get(name)]
    others += ["EnableManagedSpotTraining"] if request.get("EnableManagedSpotTraining") else []
    if others:
        raise Invalid(f"InstancePreferences is mutually exclusive with {', '.join(others)}.")
    types = [preference["InstanceType"] for preference in preferences]
    if len(set(types)) < len(types):
        raise Invalid("An instance type can appear only once in an InstancePreferences list.")
    counted = ["InstanceCount" in entry for entry in preferences]
    if any(counted) != all(counted) or all(counted) == ("InstanceCount" in resources):
        raise Invalid("InstanceCount must be set on every preference or in ResourceConfig, and not in both.")
    if resources.get("TrainingPlanArn") and any(item.get("TrainingPlanArns") for item in preferences):
        raise Invalid("TrainingPlanArns of preferences is mutually exclusive with TrainingPlanArn.")
    if resources.get("KeepAlivePeriodInSeconds"):
        raise Invalid("This emulator knows no warm pool of a job with InstancePreferences.")
