"""A recorded run read back as the job that it records."""

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


def test_a_run_without_a_command_of_ours_has_no_specification() -> None:
    with pytest.raises(BadInput, match="no specification of a job is recorded"):
        job({}).spec()
