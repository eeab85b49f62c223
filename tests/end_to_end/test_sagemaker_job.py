"""Whole jobs on emulated SageMaker: launched, watched, recorded, paid for."""

import json
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paretune.presentation.text import duration
from paretune.pricing import PriceList
from paretune.specification.order import job_of
from paretune.tracking.models import logged_model_of
from tests.support.cloud import REPOSITORY, WITHIN_S, Cloud, Done, job_of_seconds
from tests.support.sentences import sentences, write_csv
from tests.support.stand_ins.sagemaker.calls import OWNER, Request
from tests.support.stand_ins.sagemaker.emulator import Emulator
from tests.support.tags import tags_of

pytestmark = pytest.mark.slow

PERMISSIONS = {  # operation to IAM action, where their names differ
    "HeadBucket": "s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "HeadObject": "s3:GetObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
}


def _json_blocks() -> list[dict[str, Any]]:
    text = (REPOSITORY / "docs" / "sagemaker.md").read_text()
    return [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A job that has ended, in its own account, and the requests that it sent."""

    cloud: Cloud
    job: dict[str, object]
    done: Done
    requests: list[Request]


@pytest.fixture(scope="module")
def launched(shared_cloud: Cloud, tiny_model: Path) -> Launched:
    """Launch a small job that keeps its instance warm, and return it."""
    data = write_csv(shared_cloud.folder / "reviews.csv", sentences(120))
    job = job_of_seconds(tiny_model, data) | {"sagemaker.keep_alive_minutes": 10}
    done = shared_cloud.run(**job)
    assert done.code == 0, done.text
    return Launched(cloud=shared_cloud, job=job, done=done, requests=shared_cloud.emulator.requests())


def test_a_job_is_recorded_as_a_local_one_is(launched: Launched) -> None:
    cloud, done = launched.cloud, launched.done
    run, job = cloud.runs()[-1], cloud.described(cloud.emulator.jobs()[0])
    assert run.info.status == "FINISHED"
    assert job["TrainingJobName"] == tags_of(run)["paretune.job_name"]
    assert job["Environment"]["PARETUNE_RUN"] == run.info.run_id
    price = PriceList.read({}).price("ml.m5.large", "us-east-1")
    assert price is not None
    assert run.data.metrics["billable_seconds"] == job["BillableTimeInSeconds"]
    seconds = job["BillableTimeInSeconds"] + run.data.metrics.get("warm_pool_seconds", 0.0)
    assert run.data.metrics["cost_usd"] == pytest.approx(seconds * price.usd_per_hour / 3600)
    assert {"f1", "throughput_samples_per_second", "train_seconds", "job_seconds"} <= set(run.data.metrics)
    tags = tags_of(run)
    assert (tags["paretune.launcher"], tags["paretune.origin"]) == ("sagemaker", "measured")
    assert tags["paretune.price_as_of"] == price.as_of
    assert tags["paretune.secondary_status"] == "Completed"
    artifacts = {item.path for item in cloud.client.list_artifacts(run.info.run_id)}
    assert {"report.json", "confusion_matrix.png", "classification_report.txt"} <= artifacts
    model = logged_model_of(cloud.client, run.info.run_id)
    assert model is not None
    assert model.tags["paretune.model"] == tags["paretune.model"]
    assert tags["paretune.model"].startswith("s3://")
    assert tags["paretune.model"].endswith(f"{job['TrainingJobName']}/output/model/")
    assert {"f1", "cost_usd"} <= {metric.key for metric in model.metrics or ()}
    for output in ("Starting", "Downloading", "Training", "Uploading", "Completed", "F1 (macro, validation)"):
        assert output in done.text


def test_a_dry_run_shows_the_request_that_is_sent_and_sends_nothing(launched: Launched, cloud: Cloud) -> None:
    shown = cloud.run(**launched.job, dry_run="true", json="true")  # in an account that nobody has used
    assert shown.code == 0, shown.text
    text = shown.text
    output, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])  # after its progress messages
    # An hour, 100 seconds to stop, a minute to upload a model of 0.1 MB, ten minutes kept warm.
    assert output["worst_case_usd"] == pytest.approx(0.115 * (70 * 60 + 100 + 60) / 3600, rel=1e-4)
    changing = {"PutObject", "UploadPart", "CreateMultipartUpload", "CreateBucket", "CreateTrainingJob"}
    assert not [request for request in cloud.emulator.requests() if request.operation in changing]

    (sent,) = [item.body for item in launched.requests if item.operation == "CreateTrainingJob"]
    actual = [item for item in launched.requests if "paretune" in item.headers.get("User-Agent", "")]
    of_s3 = [item for item in actual if item.service == "s3" and item.operation != "CreateBucket"]
    assert of_s3
    assert {item.headers.get(OWNER) for item in of_s3} == {sent["RoleArn"].split(":")[4]}
    run_id = launched.cloud.runs()[-1].info.run_id
    text = json.dumps(sent).replace(run_id, "RUN").replace(job_of(sent["TrainingJobName"]), "RUN")
    assert json.loads(text) == output["request"]


def test_a_warm_pool_is_used_again_and_recorded_for_the_job_that_asked_for_it(launched: Launched) -> None:
    cloud = launched.cloud
    again = cloud.run(**launched.job)
    assert again.code == 0, again.text
    first, second = cloud.emulator.jobs()
    job = cloud.described(first)
    pool = job["WarmPoolStatus"]
    assert (pool["Status"], pool["ReusedByJob"]) == ("Reused", second)
    _, run = cloud.runs()
    retained = pool["ResourceRetainedBillableTimeInSeconds"]
    assert run.data.metrics["warm_pool_seconds"] == retained > 0
    billed = job["BillableTimeInSeconds"] + retained
    assert run.data.metrics["cost_usd"] == pytest.approx(billed * 0.115 / 3600)
    assert tags_of(run)["paretune.warm_pool"] == "Reused"
    assert f"after {first} were billed for {duration(retained)} each until they were reused" in again.text


def test_the_hugging_face_image_trains_with_its_own_libraries(
    tmp_path: Path, workplace: Path, tiny_job: dict[str, object]
) -> None:
    folder = os.environ.get("PARETUNE_IMAGE_ENVIRONMENT")
    if folder is None:
        pytest.skip("run `.ci/image FOLDER` and set PARETUNE_IMAGE_ENVIRONMENT=FOLDER")
    images = {"*huggingface-pytorch-training*transformers5.3.0*": Path(folder)}
    shared = [Path(sys.prefix)]  # where the rest of its libraries are
    with Emulator(tmp_path / "account", images=images, keep=shared) as emulator:
        cloud = Cloud(emulator, workplace)
        image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu"
        tiny_job |= {"instance_type": "ml.g5.xlarge", "sagemaker.training_image": image}
        refused = cloud.run(**tiny_job)
        assert refused.code == 3, refused.text
        assert "sees no GPU; driver: none" in refused.text
        assert cloud.the_run().data.metrics["billable_seconds"] < 60

        cloud.environment["PARETUNE_ALLOW_NO_GPU"] = "1"
        done = cloud.run(**tiny_job)

        assert done.code == 0, done.text
        run = cloud.runs()[0]
        report = json.loads(Path(cloud.client.download_artifacts(run.info.run_id, "report.json")).read_text())
        assert report["facts"]["transformers"] == "5.3.0"


def test_the_policy_in_the_pages_allows_what_a_launch_asks_for_and_nothing_more(
    launched: Launched, cloud: Cloud, long_job: dict[str, object]
) -> None:
    with cloud.start(
        **long_job, **{"sagemaker.keep_alive_minutes": 5}
    ) as running:  # they are released when it is stopped
        cloud.until_it_trains(running)
        running.process.send_signal(signal.SIGINT)
        assert running.wait(WITHIN_S) == 130, running.text

    came = [*launched.requests, *cloud.emulator.requests()]
    requests = [item for item in came if "paretune" in item.headers.get("User-Agent", "")]
    value = {PERMISSIONS.get(item.operation, f"{item.service}:{item.operation}") for item in requests}
    (policy,) = [block for block in _json_blocks() if "iam:PassRole" in json.dumps(block)]
    named = [statement["Action"] for statement in policy["Statement"]]
    allowed = {action for actions in named for action in ([actions] if isinstance(actions, str) else actions)}
    without_a_call = {"iam:PassRole", "sagemaker:AddTags"}  # needed by CreateTrainingJob
    without_a_call |= {"s3:AbortMultipartUpload"}  # after a multipart upload that was cut off
    without_a_call |= {"s3:DeleteObject"}  # of checkpoints, which a job of seconds does not leave
    only_sometimes = {"iam:GetRole"}  # of a role in the same account
    assert value - {"sts:GetCallerIdentity"} - only_sometimes == allowed - without_a_call - only_sometimes


def test_a_job_that_nobody_waits_for_is_recorded_by_sync(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    started = cloud.run(**tiny_job, wait="false")

    assert started.code == 0, started.text
    (name,) = cloud.emulator.jobs()
    run = cloud.the_run()
    assert f"{name} has been created; its run is {run.info.run_id}" in started.text
    assert run.info.status == "RUNNING"
    again = cloud.run(**tiny_job, wait="false")
    assert (again.code, cloud.emulator.jobs()) == (0, [name])  # the same command finds the running job

    done = cloud.run("sync")

    assert done.code == 0, done.text
    run = cloud.the_run()
    assert run.info.status == "FINISHED"
    assert {"f1", "cost_usd", "billable_seconds"} <= run.data.metrics.keys()


def test_two_instances_reach_what_one_reaches(cloud: Cloud, tiny_job: dict[str, object]) -> None:
    job = tiny_job | {"global_batch_size": 16, "per_device_train_batch_size": 4, "num_train_epochs": 3}
    spread = cloud.run(**job, instance_count=2, strategy="fsdp")
    assert spread.code == 0, spread.text
    run, described = cloud.the_run(), cloud.described()
    assert described["ResourceConfig"]["InstanceCount"] == 2
    assert run.data.params["global_batch_size"] == "16"
    price = PriceList.read({}).price("ml.m5.large", "us-east-1")
    assert price is not None
    dollars = described["BillableTimeInSeconds"] * 2 * price.usd_per_hour / 3600
    assert run.data.metrics["cost_usd"] == pytest.approx(dollars)
    alone = cloud.run(**job | {"per_device_train_batch_size": 16})
    assert alone.code == 0, alone.text

    first, two = cloud.runs()
    # All steps have the same rows, but dropout draws different numbers in each process.
    assert two.data.metrics["eval_loss"] == pytest.approx(first.data.metrics["eval_loss"], abs=5e-3)
    losses = [[point.value for point in cloud.history(run, "train/loss")] for run in (first, two)]
    assert losses[1] == pytest.approx(losses[0], abs=2e-2)
