"""A foreign project with a SageMaker managed MLflow: its command writes to the run itself."""

import json
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.end_to_end.cloud import Cloud
from tests.end_to_end.test_direct_logging import ARN, cloud

__all__ = ["cloud"]  # the fixture

pytestmark = pytest.mark.slow

TRAIN = """
import mlflow
with mlflow.start_run() as run:
    mlflow.log_metric("loss", 0.5, step=3)
    mlflow.log_text("bonjour", "word.txt")
    print("status", mlflow.MlflowClient().get_run(run.info.run_id).data.tags["paretune.state"])
"""


def test_the_command_writes_to_the_run_and_nothing_is_copied(cloud: Cloud, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    (project / "MLproject").write_text("name: x\nentry_points: {main: {command: python train.py}}")
    configuration = json.dumps({"instance_type": "ml.m5.large"})
    done = cloud.mlflow("run", str(project), "--backend", "sagemaker", "--backend-config", configuration)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "status Running" in done.stdout
    (run,) = MlflowClient(cloud.environment["SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT"]).search_runs(["0"])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["loss"] == 0.5
    assert {"job_seconds", "billable_seconds", "cost_usd"} <= set(run.data.metrics)
    assert run.data.tags["paretune.logging"] == "direct"
    (request,) = cloud.created()
    address = cloud.environment["SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT"]
    assert request["Environment"] == {
        "PYTHONUNBUFFERED": "1",
        "MLFLOW_TRACKING_URI": ARN,
        "MLFLOW_RUN_ID": run.info.run_id,
        "MLFLOW_EXPERIMENT_ID": "0",
        "SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": address,
    }
    folder = cloud.emulator.job_folder(request["TrainingJobName"]) / "1" / "algo-1" / "ml"
    assert not (folder / "output" / "data" / "paretune").exists()
    assert "sagemaker-mlflow" in (folder / "input" / "data" / "job" / "job.json").read_text()
