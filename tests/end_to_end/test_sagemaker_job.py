"""Whole jobs on emulated SageMaker: launched, watched, recorded, paid for."""

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from paretune.pricing.prices import PriceList
from tests.end_to_end.cloud import REPOSITORY, WITHIN_S, Cloud, account
from tests.stand_ins.sagemaker.emulator import namespaces_are_missing

pytestmark = pytest.mark.slow

PERMISSIONS = {  # operation to IAM action, where their names differ
    "HeadBucket": "s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "DeleteObjects": "s3:DeleteObject",
    "ListServiceQuotas": "servicequotas:ListServiceQuotas",
}


def _json_blocks() -> list[dict[str, Any]]:
    text = (REPOSITORY / "README.md").read_text()
    return [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def test_a_job_is_recorded_as_a_local_one_is(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    done = cloud.run(**tiny_job)

    assert done.code == 0, done.text
    run, job = cloud.the_run(), cloud.described()
    assert run.info.status == "FINISHED"
    assert job["TrainingJobName"] == run.data.tags["paretune.job_name"] == f"paretune-{run.info.run_id}-1"
    price = PriceList.read({}).price("ml.m5.large", "us-east-1")
    assert price is not None
    assert run.data.metrics["billable_seconds"] == job["BillableTimeInSeconds"]
    assert run.data.metrics["cost_usd"] == pytest.approx(job["BillableTimeInSeconds"] * price.usd_per_hour / 3600)
    assert {"f1", "throughput_samples_per_second", "train_seconds", "job_seconds"} <= set(run.data.metrics)
    tags = run.data.tags
    assert (tags["paretune.launcher"], tags["paretune.origin"]) == ("sagemaker", "measured")
    assert (tags["paretune.price_region"], tags["paretune.price_as_of"]) == ("us-east-1", price.as_of)
    assert tags["paretune.secondary_status"] == "Completed"
    artifacts = {item.path for item in cloud.client.list_artifacts(run.info.run_id)}
    assert {"report.json", "confusion_matrix.png", "classification_report.txt"} <= artifacts
    for shown in ("Starting", "Downloading", "Training", "Uploading", "Completed", "F1 (macro, validation)"):
        assert shown in done.text


def test_the_hugging_face_image_trains_with_its_own_libraries(
    tmp_path: Path, workplace: Path, tiny_job: dict[str, object]
) -> None:
    folder = os.environ.get("PARETUNE_IMAGE_ENVIRONMENT")
    missing = namespaces_are_missing()
    if missing or folder is None:
        pytest.skip(missing or "run `.ci/image FOLDER` and set PARETUNE_IMAGE_ENVIRONMENT=FOLDER")
    images = {"*huggingface-pytorch-training*transformers5.3.0*": Path(folder)}
    shared = [Path(sys.prefix)]  # the rest of its libraries
    with account(tmp_path / "account", images=images, keep=shared) as emulator:
        cloud = Cloud(emulator, workplace)
        done = cloud.run(**tiny_job | {"instance_type": "ml.g5.xlarge"})

        assert done.code == 0, done.text
        run = cloud.the_run()
        report = json.loads(Path(cloud.client.download_artifacts(run.info.run_id, "report.json")).read_text())
        assert report["facts"]["transformers"] == "5.3.0"
        assert "no GPU" in done.text  # which an emulated ml.g5.xlarge has not


def test_nothing_is_uploaded_twice(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    assert cloud.run(**tiny_job).code == 0
    cloud.emulator.clear_requests()

    assert cloud.run(**tiny_job, seed=7).code == 0

    sent = [request.path for request in cloud.emulator.requests() if request.operation in {"PutObject", "UploadPart"}]
    by_the_launcher = [path for path in sent if "/output/" not in path]
    assert len(by_the_launcher) == 2, by_the_launcher  # the job's document, and the claim of its checkpoints
    assert len(cloud.runs()) == 2


def test_the_readme_s_policy_allows_what_a_launch_asks_for_and_nothing_more(
    cloud: Cloud, tiny_job: dict[str, object]
) -> None:
    def begin_and_stop() -> None:
        with cloud.start(**tiny_job | {"num_train_epochs": 400}) as running:
            cloud.until_it_trains(running, job_number=1)
            running.process.send_signal(signal.SIGINT)
            assert running.wait(WITHIN_S) == 130, running.text

    assert cloud.run(**tiny_job).code == 0
    begin_and_stop()

    requests = [item for item in cloud.emulator.requests() if "paretune" in item.headers.get("User-Agent", "")]
    asked = {PERMISSIONS.get(item.operation, f"{item.service}:{item.operation}") for item in requests}
    (policy,) = [block for block in _json_blocks() if "iam:PassRole" in json.dumps(block)]
    named = [statement["Action"] for statement in policy["Statement"]]
    allowed = {action for actions in named for action in ([actions] if isinstance(actions, str) else actions)}
    without_a_call = {"iam:PassRole", "sagemaker:AddTags"}  # needed by CreateTrainingJob
    assert asked - {"sts:GetCallerIdentity"} == allowed - without_a_call


def test_the_checkpoints_of_a_completed_job_are_removed(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    assert cloud.run(**tiny_job).code == 0

    deleted = [item for item in cloud.emulator.requests("DeleteObjects") if item.status == 200]
    assert len(deleted) == 1
    again = cloud.run(**tiny_job)
    assert again.code == 0, again.text
    assert "continuing from" not in again.text


def test_two_instances_train_one_model(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    done = cloud.run(**tiny_job, instance_count=2, gradient_accumulation_steps=2)

    assert done.code == 0, done.text
    run, job = cloud.the_run(), cloud.described()
    assert job["ResourceConfig"]["InstanceCount"] == 2
    assert run.data.params["global_batch_size"] == "32"
    price = PriceList.read({}).price("ml.m5.large", "us-east-1")
    assert price is not None
    dollars = job["BillableTimeInSeconds"] * 2 * price.usd_per_hour / 3600
    assert run.data.metrics["cost_usd"] == pytest.approx(dollars)
    report = json.loads(Path(cloud.client.download_artifacts(run.info.run_id, "report.json")).read_text())
    assert report["facts"]["devices"] == 2


def test_two_instances_of_two_processes_reach_what_one_process_reaches(
    cloud: Cloud, tiny_job: dict[str, object]
) -> None:
    job = tiny_job | {"global_batch_size": 16, "per_device_train_batch_size": 4, "num_train_epochs": 3}
    spread = cloud.run(**job, instance_count=2, processes_per_instance=2, strategy="fsdp")
    assert spread.code == 0, spread.text
    alone = cloud.run(**job | {"per_device_train_batch_size": 16})
    assert alone.code == 0, alone.text

    one, four = cloud.runs()
    # The same rows in every step; dropout draws its own numbers in each process.
    assert four.data.metrics["eval_loss"] == pytest.approx(one.data.metrics["eval_loss"], abs=5e-3)
    losses = [[point.value for point in cloud.history(run, "train/loss")] for run in (one, four)]
    assert losses[1] == pytest.approx(losses[0], abs=2e-2)


def test_a_dry_run_shows_the_request_and_sends_nothing(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    done = cloud.run(**tiny_job, dry_run="true", instance_count=3, max_runtime_minutes=30)

    assert done.code == 0, done.text
    shown, _ = json.JSONDecoder().raw_decode(done.text)
    assert shown["request"]["ResourceConfig"]["InstanceCount"] == 3
    assert shown["worst_case_usd"] == pytest.approx(0.5 * 3 * 0.115)
    changing = {"PutObject", "UploadPart", "CreateMultipartUpload", "CreateBucket", "CreateTrainingJob"}
    assert not [request for request in cloud.emulator.requests() if request.operation in changing]
    assert cloud.emulator.jobs() == []


def test_the_request_that_is_sent_is_the_one_that_was_shown(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    shown, _ = json.JSONDecoder().raw_decode(cloud.run(**tiny_job, dry_run="true").text)
    assert cloud.run(**tiny_job).code == 0

    (sent,) = cloud.created()
    run_id = cloud.the_run().info.run_id
    assert json.loads(json.dumps(sent).replace(run_id, "RUN")) == shown["request"]


def test_a_warm_pool_is_used_again(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    assert cloud.run(**tiny_job, keep_alive_minutes=10).code == 0
    assert cloud.run(**tiny_job, keep_alive_minutes=10, seed=2).code == 0

    first = cloud.described(cloud.emulator.jobs()[0])
    assert first["WarmPoolStatus"]["Status"] == "Reused"
    assert first["WarmPoolStatus"]["ReusedByJob"] == cloud.emulator.jobs()[1]


def test_what_an_account_has_against_a_job_is_said_at_once(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    cloud.emulator.set_quota("ml.m5.large", 1)
    cloud.emulator.deny("iam:PassRole")

    done = cloud.run(**tiny_job, instance_count=2, bucket="nobody-has-made-this-one")

    assert done.code == 2
    for part in ("3 faults", "may not pass the role", "nobody-has-made-this-one", "request-service-quota-increase"):
        assert part in done.text
    assert cloud.emulator.jobs() == []
    assert cloud.runs() == []
