"""A model trained, registered and used: `paretune main`, then `paretune predict` on its validation rows."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus

from paretune.cli.main import main
from tests.conftest import copy_store, sentences, user_s_own, write_csv

pytestmark = pytest.mark.slow
NAME = "sentiment-en"


def train(tiny_model: Path, folder: Path, **more: str) -> dict[str, Any]:
    """Train on few sentences, so that some are classified wrongly; what the run has recorded."""
    job = {
        "model": str(tiny_model),
        "dataset": str(folder / "train.csv"),
        "validation_file": str(folder / "validation.csv"),
        "num_train_epochs": "3",
        "learning_rate": "5e-3",
        "max_seq_length": "12",
        "precision": "fp32",
        "seed": "3",  # with which some rows are classified wrongly
        **more,
    }
    assert main(["main", *(word for name, text in job.items() for word in (f"--{name}", text))]) == 0
    run = MlflowClient().search_runs(["0"], order_by=["attributes.start_time DESC"])[0]
    return {"run_id": run.info.run_id, "f1": run.data.metrics["f1"], "tags": run.data.tags, "metrics": run.data.metrics}


@pytest.fixture(scope="module")
def place(
    tiny_model: Path, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder with a finished job, which the tests share, and what it has recorded."""
    folder = tmp_path_factory.mktemp("place")
    write_csv(folder / "train.csv", sentences(120))
    write_csv(folder / "validation.csv", sentences(60, seed=9))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", copy_store(empty_store, folder))
        for name, text in user_s_own(folder).items():
            patch.setenv(name, text)
        for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
            patch.delenv(name, raising=False)
        yield folder, train(tiny_model, folder, register=NAME)


def predict(capsys: pytest.CaptureFixture[str], **request: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of the command."""
    capsys.readouterr()
    code = main(["predict", "--json", *(word for name, text in request.items() for word in (f"--{name}", text))])
    return code, json.loads(capsys.readouterr().out)


def test_the_folder_of_a_job_predicts_its_validation_rows_with_the_f1_that_was_recorded(
    place: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, recorded = place
    (model,) = (folder / ".paretune" / "jobs").glob("*/model")
    assert 0.5 < recorded["f1"] < 1

    code, result = predict(capsys, model=str(model), data="validation.csv", instance_type="ml.g5.xlarge")

    assert code == 0
    assert result["metrics"]["f1"] == pytest.approx(recorded["f1"], abs=1e-9)
    assert (result["rows"], result["labelled_rows"], result["max_seq_length"]) == (60, 60, 12)
    assert result["truncated_rows"] > 0
    assert result["usd_per_1000_rows"] > 0
    assert "estimated: seconds of this machine at" in result["usd_basis"]
    assert "of ml.g5.xlarge in us-east-1" in result["usd_basis"]
    with (folder / "predictions.csv").open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [(row["text"], row["label"]) for row in rows] == sentences(60, seed=9)
    assert {row["prediction"] for row in rows} == {"positive", "negative"}


def test_the_registered_champion_is_the_model_of_the_job_and_predicts_as_its_folder_does(
    place: tuple[Path, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, recorded = place
    client = MlflowClient()
    if "paretune.registered" not in recorded["tags"] or recorded["tags"]["paretune.registered"].startswith("no:"):
        (model,) = (folder / ".paretune" / "jobs").glob("*/model")
        made = client.create_logged_model("0", name="model", source_run_id=recorded["run_id"])
        client.log_model_artifacts(made.model_id, str(model))
        client.finalize_logged_model(made.model_id, LoggedModelStatus.READY)
        client.delete_tag(recorded["run_id"], "paretune.registered")
        assert main(["sync"]) == 0
        assert f"registered as {NAME}/1" in capsys.readouterr().out
    tags = client.get_model_version_by_alias(NAME, "candidate").tags
    assert tags["paretune.f1"] == f"{recorded['f1']:.6g}"
    assert tags["paretune.validation_rows"] == recorded["tags"]["paretune.validation_rows"]
    assert float(tags["paretune.seconds_per_1000_rows"]) > 0
    client.set_registered_model_alias(NAME, "champion", "1")  # whatever its baselines say

    code, result = predict(capsys, model=f"models:/{NAME}@champion", data="validation.csv", output="out.jsonl")

    assert code == 0
    assert (result["model"], result["run_id"]) == (f"{NAME}/1", recorded["run_id"])
    assert result["metrics"]["f1"] == pytest.approx(recorded["f1"], abs=1e-9)
    assert "estimated: this machine at a notional" in result["usd_basis"]


def test_what_cannot_be_predicted_ends_with_exit_code_2_and_one_sentence(
    place: tuple[Path, dict[str, Any]], tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {
        str(tiny_model): "is not a classification model",
        "models:/nobody@champion": "cannot be read from MLflow",
    }
    for model, sentence in cases.items():
        code, result = predict(capsys, model=model, data="validation.csv", output="none.csv")
        assert code == 2
        assert sentence in result["error"]["message"]
    assert not (place[0] / "none.csv").exists()
