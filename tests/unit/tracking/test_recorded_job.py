"""A recorded run read back as the job that it records."""

from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.tracking import RecordedJob, RecordedRun, schema

GPU = "ml.g5.12xlarge"


def job(tags: dict[str, str] | None = None, params: dict[str, str] | None = None, **metrics: float) -> RecordedJob:
    return RecordedJob(RecordedRun("run", params or {}, tags or {}, metrics))


def test_a_specification_is_read_back_with_the_region_and_bucket_where_it_ran() -> None:
    spec = JobSpec(instance_type=GPU, tags={"team": "search + rescue"}, model="a b", learning_rate=3e-4)
    tags = {**schema.given_tag(spec.given()), "paretune.region": "eu-west-1", "paretune.bucket": "found"}

    assert job(tags).spec() == spec.replace(region="eu-west-1", sagemaker={"s3_bucket": "found"})


def test_a_local_job_has_no_region() -> None:
    tags = {**schema.given_tag({"seed": 7}), "paretune.region": "eu-west-1"}

    assert job(tags).spec() == JobSpec(seed=7)


def test_a_run_without_a_command_of_ours_has_no_specification() -> None:
    with pytest.raises(BadInput, match="no specification of a job is recorded"):
        job({}).spec()


def test_what_is_not_recorded_is_absent() -> None:
    recorded = job()

    assert (recorded.f1, recorded.billable_seconds, recorded.cost_usd, recorded.price_usd_per_hour) == (
        None,
        None,
        None,
        None,
    )
    assert (
        recorded.name,
        recorded.state,
        recorded.instance_type,
        recorded.region,
        recorded.price_source,
    ) == ("", "", "", "", "")
    assert recorded.instance_count == 1
    assert job({"paretune.price_usd_per_hour": "dear"}).price_usd_per_hour is None


@pytest.mark.parametrize(("text", "is_spot"), [("true", True), ("True", True), ("1", True), ("false", False)])
def test_a_users_own_spelling_of_a_parameter_is_understood(text: str, is_spot: bool) -> None:
    assert job(params={"spot": text}).is_spot is is_spot


def test_a_job_ran_on_spot_where_aws_has_told_its_training_seconds() -> None:
    assert job({"paretune.training_seconds": "90"}).is_spot


def test_the_job_as_it_ran_has_the_type_and_the_batch_that_it_ended_with() -> None:
    tags = {
        "paretune.used_instance_type": GPU,
        "paretune.used_per_device_train_batch_size": "8",
        "paretune.used_gradient_accumulation_steps": "4",
    }
    job_spec = JobSpec(instance_type="ml.g5.xlarge", per_device_train_batch_size=32)
    recorded = job(tags, job_spec.as_text())
    spec = recorded.spec_as_run()
    plan = recorded.used_plan(spec)

    assert (spec.instance_type, recorded.instance_type) == (GPU, GPU)
    assert (plan.per_device_train_batch_size, plan.gradient_accumulation_steps) == (8, 4)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({"paretune.state": "Failed", "paretune.failure_reason": "out of memory, with 8"}, (True, False)),
        ({"paretune.state": "Failed", "paretune.failure_reason": "disk full"}, (False, False)),
        ({"paretune.state": "Completed", "paretune.out_of_memory_retries": "2"}, (False, True)),
    ],
)
def test_lack_of_memory_is_told_from_other_ends(tags: dict[str, Any], expected: tuple[bool, bool]) -> None:
    recorded = job(tags)

    assert (recorded.ran_out_of_memory, recorded.was_retried) == expected
