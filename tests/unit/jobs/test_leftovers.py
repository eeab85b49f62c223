"""What jobs leave in S3 is shown with its price, and removed only if nothing can still use it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from tests.support.fake_clock import FakeClock
from tests.support.stand_ins.aws import BUCKET, Aws, account
from tests.support.tags import tags_of


class Bucket:
    """A bucket with what jobs of a store have left."""

    def __init__(self, aws: Aws) -> None:
        self.aws, self.client = aws, MlflowClient()

    def job(self, name: str, *, state: str = "Completed", days: float = 100.0, **tags: str) -> str:
        """Add a job's run, and put 5 bytes of model, 7 of checkpoints and a report into the bucket."""
        settings = json.dumps({"sagemaker.s3_bucket": BUCKET})
        own = {"launcher": "sagemaker", "region": "us-east-1", "state": state, "job_name": f"paretune-{name}-1", **tags}
        job = {"paretune.settings": settings}
        run_id = self.client.create_run(
            "0", tags=job | {f"paretune.{key}": text for key, text in own.items()}
        ).info.run_id
        self.put(f"jobs/paretune-{name}-1/output/model/weights", 5, days)
        self.put(f"jobs/paretune-{name}-1/output/report.json", 1, days)
        self.put(f"checkpoints/{name}/step", 7, days)
        return str(run_id)

    def put(self, key: str, size: int, days: float) -> None:
        self.aws.put(f"paretune/{key}", b"x" * size, days)

    @property
    def left(self) -> set[str]:
        return {key.removeprefix("paretune/") for key in self.aws.objects}


@pytest.fixture
def bucket(workplace: Path) -> Iterator[Bucket]:
    with account(FakeClock()) as aws:
        yield Bucket(aws)


def test_old_models_and_checkpoints_are_listed_with_their_price_and_removed_when_asked(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = bucket.job("a")
    bucket.put("checkpoints/a-ml.g5.xlarge/step", 7, 100)
    before = bucket.left

    assert main(["clean", "--older_than", "30"]) == 0
    assert bucket.left == before
    assert "--yes true" in capsys.readouterr().out

    assert main(["clean", "--older_than", "30", "--yes"]) == 0
    assert bucket.left == {"jobs/paretune-a-1/output/report.json"}
    assert "removed from S3 by `paretune clean`" in tags_of(bucket.client.get_run(run_id))["paretune.no_model"]


def test_what_may_still_be_used_is_kept_and_the_reason_is_named(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.job("running", state="Running")
    bucket.job("young", days=3)
    bucket.job("half", days=100)
    for name, days in (("shards/0", 3), ("shards/1", 100)):  # the newer one counts
        bucket.put(f"jobs/paretune-half-1/output/model/{name}", 1, days)
        bucket.put(f"checkpoints/half-ml.g5.xlarge/{name}", 1, days)
    run_id = bucket.job("registered")
    bucket.client.create_registered_model("sentiment")
    bucket.client.create_model_version("sentiment", f"s3://{BUCKET}/a-copy", run_id)
    bucket.job("by-hand")
    bucket.client.create_model_version("sentiment", f"s3://{BUCKET}/paretune/jobs/paretune-by-hand-1/output/model/")
    bucket.job("gap", gap="true")
    bucket.job("front", pareto_rank="0")
    bucket.put("jobs/paretune-stranger-1/output/model/weights", 9, 100)
    bucket.put("datasets/d1/rows.arrow", 11, 100)
    bucket.aws.put("mine/thesis.txt", b"mine")
    before = bucket.left

    assert main(["clean", "--older_than", "30", "--keep", "front", "--yes"]) == 0

    gone = before - bucket.left
    assert gone == {f"checkpoints/{name}/step" for name in ("registered", "by-hand", "front", "half")}
    said = capsys.readouterr().out
    for why in (
        "its job is still running",
        "not older than 30 days",
        "registered as sentiment/1",
        "registered as sentiment/2",
        "on the front",
        "no run of this",
    ):
        assert why in said
    assert "a recent job may read it" in said


@pytest.mark.parametrize("days", [20, 100])
def test_data_that_jobs_share_go_when_no_job_began_for_four_weeks(bucket: Bucket, days: float) -> None:
    bucket.job("a", days=days)
    bucket.put("datasets/d1/rows.arrow", 11, 100)

    assert main(["clean", "--older_than", "1", "--yes"]) == 0

    assert ("datasets/d1/rows.arrow" in bucket.left) == (days == 20)


def test_an_object_that_s3_does_not_remove_is_an_error_and_no_success(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = bucket.job("a")
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
    bucket.aws.s3.put_bucket_policy(BUCKET, json.dumps({"Version": "2012-10-17", "Statement": [denied]}).encode())

    assert main(["clean", "--older_than", "30", "--yes"]) != 0

    assert "S3 did not remove" in capsys.readouterr().err
    assert "paretune.no_model" not in tags_of(bucket.client.get_run(run_id))


def test_a_bucket_that_cannot_be_looked_at_hides_no_other(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    bucket.job("a")
    gone = bucket.job("b")
    bucket.client.set_tag(gone, "paretune.settings", json.dumps({"sagemaker.s3_bucket": "gone"}))

    assert main(["clean", "--older_than", "30", "--yes"]) == 0

    assert "could not list the bucket gone" in capsys.readouterr().out
    assert "checkpoints/a/step" not in bucket.left
    assert "checkpoints/b/step" in bucket.left  # it is in a place that no run of this store names


def test_clean_needs_an_age(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean"]) == 2
    assert "older_than is missing" in capsys.readouterr().err
