"""The files of a model at each kind of address, in a real MLflow store."""

import tarfile
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelStatus

from paretune.commands.predict.model_files import fetch
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput
from paretune.tracking import Tracking, schema

NAME = "sentiment-en"


@pytest.fixture
def tracking(workplace: Path) -> Tracking:
    """The empty store of the workplace."""
    return Tracking({}, SystemClock())


@pytest.fixture
def logged(tracking: Tracking, tmp_path: Path) -> LoggedModel:
    """A LoggedModel with its files, of a run with a parameter; version 1 of NAME is made of it, and champion."""
    client = MlflowClient()
    run = tracking.create("job")
    run.log_params({"max_seq_length": "48"})
    files = tmp_path / "files" / "model"
    files.mkdir(parents=True)
    (files / "config.json").write_text("{}")
    made = client.create_logged_model("0", name="model", source_run_id=run.run_id)
    client.log_model_artifacts(made.model_id, str(files.parent))
    client.finalize_logged_model(made.model_id, LoggedModelStatus.READY)
    recorded = tracking.registry().model(run.run_id)
    assert recorded is not None
    tracking.registry().add(NAME, recorded, run.run_id, {})
    client.set_registered_model_alias(NAME, "champion", "1")
    return made


@pytest.mark.parametrize("address", [f"models:/{NAME}@champion", f"models:/{NAME}/1", "models:/MODEL", "runs:/RUN"])
def test_every_address_leads_to_the_same_files_and_to_what_its_run_has_recorded(
    tracking: Tracking, logged: LoggedModel, tmp_path: Path, address: str
) -> None:
    address = address.replace("MODEL", logged.model_id).replace("RUN", logged.source_run_id or "")

    result = fetch(MlflowClient(), address, tmp_path / "scratch")

    assert (result.folder / "config.json").read_text() == "{}"
    assert result.run_id == logged.source_run_id
    assert result.params["max_seq_length"] == "48"
    assert result.name == (f"{NAME}/1" if NAME in address else address)


def test_the_files_of_a_job_that_were_packed_are_unpacked(tracking: Tracking, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "config.json", "config.json")
    run = tracking.create("job")
    MlflowClient().log_artifact(run.run_id, str(tmp_path / "model.tar.gz"))

    result = fetch(MlflowClient(), f"runs:/{run.run_id}/model.tar.gz", tmp_path / "scratch")

    assert (result.folder / "config.json").read_text() == "{}"


def test_a_registered_model_whose_files_are_below_a_prefix_in_s3_is_read_from_there(
    tracking: Tracking, logged: LoggedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = "s3://bucket/paretune/jobs/job/output/model/"
    MlflowClient().set_logged_model_tags(logged.model_id, {schema.MODEL: prefix})
    fetched: list[str] = []

    def download(artifact_uri: str, dst_path: str) -> str:
        fetched.append(artifact_uri)
        (Path(dst_path) / "config.json").write_text("{}")
        return dst_path

    monkeypatch.setattr("mlflow.artifacts.download_artifacts", download)
    result = fetch(MlflowClient(), f"models:/{NAME}/1", tmp_path / "scratch")

    assert fetched == [prefix]
    assert result.folder == tmp_path / "scratch"


def test_an_address_that_leads_nowhere_is_bad_input_with_its_reason(
    tracking: Tracking, logged: LoggedModel, tmp_path: Path
) -> None:
    empty = tracking.create("job")
    empty.log_text("x", "notes/readme.txt")
    cases = {
        f"models:/{NAME}@candidate": f"has no version with the alias candidate: take models:/{NAME}@champion",
        f"models:/{NAME}/7": "version=7",
        "models:/nobody/1": "nobody",
        "models:/m-0123": "m-0123",
        "runs:/0123456789abcdef0123456789abcdef": "0123456789abcdef",
        f"runs:/{empty.run_id}": "has no model in MLflow",
        f"runs:/{empty.run_id}/notes/readme.txt": "file could not be opened successfully",  # as an archive
        f"runs:/{empty.run_id}/notes": "holds no Hugging Face model: expected config.json or adapter_config.json",
    }
    for address, sentence in cases.items():
        with pytest.raises(BadInput, match=sentence) as raised:
            fetch(MlflowClient(), address, tmp_path / "scratch")
        assert len(raised.value.faults) == 1
