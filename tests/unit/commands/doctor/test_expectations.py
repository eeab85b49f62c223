"""What of an observed job differs from what is expected."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paretune.commands.doctor.expectations import compare, unknown_fields
from paretune.commands.doctor.paid_job import ObservedJob
from paretune.pricing.prices import PriceList
from paretune.specification.container import Event
from paretune.specification.job import JobSpec
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]


START = datetime(2026, 11, 20, 12, tzinfo=UTC)
STATUSES = ("Starting", "Downloading", "Training", "Uploading", "Completed")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def transitions(*statuses: str) -> list[dict[str, Any]]:
    """Each of 10 s."""
    return [
        {"Status": name, "StartTime": at(10 * workspace), "EndTime": at(10 * workspace + 10), "StatusMessage": name}
        for workspace, name in enumerate(statuses)
    ]


def described(**changes: Any) -> dict[str, Any]:
    """A job of 50 s, of which 40 are billed."""
    message: dict[str, Any] = {
        "TrainingJobName": "paretune-run-1",
        "TrainingJobArn": "arn",
        "TrainingJobStatus": "Completed",
        "SecondaryStatus": "Completed",
        "SecondaryStatusTransitions": transitions(*STATUSES),
        "CreationTime": at(0),
        "LastModifiedTime": at(50),
        "TrainingStartTime": at(10),
        "TrainingEndTime": at(50),
        "TrainingTimeInSeconds": 40,
        "BillableTimeInSeconds": 40,
        "AlgorithmSpecification": {},
        "ResourceConfig": {"InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {},
        "OutputDataConfig": {},
        "CheckpointConfig": {},
        "ModelArtifacts": {"S3ModelArtifacts": "s3://"},
    }
    return {name: value for name, value in (message | changes).items() if value is not None}


def job(**changes: Any) -> ObservedJob:
    """A job that is as expected, and how it is not."""
    events = [Event(time=1.0, step=step, metrics={"train/loss": 1.0 / step}) for step in (1, 2, 3)]
    cost = 40 * 0.115 / 3600
    seen = ObservedJob(
        spec=JobSpec(instance_type="ml.m5.large"),
        request={"ResourceConfig": {"InstanceCount": 1}, "Tags": [{"Key": "a", "Value": "b"}]},
        description=described(),
        received=[*events, Event(time=2.0, step=0, message="Completed")],
        logged=events,
        written=events,
        metrics={
            "f1": 0.5,
            "throughput_samples_per_second": 3.0,
            "train_seconds": 9.0,
            "job_seconds": 50.0,
            "billable_seconds": 40.0,
            "cost_usd": cost,
        },
        tags={"paretune.state": "Completed", "paretune.secondary_status": "Completed"},
        curves={"train/loss": {step: 1.0 / step for step in (1, 2, 3)}},
        price=PriceList.read({}).price("ml.m5.large", "us-east-1"),
        worst_usd=0.04,
    )
    return replace(seen, **changes)


def different(seen: ObservedJob) -> list[str]:
    return [row.subject for row in compare(seen) if not row.holds]


def test_a_job_that_is_as_expected_has_no_differences() -> None:
    assert different(job()) == []
    assert unknown_fields(job()) == []


def test_a_job_that_was_never_created_is_not_compared() -> None:
    assert compare(job(description={})) == []


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"ModelArtifacts": None}, "DescribeTrainingJob has ModelArtifacts"),
        ({"BillableTimeInSeconds": 40.0}, "DescribeTrainingJob has BillableTimeInSeconds"),
        ({"CreationTime": "2026-11-20"}, "DescribeTrainingJob has CreationTime"),
        ({"FailureReason": "x"}, "DescribeTrainingJob has no FailureReason"),
        ({"WarmPoolStatus": {"Status": "Available"}}, "DescribeTrainingJob has no WarmPoolStatus"),
        ({"ResourceConfig": {"InstanceCount": 2}}, "ResourceConfig is as it was sent"),
        ({"TrainingJobStatus": "Stopped"}, "TrainingJobStatus"),
        ({"SecondaryStatus": "Uploading"}, "SecondaryStatus is the last of them"),
        ({"SecondaryStatusTransitions": transitions("Interrupted", *STATUSES)}, "secondary statuses, in order"),
        ({"TrainingStartTime": at(20)}, "TrainingStartTime"),
        ({"TrainingEndTime": at(70)}, "BillableTimeInSeconds is TrainingEndTime - TrainingStartTime"),
        ({"TrainingTimeInSeconds": 35}, "BillableTimeInSeconds is TrainingTimeInSeconds"),
        ({"BillableTimeInSeconds": 41}, "billable_seconds in MLflow"),
    ],
)
def test_what_aws_says_otherwise_is_a_difference(changes: dict[str, Any], kind: str) -> None:
    assert kind in different(job(description=described(**changes)))


def test_a_gap_between_two_statuses_is_a_difference() -> None:
    gap = transitions(*STATUSES)
    gap[1]["EndTime"] = at(15)

    assert different(job(description=described(SecondaryStatusTransitions=gap))) == [
        "each ends when the next one starts"
    ]


def test_events_that_were_lost_on_any_way_are_differences() -> None:
    events = job().written

    assert different(job(written=[])) == ["events in the job's results", *different(job(written=[]))[1:]]
    assert different(job(logged=events[1:])) == ["of them received through the log in CloudWatch"]
    assert different(job(received=list(events[1:]))) == ["of them received through log and results together"]
    assert different(job(curves={"train/loss": {1: 1.0, 2: 0.7, 3: 1 / 3}})) == [
        "steps of train/loss missing or different in MLflow"
    ]


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("cost_usd", 0.01, "cost_usd in MLflow is 40 s x 1 x 0.115 USD an hour"),
        ("cost_usd", 0.05, "cost_usd is within the worst case"),
        ("job_seconds", 60.0, "job_seconds is TrainingEndTime - CreationTime"),
        ("f1", None, "f1 in MLflow"),
    ],
)
def test_what_mlflow_has_otherwise_is_a_difference(name: str, value: float | None, kind: str) -> None:
    metrics = {key: number for key, number in {**job().metrics, name: value}.items() if number is not None}

    assert kind in different(job(metrics=metrics))


def test_fields_that_nobody_expects_are_told_and_no_difference() -> None:
    seen = job(description=described(EnableNetworkIsolation=False))

    assert unknown_fields(seen) == ["EnableNetworkIsolation"]
    assert different(seen) == []


def test_waiting_for_capacity_is_no_difference() -> None:
    statuses = ("Starting", "Pending", "Downloading", "Training", "Uploading", "Completed")
    waited = described(
        SecondaryStatusTransitions=transitions(*statuses), TrainingStartTime=at(20), TrainingEndTime=at(60)
    )

    rows = {row.subject: row for row in compare(job(description=waited))}

    assert rows["secondary statuses, in order"].holds
    assert "Pending" in rows["secondary statuses, in order"].actual


def test_a_log_that_may_not_be_read_is_told_as_that() -> None:
    rows = compare(
        job(logged=[], log_fault="AWS does not allow this identity to read the log of a job: logs:GetLogEvents")
    )

    (different,) = [row for row in rows if not row.holds]
    assert (different.subject, different.expected) == ("this identity may read the log in CloudWatch", "yes")
    assert "logs:GetLogEvents" in different.actual
