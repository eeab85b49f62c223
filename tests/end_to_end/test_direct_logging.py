"""A SageMaker managed MLflow: the job writes to the run itself, through the address that an ARN stands for."""

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.end_to_end.cloud import Cloud, account
from tests.processes import wait_until
from tests.stand_ins.sagemaker.emulator import namespaces_are_missing

pytestmark = pytest.mark.slow

ARN = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/team"


@pytest.fixture
def cloud(tmp_path: Path, workplace: Path) -> Iterator[Cloud]:
    """A user whose tracking server is an ARN; a stock MLflow server answers for it."""
    missing = namespaces_are_missing()
    if missing:
        pytest.skip(missing)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with account(tmp_path / "account", forward=[port]) as emulator:
        words = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
        store = ["--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}", "--no-serve-artifacts"]
        roots = ["--default-artifact-root", f"s3://{emulator.bucket}/mlflow"]
        environment = os.environ | emulator.environment
        environment.pop("MLFLOW_TRACKING_URI", None)
        with (tmp_path / "server.log").open("wb") as log:
            server = subprocess.Popen([*words, *store, *roots], env=environment, stdout=log, stderr=log)
        try:
            wait_until(lambda: _answers(address), within_s=60, what="the MLflow server starts")
            yield Cloud(
                emulator,
                workplace,
                {"MLFLOW_TRACKING_URI": ARN, "SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": address},
            )
        finally:
            server.terminate()
            server.wait(30)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_job_writes_to_the_run_itself_and_the_launcher_repeats_nothing(
    cloud: Cloud, tiny_job: dict[str, object]
) -> None:
    client = MlflowClient(cloud.environment["SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT"])
    job = tiny_job | {"num_train_epochs": 25, "training_arguments": {"eval_strategy": "no", "logging_steps": 5}}
    with cloud.start(**job) as running:
        cloud.until_it_trains(running)
        (run,) = client.search_runs(["0"])
        running.process.send_signal(19)  # SIGSTOP: what comes now, the job itself has written
        wait_until(lambda: client.get_metric_history(run.info.run_id, "train/loss"), within_s=60, what="the job writes")
        running.process.send_signal(18)
        assert running.wait(180) == 0, running.text

    steps = [point.step for point in client.get_metric_history(run.info.run_id, "train/loss")]
    assert steps == sorted(set(steps))
    finished = client.get_run(run.info.run_id)
    assert finished.info.status == "FINISHED"
    assert {"f1", "cost_usd", "throughput_samples_per_second"} <= set(finished.data.metrics)
    (request,) = cloud.created()
    assert request["Environment"]["MLFLOW_TRACKING_URI"] == ARN
    assert request["Environment"]["MLFLOW_RUN_ID"] == run.info.run_id
