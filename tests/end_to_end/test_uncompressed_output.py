"""A job whose output is uploaded as files (CompressionType NONE), because its model is large."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.end_to_end.cloud import Cloud
from tests.stand_ins.sagemaker.emulator import Emulator

pytestmark = pytest.mark.slow
NAME = "sentiment-large"


@pytest.fixture(scope="module")
def large_model(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """The tiny model, with a configuration that claims so many experts that its weights would take 0.3 GB."""
    folder = tmp_path_factory.mktemp("large") / "model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_local_experts": 8000}))
    return folder


def test_a_job_with_uncompressed_output_is_collected_registered_and_used(
    tmp_path: Path, workplace: Path, tiny_job: dict[str, object], large_model: Path
) -> None:
    arguments = {"eval_strategy": "no", "logging_steps": 2}
    job = tiny_job | {"model": large_model, "num_train_epochs": 4, "training_arguments": arguments, "register": NAME}
    with Emulator(tmp_path / "account") as emulator:
        cloud = Cloud(emulator, workplace)
        with cloud.start(**job) as running:
            cloud.until_it_trains(running)
            running.process.send_signal(signal.SIGKILL)
            running.process.wait()

        done = cloud.run("sync")

        assert done.code == 0, done.text
        assert {request["OutputDataConfig"]["CompressionType"] for request in cloud.created()} == {"NONE"}
        run = cloud.runs()[0]
        model = run.data.tags["paretune.model"]
        assert model.endswith(f"{run.data.tags['paretune.job_name']}/output/model/")
        assert run.data.metrics["f1"] > 0
        assert {"report.json", "confusion_matrix.png"} <= {
            item.path for item in cloud.client.list_artifacts(run.info.run_id)
        }
        bucket, _, prefix = model.removeprefix("s3://").partition("/")
        listed = cloud.client_of("s3").list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
        names = {entry["Key"].removeprefix(prefix) for entry in listed}
        assert {"config.json", "model.safetensors"} <= names
