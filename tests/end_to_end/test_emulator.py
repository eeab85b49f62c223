"""Smoke test of the SageMaker stand-in: jobs really run, and the service answers in its own words."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import wait_until, working_in
from tests.stand_ins.sagemaker.client import Client, refusal
from tests.stand_ins.sagemaker.emulator import Emulator, namespaces_are_missing

ROOT = Path(__file__).parents[2]
missing = namespaces_are_missing()
pytestmark = pytest.mark.skipif(missing is not None, reason=str(missing))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Emulator.start(
        tmp_path_factory.mktemp("emulator"),
        {"*/training:*": Path(sys.prefix)},
        hide=[ROOT / "src"],
        quotas={"ml.g5.xlarge": 1},
        start_delay_s=0.05,
        grace_s=0.7,
        interrupt_grace_s=5.0,
        failure_grace_s=0.3,
    ) as emulator:
        yield Client(emulator)


def test_a_job_leaves_its_status_log_and_results(client: Client) -> None:
    client.start(
        "whole",
        """
        echo f1=0.25; echo; echo 'f1=none f1=0.5'; python3 -c 'import paretune.cli' 2>&1 | tail -n 1
        printf "process $$ on $(hostname)"
        echo weights > /opt/ml/model/weights; mkdir /opt/ml/output/data/a; echo plot > /opt/ml/output/data/a/plot
        """,
    )
    job = client.wait("whole")

    passed = [item["Status"] for item in job["SecondaryStatusTransitions"]]
    assert passed == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert (job["TrainingTimeInSeconds"], job["BillableTimeInSeconds"]) == (1, 1)
    first, second, absent, last = client.lines("whole")
    assert (first, second, last) == ("f1=0.25", "f1=none f1=0.5", "process 1 on algo-1")
    assert "No module named 'paretune" in absent
    assert client.archive("whole", "model") == {"weights": "weights\n"}
    assert client.archive("whole", "output") == {"a/plot": "plot\n"}


def test_the_instance_that_failed_first_gives_the_reason(client: Client) -> None:
    client.start(
        "second",
        """
        [ $CURRENT_HOST = algo-1 ] && exec sleep 60
        printf 'out of luck' > /opt/ml/output/failure; exit 3
        """,
        instances=2,
    )

    assert client.wait("second")["FailureReason"] == "AlgorithmError: out of luck, exit code: 3"


def test_an_interrupted_spot_job_goes_on_from_its_checkpoint_until_it_is_stopped(client: Client) -> None:
    client.start(
        "spot",
        """
        trap 'echo 5 > /opt/ml/checkpoints/step; exit 0' TERM
        [ -e /opt/ml/checkpoints/step ] && echo going on from $(cat /opt/ml/checkpoints/step)
        echo 4 > /opt/ml/checkpoints/step; while true; do sleep 0.05; done
        """,
        CheckpointConfig={"S3Uri": f"s3://{client.emulator.bucket}/spot/checkpoints"},
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 90},
    )
    wait_until(lambda: client.get("spot/checkpoints/step") == b"4\n", within_s=10, what="copied while it runs")
    client.emulator.interrupt("spot")
    client.says("spot", "going on from 5")
    client.sagemaker.stop_training_job(TrainingJobName="spot")
    job = client.wait("spot")

    passed = [item["Status"] for item in job["SecondaryStatusTransitions"]]
    once = ["Starting", "Downloading", "Training"]
    assert passed == [*once, "Interrupted", *once, "Stopping", "Uploading", "Stopped"]
    assert client.get("spot/checkpoints/step") == b"5\n"


SIZES = {"InstanceType": "ml.m5.large", "InstanceCount": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"TrainingJobName": "under_score"}, "ValidationException: 1 validation error"),
        ({"HyperParameters": {"a": "x" * 2501}}, "'hyperParameters.a.member' failed to satisfy"),
        ({"EnableManagedSpotTraining": True}, "Invalid MaxWaitTimeInSeconds"),
        ({"ResourceConfig": SIZES | {"InstanceType": "ml.x9.large"}}, "'resourceConfig.instanceType' failed to"),
        (
            {"ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2}},
            "ResourceLimitExceeded: The account",
        ),
    ],
)
def test_a_request_that_breaks_a_rule_is_refused(client: Client, changes: dict[str, Any], message: str) -> None:
    assert message in refusal(client.sagemaker.create_training_job, **client.request("refused") | changes)
    assert "refused" not in client.emulator.jobs()


def test_calls_fail_on_request_and_everything_is_noted(client: Client) -> None:
    client.emulator.clear_requests()
    client.emulator.inject("ListTrainingJobs", "ThrottlingException")
    assert refusal(client.sagemaker.list_training_jobs) == "ThrottlingException: Rate exceeded"
    client.sagemaker.list_training_jobs(NameContains="a")

    noted = [(request.service, request.operation, request.status) for request in client.emulator.requests()]
    assert noted == [("sagemaker", "ListTrainingJobs", 400), ("sagemaker", "ListTrainingJobs", 200)]
    assert client.emulator.requests("ListTrainingJobs")[1].body == {"NameContains": "a"}


STARTER = """
import sys, time
from pathlib import Path
from tests.stand_ins.sagemaker.client import Client
from tests.stand_ins.sagemaker.emulator import Emulator
emulator = Emulator.start(Path(sys.argv[1]))
client = Client(emulator)
client.start("left", "trap '' TERM; echo up; sleep 600 & sleep 600", instances=2)
client.says("left", "up")
print(emulator.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_nothing_of_a_job_outlives_who_started_the_emulator(tmp_path: Path) -> None:
    words = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as starter:
        assert starter.stdout is not None
        emulator = psutil.Process(int(starter.stdout.readline()))
        containers = emulator.children(recursive=True)
        assert any(process.cmdline() == ["sleep", "600"] for process in containers)
        os.kill(starter.pid, signal.SIGKILL)

    _, alive = psutil.wait_procs([emulator, *containers], timeout=10)
    assert not alive
    assert not working_in(tmp_path)
