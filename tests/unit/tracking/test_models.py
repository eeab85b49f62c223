"""The LoggedModel of a job: which files it has, what it records, and that each run has exactly one."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import boto3
import mlflow.pyfunc
import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, Schema
from moto import mock_aws

from paretune.tracking import schema
from paretune.tracking.data_sets import dataset_input
from paretune.tracking.models import address, log_model, logged_model_of
from tests.support.stand_ins.mlflow_store import denying_batches

STATES = ("optimizer.pt", "training_args.bin")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Return what a training run leaves: weights of 1 MiB, description, tokenizer, and states no longer needed."""
    folder = tmp_path / "model"
    (folder / "components").mkdir(parents=True)
    (folder / "checkpoint-3").mkdir()
    (folder / "all-of-it").symlink_to(tmp_path)
    (folder / "model.safetensors").write_bytes(bytes(2**20))
    for name in (
        "MLmodel",
        "config.json",
        "components/tokenizer.json",
        *STATES,
        "checkpoint-3/model.safetensors",
    ):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def run_id(client: MlflowClient) -> str:
    run_id = str(client.create_run("0").info.run_id)
    client.log_param(run_id, "learning_rate", "0.01")
    client.log_metric(run_id, "f1", 0.75)
    return run_id


def disk_is_full(*_: object) -> None:
    raise OSError("the disk is full")


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_store_has_the_files_without_states_of_the_training(
    client: MlflowClient, run_id: str, checkpoint: Path
) -> None:
    logged = log_model(client, run_id, "b16", str(checkpoint))

    left = {"MLmodel", "config.json", "model.safetensors", "components/tokenizer.json"}
    assert names(Path(logged.artifact_location)) == left
    assert not any(path.is_symlink() for path in Path(logged.artifact_location).rglob("*"))
    assert address(logged) == logged.model_uri


@pytest.mark.parametrize("where", [nullcontext, denying_batches])
def test_a_run_has_one_model_however_often_it_is_logged_also_where_batches_are_denied(
    client: MlflowClient, run_id: str, checkpoint: Path, where: Callable[[], AbstractContextManager[object]]
) -> None:
    with where():
        first, again = (log_model(client, run_id, "b16", str(checkpoint)).model_id for _ in range(2))

    result = logged_model_of(client, run_id)
    outputs = client.get_run(run_id).outputs
    assert result is not None
    assert outputs is not None
    assert {result.model_id, again, *(item.model_id for item in outputs.model_outputs)} == {first}
    assert [(item.key, item.value) for item in result.metrics or ()] == [("f1", 0.75)]  # the list of models shows it
    assert len(client.get_metric_history(run_id, "f1")) == 1
    assert result.params == {"learning_rate": "0.01"}
    assert result.tags[schema.MODEL] == str(checkpoint)


def test_the_quality_of_a_model_names_the_validation_rows_and_its_cost_does_not(
    client: MlflowClient, run_id: str, checkpoint: Path
) -> None:
    splits = {"training": "d1", "validation": "d2"}
    client.log_inputs(run_id, [dataset_input("rows.csv", context, digest, 9) for context, digest in splits.items()])
    client.log_metric(run_id, "cost_usd", 0.25)

    for _ in range(2):
        log_model(client, run_id, "b16", str(checkpoint), "classification")

    model = logged_model_of(client, run_id)
    assert model is not None
    assert model.model_type == "classification"
    linked = {item.key: (item.dataset_name, item.dataset_digest) for item in model.metrics or ()}
    assert linked == {"f1": ("rows.csv", "d2"), "cost_usd": (None, None)}
    for digest, count in (("d2", 1), ("d1", 0)):
        on = [{"dataset_name": "rows.csv", "dataset_digest": digest}]
        assert len(client.search_logged_models(["0"], filter_string="metrics.f1 > 0.5", datasets=on)) == count


def test_a_model_whose_logging_was_interrupted_is_completed(
    client: MlflowClient, run_id: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, "log_model_artifacts", disk_is_full)
        with pytest.raises(OSError, match="full"):
            log_model(client, run_id, "b16", str(checkpoint))
    assert logged_model_of(client, run_id) is None

    done = log_model(client, run_id, "b16", str(checkpoint))

    assert [logged_model.model_id for logged_model in client.search_logged_models(["0"])] == [done.model_id]
    assert (Path(done.artifact_location) / "MLmodel").exists()


class Doubling:
    """A model that knows the answer without any weights."""

    def predict(self, data: Any) -> list[float]:
        return [2 * each for each in data.iloc[:, 0]]


def _load_pyfunc(_: str) -> Doubling:
    return Doubling()


def test_a_model_in_s3_stays_there_and_its_logged_model_loads_it_by_its_own_address(
    client: MlflowClient, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # MLflow keeps an S3 client for each endpoint for minutes; this endpoint avoids the client of another test.
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", "https://s3.us-east-1.amazonaws.com")
    far, folder = "s3://mine/job/output/model/", tmp_path / "model"
    given = ModelSignature(Schema([ColSpec("double")]), Schema([ColSpec("double")]))
    mlflow.pyfunc.save_model(folder, loader_module=__name__, pip_requirements=["mlflow", "torch"], signature=given)
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="mine")
        for path in folder.rglob("*"):
            if path.is_file():
                s3.upload_file(str(path), "mine", f"job/output/model/{path.relative_to(folder).as_posix()}")

        weights = {"Bucket": "mine", "Key": "job/output/model/model.safetensors", "Body": b"1"}
        s3.put_object(**weights, StorageClass="GLACIER")  # cannot be read

        logged = log_model(client, run_id, "b16", far)

        s3.put_object(**weights)
        loaded = mlflow.pyfunc.load_model(logged.model_uri)
        assert loaded.predict([1.5]) == [3.0]
        assert loaded.metadata.signature == given
    assert address(logged) == logged.tags[schema.MODEL] == far
    kept = Path(logged.artifact_location)
    assert sum(path.stat().st_size for path in kept.rglob("*") if path.is_file()) < 10_000
    assert {"mlflow", "torch", "boto3"} <= {*(kept / "requirements.txt").read_text().split()}


def test_a_folder_in_s3_that_is_no_model_of_mlflow_is_recorded_with_its_address(
    client: MlflowClient, run_id: str
) -> None:
    with mock_aws():
        logged = log_model(client, run_id, "b16", far := "s3://mine/job/output/model/")

    assert address(logged) == logged.tags[schema.MODEL] == far
    assert logged.status == LoggedModelStatus.READY
