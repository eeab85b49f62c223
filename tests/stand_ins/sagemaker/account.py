"""Quotas, prices and permissions of the account."""

import hashlib
import json
import threading
from collections.abc import Iterable
from typing import Any

from tests.stand_ins.sagemaker.jobs import Job
from tests.stand_ins.sagemaker.settings import ACCOUNT, Settings
from tests.stand_ins.sagemaker.validation import Refusal, instance_types
from tests.stand_ins.sagemaker.warm_pools import WarmPools

TRAINING = "training job usage"
SPOT = "spot training job usage"
WARM = "training warm pool usage"


def page(items: list[Any], request: dict[str, Any], *, usual: int, most: int) -> tuple[list[Any], dict[str, str]]:
    """The part of a list that a request asks for, and the fields that lead to the next one."""
    size = request.get("MaxResults") or usual
    if not 1 <= size <= most:
        raise Refusal("ValidationException", f"MaxResults must be between 1 and {most}")
    token = request.get("NextToken") or "0"
    if not token.isdigit():
        raise Refusal("ValidationException", "The provided NextToken is invalid")
    start = int(token)
    more = {"NextToken": str(start + size)} if start + size < len(items) else {}
    return items[start : start + size], more


class Account:
    """What the account may use, what that costs, and what its role may do."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._quotas = dict(settings.quotas)
        self._denied: set[str] = set()
        self._lock = threading.Lock()

    def quota(self, kind: str, usage: str) -> float:
        """Instances of a type that may be used in one way at the same time."""
        with self._lock:
            named = self._quotas.get(f"{kind} for {usage}")
            if named is None and usage == TRAINING:
                named = self._quotas.get(kind)
        return self._settings.default_quota if named is None else named

    def set_quota(self, name: str, value: float) -> None:
        """Change a quota; `name` is an instance type (training jobs on demand) or the whole name of the quota."""
        with self._lock:
            self._quotas[name] = value

    def admit(self, job: Job, jobs: Iterable[Job], pools: WarmPools) -> None:
        """Raise ResourceLimitExceeded if a job would use more than its quota."""
        running = [other for other in jobs if not other.is_over and other.is_spot == job.is_spot]
        usage = SPOT if job.is_spot else TRAINING
        used = sum(other.count for other in running if other.kind == job.kind)
        self._compare(job.kind, usage, used, job.count)
        if job.resources.get("KeepAlivePeriodInSeconds") and not pools.fits(job):
            self._compare(job.kind, WARM, pools.held(jobs, job.kind), job.count)

    def _compare(self, kind: str, usage: str, used: int, count: int) -> None:
        limit = self.quota(kind, usage)
        if used + count > limit:
            raise Refusal(
                "ResourceLimitExceeded",
                f"The account-level service limit '{kind} for {usage}' is {limit:g} Instances, with current utilization"
                f" of {used} Instances and a request delta of {count} Instances. Please use AWS Service Quotas to"
                " request an increase for this quota. If AWS Service Quotas is not available, contact AWS support to"
                " request an increase for this quota.",
            )

    def list_quotas(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer ListServiceQuotas."""
        _only_sagemaker(request)
        names = [f"{kind} for {usage}" for kind in instance_types() for usage in (TRAINING, SPOT, WARM)]
        names += [name for name in self._quotas if name.startswith("Number of instances")]
        result, more = page(names, request, usual=100, most=100)
        return {"Quotas": [self._quota(name) for name in result]} | more

    def _quota(self, name: str) -> dict[str, Any]:
        kind, _, usage = name.partition(" for ")
        code = _code(name)
        return {
            "ServiceCode": "sagemaker",
            "ServiceName": "Amazon SageMaker",
            "QuotaArn": f"arn:aws:servicequotas:{self._settings.region}:{ACCOUNT}:sagemaker/{code}",
            "QuotaCode": code,
            "QuotaName": name,
            "Value": float(self.quota(kind, usage)),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }

    def products(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer GetProducts."""
        expected = [(item["Field"], item["Value"]) for item in request.get("Filters", [])]
        fitting = [
            json.dumps(product)
            for product in self._settings.prices
            if product.get("serviceCode", request.get("ServiceCode")) == request.get("ServiceCode")
            and all(product["product"]["attributes"].get(name) == value for name, value in expected)
        ]
        result, more = page(fitting, request, usual=100, most=100)
        return {"FormatVersion": "aws_v1", "PriceList": result} | more

    def deny(self, action: str) -> None:
        """Take a permission away from everybody."""
        self._denied.add(action)

    def require(self, action: str, resource: str) -> None:
        """Raise AccessDeniedException if the permission was taken away."""
        if action in self._denied:
            user = f"arn:aws:iam::{ACCOUNT}:user/testing"
            text = f"User: {user} is not authorized to perform: {action} on resource: {resource}"
            raise Refusal("AccessDeniedException", text)


def _only_sagemaker(request: dict[str, Any]) -> None:
    if request.get("ServiceCode") != "sagemaker":
        raise Refusal("NoSuchResourceException", "The request failed because the specified service doesn't exist.")


def _code(name: str) -> str:
    return f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}"
