"""Whether a queue takes a job, as far as AWS Batch tells."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from paretune.core.checks import Finding, failed, not_checked, passed
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, explain
from paretune.specification.placement import Placement

QUEUE = "queue"
_TYPE = "SAGEMAKER_TRAINING"
_USABLE = {"VALID", "UPDATING"}


def queue_findings(cluster: Placement, account: Account) -> Iterator[Finding]:
    """Whether the queue exists, takes training jobs, and takes this one. No findings if the job has no queue."""
    if cluster.queue is None:
        return
    name, region = cluster.queue, account.region
    try:
        queues = account.client("batch").describe_job_queues(jobQueues=[name])["jobQueues"]
    except AWS_ERRORS as error:  # the identity may not ask; SubmitServiceJob will tell
        yield not_checked(QUEUE, explain(error, f"look at the queue {name}"))
        return
    if not queues:
        command = f"`aws batch describe-job-queues --region {region}` shows the existing ones"
        yield failed(QUEUE, f"queue {name} does not exist in {region}: {command}")
        return
    (queue,) = queues
    if queue.get("jobQueueType") != _TYPE:
        kind = queue.get("jobQueueType", "unknown")
        yield failed(QUEUE, f"queue {name} must be of type {_TYPE}, got {kind}: ask its owner for another one")
        return
    faults = []
    if queue["state"] != "ENABLED":
        mend = f"`aws batch update-job-queue --job-queue {name} --state ENABLED --region {region}`"
        faults.append(f"queue {name} must be ENABLED to take jobs, got {queue['state']}: enable it with {mend}")
    if queue.get("status", "VALID") not in _USABLE:
        reason = queue.get("statusReason") or "AWS gives no reason"
        faults.append(f"queue {name} must be VALID, got {queue['status']} ({reason}): ask its owner")
    faults += _share_faults(cluster, has_policy=bool(queue.get("schedulingPolicyArn")))
    faults += _size_faults(cluster, queue, account)
    yield from (failed(QUEUE, fault) for fault in faults)
    if not faults:
        yield passed(QUEUE, f"{name} in {region} takes training jobs")


def _size_faults(cluster: Placement, queue: Mapping[str, Any], account: Account) -> list[str]:
    """A fault if the job needs more instances than any service environment of the queue has: it would wait forever.

    No fault if the identity may not ask, or if an environment does not count instances.
    """
    names = [entry["serviceEnvironment"] for entry in queue.get("serviceEnvironmentOrder", [])]
    with suppress(*AWS_ERRORS):
        answer = account.client("batch").describe_service_environments(serviceEnvironments=names) if names else {}
        limits = [limit for entry in answer.get("serviceEnvironments", []) for limit in entry["capacityLimits"]]
        sizes = [limit.get("maxCapacity", 0) for limit in limits if limit.get("capacityUnit") == "NUM_INSTANCES"]
        if sizes and len(sizes) == len(limits) and max(sizes) < cluster.instance_count:
            rule = (
                f"instance_count must be at most {max(sizes)} in the queue {cluster.queue}, whose service environment"
            )
            return [f"{rule} holds no more, got {cluster.instance_count}: lower it, or take another queue"]
    return []


def _share_faults(cluster: Placement, *, has_policy: bool) -> list[str]:
    """A fault if the job names a share and the queue has no scheduling policy, or the reverse (SubmitServiceJob)."""
    shares = [name for name in ("share_identifier", "quota_share_name") if getattr(cluster, name) is not None]
    if has_policy and not shares:
        return [
            f"queue {cluster.queue} has a scheduling policy and needs the share of each job: set "
            "share_identifier (fair share) or quota_share_name (quota shares)"
        ]
    if shares and not has_policy:
        return [f"queue {cluster.queue} has no scheduling policy and takes no {shares[0]}: leave it out"]
    return []
