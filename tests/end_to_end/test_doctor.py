"""`paretune doctor` against an emulated account: its checks, and the job that it pays for."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import copy_store, sentences, user_s_own, write_csv
from tests.end_to_end.cloud import WITHIN_S, Cloud, account
from tests.stand_ins.sagemaker.emulator import namespaces_are_missing

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own_job(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict[str, object]:
    """Model and rows in place of the bundled ones, which take longer."""
    rows = write_csv(tmp_path_factory.mktemp("rows") / "reviews.csv", sentences(120))
    return {"model": tiny_model, "dataset": rows}


@pytest.fixture
def cloud(tmp_path: Path, empty_store: Path) -> Iterator[Cloud]:
    """A user of an emulated account, whose folder is called like nothing of the account."""
    missing = namespaces_are_missing()
    if missing:
        pytest.skip(missing)
    folder = tmp_path / "user"
    folder.mkdir()
    with account(tmp_path / "account") as emulator:
        yield Cloud(emulator, folder, {"MLFLOW_TRACKING_URI": copy_store(empty_store, folder)} | user_s_own(folder))


def document_of(text: str) -> dict[str, Any]:
    """The JSON document in what a command has printed on both streams."""
    result = json.JSONDecoder().raw_decode(text[re.search(r"^\{\n", text, re.MULTILINE).start() :])[0]  # type: ignore[union-attr]
    return dict(result)


def test_a_sound_account_passes_every_check_and_the_paid_job_runs(cloud: Cloud, own_job: dict[str, object]) -> None:
    result = cloud.run("doctor")
    assert result.code == 0, result.text
    assert cloud.emulator.jobs() == []
    assert cloud.runs() == []
    assert "at most 0.04 USD" in result.text

    with cloud.start("doctor", paid="true", json="true", **own_job) as running:
        assert running.wait(WITHIN_S) == 0, running.text
        document = document_of(running.text)
    assert document["wrong"] == 0
    assert [job["TrainingJobName"] for job in cloud.created()] == cloud.emulator.jobs()
    assert len(cloud.emulator.jobs()) == 1
    assert 0 < document["paid"]["metrics"]["cost_usd"] < 0.1
    assert {run.info.status for run in cloud.runs()} == {"FINISHED"}


def test_a_paid_job_without_capacity_says_why(cloud: Cloud, own_job: dict[str, object]) -> None:
    cloud.emulator.lack_capacity("ml.m5.large")

    done = cloud.run("doctor", paid="true", **own_job)

    assert done.code != 0
    assert "no capacity" in done.text
    assert cloud.the_run().info.status == "FAILED"


def test_with_something_wrong_no_job_is_paid_for_and_all_of_it_is_said(
    cloud: Cloud, own_job: dict[str, object]
) -> None:
    cloud.emulator.set_quota("ml.m5.large", 0)

    done = cloud.run(
        "doctor", paid="true", json="true", sagemaker={"s3_bucket": "nobody-has-made-this"}, role="Nobody", **own_job
    )

    assert done.code == 2
    document = document_of(done.text)
    wrong = {check["subject"]: check for check in document["checks"] if check["verdict"] == "wrong"}
    assert set(wrong) == {"role", "bucket", "quotas"}
    assert document["wrong"] == 3
    assert wrong["bucket"]["commands"] == ["aws s3 mb s3://nobody-has-made-this --region us-east-1"]
    assert "aws service-quotas request-service-quota-increase" in wrong["quotas"]["commands"][0]
    assert document["paid"] is None
    assert cloud.emulator.jobs() == []
    assert cloud.runs() == []


def test_a_stranger_s_bucket_is_refused(cloud: Cloud) -> None:
    cloud.emulator.inject("HeadBucket", "AccessDenied", "Forbidden", times=1, status=403)

    done = cloud.run("doctor", sagemaker={"s3_bucket": "somebody-else-s"}, instance_type="ml.m5.large")

    assert done.code == 2, done.text
    assert "use the bucket somebody-else-s, which must belong to account" in done.text
    assert "`aws s3 ls`" in done.text
