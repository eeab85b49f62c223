"""What a queue has against a job."""

import re
from dataclasses import replace

import pytest

from paretune.core.checks import Finding, Verdict
from paretune.core.errors import BadInput
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.preflight import queue_findings
from paretune.specification.job import JobSpec
from paretune.specification.placement import Placement
from tests.unit.launchers.sagemaker.aws import BUCKET, ROLE, Aws

CLUSTER = Placement(role=ROLE, bucket=BUCKET, instance_type="ml.m5.large", queue="team")
POLICY = {"schedulingPolicyArn": "arn:aws:batch:us-east-1:123456789012:scheduling-policy/fair"}


def found(cluster: Placement = CLUSTER) -> list[Finding]:
    return list(queue_findings(cluster, Account(cluster, {})))


def test_a_queue_that_takes_the_job_is_in_order(aws: Aws) -> None:
    aws.queues.add("team")

    assert [finding.verdict for finding in found()] == [Verdict.PASSED]
    assert found(replace(CLUSTER, queue=None)) == []


def test_a_queue_that_is_not_there_is_a_fault_with_the_command_that_lists_them(aws: Aws) -> None:
    (finding,) = found()

    assert finding.verdict is Verdict.FAILED
    assert finding.commands == ["aws batch describe-job-queues --region us-east-1"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"jobQueueType": "ECS_FARGATE"}, "must be of type SAGEMAKER_TRAINING, got ECS_FARGATE"),
        ({"state": "DISABLED"}, "aws batch update-job-queue --job-queue team --state ENABLED"),
        ({"status": "INVALID", "statusReason": "no environment"}, r"must be VALID, got INVALID \(no environment\)"),
        (POLICY, "set share_identifier .* or quota_share_name"),
    ],
)
def test_a_queue_that_takes_no_such_job_is_a_fault(aws: Aws, fields: dict[str, str], message: str) -> None:
    aws.queues.add("team", **fields)

    (finding,) = found()

    assert finding.verdict is Verdict.FAILED
    assert re.search(message, finding.text), finding.text


def test_a_share_goes_with_a_scheduling_policy_only(aws: Aws) -> None:
    aws.queues.add("team", **POLICY)
    shared = replace(CLUSTER, share_identifier="search")
    assert [finding.verdict for finding in found(shared)] == [Verdict.PASSED]

    aws.queues.add("team")

    assert [finding.verdict for finding in found(shared)] == [Verdict.FAILED]


def test_a_job_that_no_turn_could_ever_come_for_is_a_fault(aws: Aws) -> None:
    aws.queues.add("team", capacity=2)

    assert [finding.verdict for finding in found(replace(CLUSTER, instance_count=2))] == [Verdict.PASSED]
    (finding,) = found(replace(CLUSTER, instance_count=3))
    assert "instance_count must be at most 2 in the queue team" in finding.text


@pytest.mark.parametrize(
    ("operation", "verdict"),
    [("DescribeJobQueues", Verdict.NOT_CHECKED), ("DescribeServiceEnvironments", Verdict.PASSED)],
)
def test_not_being_allowed_to_ask_is_no_fault(aws: Aws, operation: str, verdict: Verdict) -> None:
    aws.queues.add("team")
    aws.refuse(operation, "AccessDeniedException")

    assert [finding.verdict for finding in found()] == [verdict]


def test_what_stands_against_the_queue_comes_with_all_other_faults(
    aws: Aws, launcher: SageMakerLauncher, players: object
) -> None:
    aws.queues.add("team", state="DISABLED")
    aws.quotas.values = {"ml.m5.large for training job usage": 0, "x": 0}
    spec = JobSpec(role=ROLE, bucket=BUCKET, instance_type="ml.m5.large", queue="team")

    with pytest.raises(BadInput) as refused:
        launcher.check(spec)

    quota, queue = refused.value.faults
    assert "is 0 and the job needs 1" in quota  # no turn in a queue would ever come
    assert "must be ENABLED" in queue
