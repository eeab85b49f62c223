"""`paretune doctor` against an emulated account: its checks, and the one job that it pays for."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import copy_store, sentences, user_s_own, write_csv
from tests.end_to_end.cloud import WITHIN_S, Cloud, account
from tests.processes import wait_until
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


def private(cloud: Cloud) -> list[str]:
    """What a report must not name."""
    return [cloud.emulator.account, cloud.emulator.role, cloud.emulator.bucket, "SageMakerRole", "arn:aws"]


def test_a_sound_account_passes_every_check_and_the_paid_job_is_as_expected(
    cloud: Cloud, own_job: dict[str, object]
) -> None:
    result = cloud.run("doctor")
    assert result.code == 0, result.text
    assert cloud.emulator.jobs() == []
    assert cloud.runs() == []
    assert "at most 0.044 USD" in result.text

    done = cloud.run("doctor", paid="true", json="true", **own_job)

    assert done.code == 0, done.text
    document = document_of(done.text)
    assert document["wrong"] == 0
    rights = [check for check in document["checks"] if check["subject"] == "permissions"]
    assert [check["verdict"] for check in rights] == ["ok", "ok"]  # nothing is left unasked
    paid = document["paid"]
    assert paid["differences"] == []
    assert paid["compared"] > 50
    assert cloud.emulator.jobs() == [paid["job_name"]]
    (sent,) = cloud.created()
    assert sent["StoppingCondition"]["MaxRuntimeInSeconds"] == 1200
    assert paid["cost_usd"] < 0.1
    report = Path(paid["report"]).read_text()
    assert not [name for name in private(cloud) if name in report]
    for part in ("0 of ", "Starting", "BillableTimeInSeconds", "<arn>", "s3://<bucket>"):
        assert part in report


def test_what_a_service_does_otherwise_stands_in_the_report(cloud: Cloud, own_job: dict[str, object]) -> None:
    cloud.emulator.misreport(BillableTimeInSeconds=900, ModelArtifacts=None, EnableNetworkIsolation=True)

    done = cloud.run("doctor", paid="true", json="true", **own_job)

    assert done.code == 2, done.text
    paid = document_of(done.text)["paid"]
    assert {row["what"].partition(" in MLflow")[0] for row in paid["differences"]} == {
        "DescribeTrainingJob has ModelArtifacts",
        "BillableTimeInSeconds is TrainingTimeInSeconds",
        "BillableTimeInSeconds is TrainingEndTime - TrainingStartTime",
    }
    assert paid["cost_usd"] == pytest.approx(900 * 0.115 / 3600)
    report = Path(paid["report"]).read_text()
    assert f"3 of {paid['compared']} expectations differ" in report
    assert "Fields that were not expected: EnableNetworkIsolation." in report


def test_the_report_of_a_job_that_failed_says_why(cloud: Cloud, own_job: dict[str, object]) -> None:
    cloud.emulator.lack_capacity("ml.m5.large")

    done = cloud.run("doctor", paid="true", **own_job)

    assert done.code == 2, done.text
    assert "the job has no result: " in done.text
    (report,) = (cloud.folder / ".paretune" / "doctor").glob("*.md")
    assert str(report) in done.text
    text = report.read_text()
    assert "AWS has no capacity for ml.m5.large" in text
    assert "| states | TrainingJobStatus | Completed | Failed | **differs** |" in text
    assert not [name for name in private(cloud) if name in text]
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


def test_a_doctor_that_was_killed_goes_on_with_the_job_that_it_has_paid_for(
    cloud: Cloud, own_job: dict[str, object]
) -> None:
    with cloud.start("doctor", paid="true", **own_job) as running:
        wait_until(lambda: cloud.emulator.jobs() or running.process.poll() is not None, within_s=WITHIN_S, what="a job")
        running.process.kill()
        running.wait(WITHIN_S)

    done = cloud.run("doctor", paid="true", json="true", **own_job)

    assert done.code == 0, done.text
    assert cloud.emulator.jobs() == [document_of(done.text)["paid"]["job_name"]]
