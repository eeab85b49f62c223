"""The card of a finished job and its record in MLflow: what they say, and when there is none."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from mlflow import MlflowClient

from paretune.core.clock import SystemClock
from paretune.jobs.model import card_of, record_model
from paretune.jobs.outcome import JobOutcome
from paretune.launchers.base import JobState
from paretune.pricing import Price
from paretune.specification.container import JobReport
from paretune.specification.job import JobSpec
from paretune.tracking import Run, schema
from paretune.tracking.models import logged_model_of

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
    (folder / "config.json").write_text(json.dumps({"architectures": ["BertForSequenceClassification"]}))
    for name in ("model.safetensors", "tokenizer.json"):
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


def test_a_card_has_the_figures_and_their_sources_as_hugging_face_reads_them(job: JobOutcome) -> None:
    text = card_of(job, "c0ffee")

    report = ModelCard(text).data.to_dict()
    assert report["base_model"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert report["pipeline_tag"] == "text-classification"
    for part in ("| 0.7500 |", "| 0.6000 |", "| 0.01230 USD |", "c0ffee", "bad, good", "measured", job.spec.command()):
        assert part in text


def test_a_recorded_model_and_its_run_name_each_other_and_the_folder_has_the_card(
    client: MlflowClient, run: Run, job: JobOutcome
) -> None:
    uris = {record_model(run, job) for _ in range(2)}

    logged_model = logged_model_of(client, run.run_id)
    assert logged_model is not None
    assert uris == {logged_model.model_uri}
    tags = run.tags()
    assert (tags[schema.MODEL], tags[schema.MODEL_URI]) == (job.model, logged_model.model_uri)
    card = (Path(job.model) / "README.md").read_text()
    assert card == card_of(job) == (Path(logged_model.artifact_location) / "README.md").read_text()
    assert [item.path for item in client.list_artifacts(run.run_id)] == ["README.md"]
    requirements = (Path(logged_model.artifact_location) / "requirements.txt").read_text().splitlines()
    assert requirements[1:] == ["torch==2.13.0", "transformers", "accelerate"]


def without_weights(job: JobOutcome) -> JobOutcome:
    (Path(job.model) / "model.safetensors").unlink()
    return replace(job, spec=JobSpec(entry_script="train.py"))


def left_out(job: JobOutcome) -> JobOutcome:
    return replace(job, spec=job.spec.replace(log_model=False))


@pytest.mark.parametrize(
    ("change", "reason", "has_card"),
    [(without_weights, "no weights", False), (left_out, "log_model=false", True)],
)
def test_a_run_without_a_model_says_why(
    client: MlflowClient,
    run: Run,
    job: JobOutcome,
    change: Callable[[JobOutcome], JobOutcome],
    reason: str,
    has_card: bool,
) -> None:
    assert record_model(run, change(job)) == ""

    assert run.tags()[schema.NO_MODEL].startswith(reason)
    assert (schema.MODEL in run.tags()) == has_card == (Path(job.model) / "README.md").exists()
    assert client.search_logged_models(["0"]) == []


def test_a_run_of_a_script_that_has_left_no_files_says_so(run: Run, job: JobOutcome) -> None:
    assert record_model(run, replace(job, model="", spec=JobSpec(entry_script="train.py"))) == ""
    assert run.tags()[schema.NO_MODEL] == "the job has left no model"


def test_adapters_alone_are_recorded_as_files_that_no_flavour_loads(
    client: MlflowClient, run: Run, job: JobOutcome
) -> None:
    folder = Path(job.model)
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")

    assert record_model(run, replace(job, spec=JobSpec(fine_tuning="lora", lora={"merge": False}))) != ""

    logged_model = logged_model_of(client, run.run_id)
    assert logged_model is not None
    assert (Path(logged_model.artifact_location) / "model" / "adapter_model.safetensors").exists()
    assert "flavors: {}" in (Path(logged_model.artifact_location) / "MLmodel").read_text()
