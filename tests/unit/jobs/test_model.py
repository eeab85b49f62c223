"""The model of a finished job in a real MLflow store: its record, and its version in the registry."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException

from paretune.core.clock import SystemClock
from paretune.jobs.model import overdue, record_model, register
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.record import params_of
from paretune.launchers.base import JobState
from paretune.pricing import Price
from paretune.specification.container import JobReport
from paretune.specification.job import JobSpec
from paretune.tracking import schema
from paretune.tracking.models import logged_model_of
from paretune.tracking.run import Run
from paretune.tracking.store import Tracking

PRICE = Price(
    usd_per_hour=0.115,
    region="us-east-1",
    as_of="2026-11",
    source="a list",
    instance_type="local",
    confidence="notional",
)


def left_by(folder: Path) -> Path:
    """A checkpoint as a job leaves it, without any sense in its weights."""
    folder.mkdir()
    for name in ("MLmodel", "config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}")
    return folder


@pytest.fixture
def job(tmp_path: Path) -> JobOutcome:
    return JobOutcome(
        run_id="1a2b",
        job_name="paretune-1a2b-1",
        state=JobState.COMPLETED,
        spec=JobSpec(dataset="rows|of mine.csv"),
        report=JobReport(metrics={"f1": 0.75}, facts={"torch": "2.13.0+cpu"}, labels=("bad", "good")),
        model=str(left_by(tmp_path / "model")),
        metrics={"f1": 0.75, "baseline_f1_tfidf": 0.6, "cost_usd": 0.0123, "job_seconds": 40.0},
        price=PRICE,
    )


@pytest.fixture
def client(workplace: Path) -> MlflowClient:
    return MlflowClient()


@pytest.fixture
def run(client: MlflowClient) -> Run:
    return Run(client, client.create_run("0").info.run_id, SystemClock())


def test_a_recorded_model_and_its_run_name_each_other(client: MlflowClient, run: Run, job: JobOutcome) -> None:
    uris = {record_model(run, job) for _ in range(2)}

    logged_model = logged_model_of(client, run.run_id)
    assert logged_model is not None
    assert uris == {logged_model.model_uri}
    tags = run.tags()
    assert (tags[schema.MODEL], tags[schema.MODEL_URI]) == (job.model, logged_model.model_uri)


def of_a_script(job: JobOutcome) -> JobOutcome:
    return replace(job, spec=JobSpec(entry_script="train.py"), report=JobReport(metrics={}, model_fault="no weights"))


def that_is_gone(job: JobOutcome) -> JobOutcome:
    return replace(job, model=f"{job.model}-gone")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (of_a_script, "no weights"),
        (that_is_gone, "there is no folder"),
    ],
)
def test_a_run_without_a_model_says_why(
    client: MlflowClient,
    run: Run,
    job: JobOutcome,
    change: Callable[[JobOutcome], JobOutcome],
    reason: str,
) -> None:
    assert record_model(run, change(job)) == ""

    assert run.tags()[schema.NO_MODEL].startswith(reason)
    assert client.search_logged_models(["0"]) == []


def test_adapters_alone_are_recorded_as_files_and_not_registered(
    client: MlflowClient, run: Run, job: JobOutcome, tracking: Tracking
) -> None:
    folder, fault = Path(job.model), "it has adapters alone"
    (folder / "MLmodel").unlink()
    (folder / "adapter_model.safetensors").touch()
    spec, report = JobSpec(fine_tuning="lora", lora={"merge": False}), JobReport(metrics={}, model_fault=fault)

    assert record_model(run, replace(job, spec=spec, report=report)) != ""

    logged_model = logged_model_of(client, run.run_id)
    assert logged_model is not None
    assert (Path(logged_model.artifact_location) / "adapter_model.safetensors").exists()
    assert register(NAME, run.run_id, tracking) == f"nothing is registered as {NAME}: {fault}"
    assert not client.search_registered_models()


NAME = "sentiment-en"


@pytest.fixture
def tracking(workplace: Path) -> Tracking:
    """The empty store of the workplace."""
    return Tracking({}, SystemClock())


def finished(tracking: Tracking, *, origin: str = "measured", model: bool = True, **job: Any) -> str:
    """Run id of a finished job with `register`, and with a model unless told otherwise."""
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
    """Version and run of the alias `candidate`."""
    version = MlflowClient().get_model_version_by_alias(NAME, "candidate")
    return str(version.version), version.run_id


def test_a_model_becomes_one_version_with_the_alias_candidate(tracking: Tracking) -> None:
    first, second = finished(tracking), finished(tracking)

    assert register(NAME, first, tracking) == f"registered as {NAME}/1, candidate"
    assert candidate() == ("1", first)
    assert register(NAME, second, tracking) == f"registered as {NAME}/2, candidate"
    assert register(NAME, second, tracking) == f"registered before: {NAME}/2"
    assert not overdue(tracking)
    assert candidate() == ("2", second)


def test_a_command_that_was_killed_after_it_had_made_the_version_is_completed(
    tracking: Tracking, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = finished(tracking)
    with monkeypatch.context() as patch:
        gone = MlflowException("gone")
        patch.setattr(MlflowClient, "set_registered_model_alias", lambda *_: (_ for _ in ()).throw(gone))
        message = register(NAME, run_id, tracking)
    assert "is not registered as sentiment-en yet (gone): `paretune sync` does it" in message
    assert [run.run_id for run in overdue(tracking)] == [run_id]

    assert register(NAME, run_id, tracking) == f"registered as {NAME}/1, candidate"


def test_a_run_without_a_model_and_a_simulated_one_register_nothing_and_are_not_asked_again(tracking: Tracking) -> None:
    without, simulated = finished(tracking, model=False), finished(tracking, origin="simulated")

    assert "its run has no model in MLflow" in register(NAME, without, tracking)
    assert "a simulated job has no model" in register(NAME, simulated, tracking)

    assert not overdue(tracking)
    assert not MlflowClient().search_model_versions(f"name = '{NAME}'")
