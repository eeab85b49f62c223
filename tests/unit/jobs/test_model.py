"""The model of a finished job in a real MLflow store: its record, and its version in the registry."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException

from paretune.core.clock import SystemClock
from paretune.jobs.card import opening_card, params_of
from paretune.jobs.model import overdue, record_model, register
from paretune.specification.container import JobReport
from paretune.specification.job import JobSpec
from paretune.tracking import schema
from paretune.tracking.models import logged_model_of
from paretune.tracking.run_writer import Run
from paretune.tracking.store import Tracking

NO_FAULT = JobReport(metrics={"f1": 0.75})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a checkpoint as a job leaves it, with meaningless weights."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("MLmodel", "config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def run(client: MlflowClient) -> Run:
    return Run(client, client.create_run("0").info.run_id, SystemClock())


def test_a_recorded_model_and_its_run_name_each_other(client: MlflowClient, run: Run, model: Path) -> None:
    uris = {
        record_model(run, opening_card(JobSpec(dataset="rows|of mine.csv")), "local", NO_FAULT, str(model))
        for _ in range(2)
    }

    logged_model = logged_model_of(client, run.run_id)
    assert logged_model is not None
    assert uris == {logged_model.model_uri}
    tags = run.tags()
    assert (tags[schema.MODEL], tags[schema.MODEL_URI]) == (str(model), logged_model.model_uri)


@pytest.mark.parametrize(
    ("spec", "fault", "location", "reason"),
    [
        (JobSpec(entry_script="train.py"), "no weights", "model", "no weights"),
        (JobSpec(), "", "gone", "there is no folder"),
    ],
)
def test_a_run_without_a_model_says_why(
    client: MlflowClient, run: Run, model: Path, spec: JobSpec, fault: str, location: str, reason: str
) -> None:
    report = JobReport(metrics={}, model_fault=fault)

    assert record_model(run, opening_card(spec), spec.instance_type, report, str(model.with_name(location))) == ""

    assert run.tags()[schema.NO_MODEL].startswith(reason)
    assert client.search_logged_models(["0"]) == []


def test_adapters_alone_are_recorded_as_files_and_not_registered(
    client: MlflowClient, run: Run, model: Path, tracking: Tracking
) -> None:
    fault = "it has only adapters"
    (model / "MLmodel").unlink()
    (model / "adapter_model.safetensors").touch()
    spec, report = JobSpec(fine_tuning="lora", lora={"merge": False}), JobReport(metrics={}, model_fault=fault)

    assert record_model(run, opening_card(spec), spec.instance_type, report, str(model)) != ""

    logged_model = logged_model_of(client, run.run_id)
    assert logged_model is not None
    assert (Path(logged_model.artifact_location) / "adapter_model.safetensors").exists()
    assert register(NAME, run.run_id, tracking) == f"nothing is registered as {NAME}: {fault}"
    assert not client.search_registered_models()


NAME = "sentiment-en"


@pytest.fixture
def tracking(workplace: Path) -> Tracking:
    """Return the tracking of the workplace's empty store."""
    return Tracking({}, SystemClock())


def finished(tracking: Tracking, *, origin: str = "measured", model: bool = True, **job: Any) -> str:
    """Return the run id of a finished job with `register`, and with a model unless `model` is false."""
    tags = {"state": "Completed", "origin": origin, "dataset_key": "d1"}
    run = tracking.create("job", {f"paretune.{name}": text for name, text in tags.items()})
    run.log_params(params_of(JobSpec(register=NAME, **job)))
    run.log_metrics({"f1": 0.9, "cost_usd": 1.5, "validation_rows": 1000.0})
    if model:
        client = MlflowClient()
        made = client.create_logged_model("0", name="model", source_run_id=run.run_id)
        client.finalize_logged_model(made.model_id, LoggedModelStatus.READY)
    return run.run_id


def candidate() -> tuple[str, str]:
    """Return the version and the run of the alias `candidate`."""
    version = MlflowClient().get_model_version_by_alias(NAME, "candidate")
    return str(version.version), version.run_id


def test_a_run_without_a_model_gets_the_same_answer_twice(tracking: Tracking) -> None:
    simulated = finished(tracking, origin="simulated", model=False)
    answer = f"nothing is registered as {NAME}: a simulated job has no model"

    assert register(NAME, simulated, tracking) == answer
    assert register(NAME, simulated, tracking) == answer


def test_a_model_becomes_one_version_with_the_alias_candidate(tracking: Tracking) -> None:
    first, second = finished(tracking), finished(tracking)

    assert register(NAME, first, tracking) == f"registered as {NAME}/1, candidate"
    assert candidate() == ("1", first)
    assert register(NAME, second, tracking) == f"registered as {NAME}/2, candidate"
    assert register(NAME, second, tracking) == f"already registered: {NAME}/2"
    assert not overdue(tracking)
    assert candidate() == ("2", second)

    MlflowClient().delete_run(second)
    assert register(NAME, second, tracking) == f"nothing is registered as {NAME}: its run has been deleted"


def test_a_command_that_was_killed_after_it_had_made_the_version_is_completed(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = finished(tracking)
    with monkeypatch.context() as patch:
        gone = MlflowException("gone")
        patch.setattr(MlflowClient, "set_registered_model_alias", lambda *_: (_ for _ in ()).throw(gone))
        message = register(NAME, run_id, tracking)
    assert "is not registered as sentiment-en yet (gone): `paretune sync` registers it" in message
    assert [run.run_id for run in overdue(tracking)] == [run_id]

    assert register(NAME, run_id, tracking) == f"registered as {NAME}/1, candidate"


def test_a_run_without_a_model_and_a_simulated_one_register_nothing_and_are_not_asked_again(tracking: Tracking) -> None:
    without, simulated = finished(tracking, model=False), finished(tracking, origin="simulated")

    assert "its run has no model in MLflow" in register(NAME, without, tracking)
    assert "a simulated job has no model" in register(NAME, simulated, tracking)

    assert not overdue(tracking)
    assert not MlflowClient().search_model_versions(f"name = '{NAME}'")
