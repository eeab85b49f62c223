"""The LoggedModel of a job: which files it has, what it tells, and that there is one of each run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.models import Model

from paretune.specification import metrics
from paretune.tracking import schema
from paretune.tracking.models import JobModel, log_model, logged_model_of, why_not

LARGE = 2**20


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """What a training leaves: weights of 1 MiB, configuration, tokenizer, and states that nobody needs any more."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["BertForSequenceClassification"]}))
    (folder / "model.safetensors").write_bytes(bytes(LARGE))
    for name in ("tokenizer.json", "tokenizer_config.json", "optimizer.pt", "training_args.bin"):
        (folder / name).write_text("{}")
    (folder / "checkpoint-3").mkdir()
    return folder


@pytest.fixture
def model(checkpoint: Path) -> JobModel:
    return JobModel(
        name="b16",
        location=str(checkpoint),
        folder=checkpoint,
        card="# A card",
        requirements=("torch==2.13.0",),
        dataset=("reviews.csv", "1a2b"),
    )


@pytest.fixture
def client(workplace: Path) -> MlflowClient:
    return MlflowClient()


@pytest.fixture
def run_id(client: MlflowClient) -> str:
    run_id = str(client.create_run("0").info.run_id)
    client.log_metric(run_id, metrics.F1, 0.75)
    return run_id


def disk_is_full(*_: object) -> None:
    raise OSError("the disk is full")


def test_the_files_are_arranged_as_mlflow_loads_them_without_states_of_the_training(
    client: MlflowClient, run_id: str, model: JobModel, checkpoint: Path
) -> None:
    workspace = Path(log_model(client, run_id, model).artifact_location)

    environment = Model.load(str(workspace)).flavors["python_function"]["env"]
    assert environment == {"virtualenv": "python_env.yaml"}
    assert (workspace / environment["virtualenv"]).is_file()

    names = {path.name for path in (workspace / "model").iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in (workspace / "components" / "tokenizer").iterdir()} == names - {"model.safetensors"}
    assert (workspace / "README.md").read_text() == "# A card"
    assert "torch==2.13.0" in (workspace / "requirements.txt").read_text().splitlines()
    described = Model.load(str(workspace))
    assert described.flavors["transformers"]["task"] == "text-classification"
    assert described.signature.outputs.input_names() == ["label", "score"]
    assert (workspace / "model" / "model.safetensors").samefile(checkpoint / "model.safetensors")  # on the disk once
    assert not (workspace / "model" / "config.json").samefile(checkpoint / "config.json")


def test_a_store_on_another_machine_is_sent_the_files(
    client: MlflowClient, run_id: str, model: JobModel, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paretune.tracking.models._local_folder", lambda _: None)

    workspace = Path(log_model(client, run_id, model).artifact_location)

    sent = workspace / "model" / "model.safetensors"
    assert (sent.stat().st_size, sent.is_symlink()) == (LARGE, False)
    assert not sent.samefile(checkpoint / "model.safetensors")
    assert {"MLmodel", "README.md", "requirements.txt"} <= {path.name for path in workspace.iterdir()}


def test_a_run_has_one_model_with_its_figures_however_often_it_is_logged(
    client: MlflowClient, run_id: str, model: JobModel
) -> None:
    first, again = (log_model(client, run_id, model).model_id for _ in range(2))

    result = logged_model_of(client, run_id)
    outputs = client.get_run(run_id).outputs
    assert result is not None
    assert outputs is not None
    assert {result.model_id, again, *(item.model_id for item in outputs.model_outputs)} == {first}
    assert [(item.key, item.value, item.dataset_name) for item in result.metrics or ()] == [
        (metrics.F1, 0.75, "reviews.csv")
    ]
    assert len(client.get_metric_history(run_id, metrics.F1)) == 1
    assert result.tags[schema.MODEL] == model.location


def test_a_model_whose_logging_was_interrupted_is_completed(
    client: MlflowClient, run_id: str, model: JobModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("paretune.tracking.models._describe", disk_is_full)
        with pytest.raises(OSError, match="full"):
            log_model(client, run_id, model)
    assert logged_model_of(client, run_id) is None

    done = log_model(client, run_id, model)

    assert [logged_model.model_id for logged_model in client.search_logged_models(["0"])] == [done.model_id]
    assert (Path(done.artifact_location) / "MLmodel").exists()


def test_a_model_that_stays_in_s3_is_registered_by_its_place_and_copies_nothing(
    client: MlflowClient, run_id: str, model: JobModel
) -> None:
    far = replace(model, location="s3://mine/job/output/model.tar.gz", folder=None)

    logged = log_model(client, run_id, far)

    path = Path(logged.artifact_location)
    assert logged.tags[schema.MODEL] == far.location
    assert not (path / "model").exists()
    described = Model.load(str(path))
    assert (described.flavors, described.metadata) == ({}, {schema.MODEL: far.location})


@pytest.mark.parametrize(
    ("lacking", "reason"),
    [("config.json", "no config.json"), ("model.safetensors", "no weights"), ("tokenizer", "no tokenizer")],
)
def test_a_folder_that_is_no_checkpoint_is_refused_with_what_it_lacks(
    checkpoint: Path, lacking: str, reason: str
) -> None:
    assert why_not(checkpoint) == ""
    for path in checkpoint.glob(f"{lacking}*"):
        path.unlink()

    assert why_not(checkpoint).startswith(reason)
