"""Servers before MLflow 3.0: the program of MLflow's own server without what such a server does not have."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.models import Model
from werkzeug.serving import make_server

from paretune.commands.doctor.store_checks import store_findings
from paretune.commands.predict.model_files import fetch
from paretune.core.checks import Verdict
from paretune.core.clock import SystemClock
from paretune.models.register import register
from paretune.specification.job import JobSpec
from paretune.tracking import Run, Tracking
from paretune.tracking.models import JobModel, missing_on_server

NAME = "sentiment-en"
IN_S3 = "s3://mine/paretune-1/output/model.tar.gz"
Serve = Callable[..., None]

# MLflow 3.17 imports it when it is first asked to search.
pytestmark = pytest.mark.filterwarnings("ignore:starlette.middleware.wsgi")


@pytest.fixture
def serve(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a server before the workplace's store, with a text as its version, and has MLflow use it."""
    from mlflow.server import app, handlers

    # It would open them itself, and then have this process use them without the server.
    monkeypatch.setattr(handlers, "_tracking_store", MlflowClient()._tracking_client.store)
    monkeypatch.setattr(handlers, "_model_registry_store", MlflowClient()._get_registry_client().store)
    running = []

    def start(version: str, *, has_logged_models: bool = False) -> None:
        def older(environment: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            if "logged-models" in environment["PATH_INFO"] and not has_logged_models:
                start_response("404 NOT FOUND", [("Content-Type", "text/html")])
                return [b"<!doctype html><title>404 Not Found</title>"]
            if environment["PATH_INFO"] == "/version":
                start_response("200 OK", [("Content-Type", "text/plain")])
                return [version.encode()]
            return app(environment, start_response)

        listening = make_server("127.0.0.1", 0, older, threaded=True)
        threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        running.append(listening)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{listening.server_port}")

    yield start
    for listening in running:
        listening.shutdown()
        listening.server_close()


@pytest.fixture
def model(tmp_path: Path) -> JobModel:
    """A model as a job leaves it, without any sense in its weights."""
    folder = tmp_path / "left"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"architectures": ["BertForSequenceClassification"]}))
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}")
    return JobModel(name="model", location=str(folder), folder=folder, card="A card.", requirements=("torch",))


def finished() -> Run:
    """The run of a finished job."""
    run = Tracking({}, SystemClock()).create("job", {"paretune.state": "Completed", "paretune.origin": "measured"})
    run.log_params(JobSpec(register=NAME).as_text())
    run.log_metrics({"f1": 0.9})
    return run


@pytest.mark.parametrize(
    ("version", "has_logged_models", "sentence"),
    [
        ("2.13.3", False, "the tracking server's MLflow 2.13.3 keeps no LoggedModels"),
        ("<html>", False, "the tracking server keeps no LoggedModels"),
        ("<html>", True, ""),
        ("3.0.1", True, ""),
    ],
)
def test_a_server_is_asked_for_its_version_and_else_for_models(
    serve: Serve, version: str, has_logged_models: bool, sentence: str
) -> None:
    serve(version, has_logged_models=has_logged_models)

    missing = missing_on_server(MlflowClient(), "0")

    assert missing.startswith(sentence)
    assert bool(missing) == bool(sentence)


def test_a_store_without_a_server_has_everything(workplace: Path) -> None:
    assert missing_on_server(MlflowClient(), "0") == ""


@pytest.mark.parametrize(
    ("version", "verdict", "sentence"),
    [
        ("2.16.2", Verdict.PASSED, "a model is an artifact of its run"),
        ("2.12.1", Verdict.FAILED, "must have MLflow 2.13 or newer"),
        ("99.0", Verdict.FAILED, f"pip install mlflow=={mlflow.__version__}"),
    ],
)
def test_the_check_of_the_store_says_what_an_older_server_lacks(
    serve: Serve, version: str, verdict: Verdict, sentence: str
) -> None:
    serve(version)

    first, second = store_findings()

    assert (first.verdict, second.verdict) == (verdict, Verdict.PASSED)
    assert version in first.text
    assert sentence in first.text


def test_the_model_is_an_artifact_of_its_run_once_and_leaves_no_gap(serve: Serve, model: JobModel) -> None:
    serve("2.22.4")
    run = finished()

    uris = {run.log_model(model) for _ in range(2)}

    assert uris == {f"runs:/{run.run_id}/model"}
    assert (run.has_gap, run.missing) == (False, missing_on_server(MlflowClient(), "0"))
    assert set(Model.load(uris.pop()).flavors) == {"transformers", "python_function"}
    (listed,) = json.loads(run.tags()["mlflow.log-model.history"])
    assert (listed["run_id"], listed["artifact_path"]) == (run.run_id, "model")


def test_the_model_is_registered_and_found_again_at_every_address(
    serve: Serve, model: JobModel, tmp_path: Path
) -> None:
    serve("2.22.4")
    run, tracking = finished(), Tracking({}, SystemClock())
    run.log_model(model)

    assert register(NAME, run.run_id, tracking).startswith(f"registered as {NAME}/1, candidate")

    for number, address in enumerate((f"models:/{NAME}@candidate", f"models:/{NAME}/1", f"runs:/{run.run_id}")):
        files = fetch(MlflowClient(), address, tmp_path / f"scratch-{number}")
        assert (files.folder / "config.json").read_text() == (Path(model.location) / "config.json").read_text()
        assert files.run_id == run.run_id


def test_a_version_of_a_model_in_s3_says_where_its_files_are(serve: Serve, model: JobModel) -> None:
    serve("2.22.4")
    run, tracking = finished(), Tracking({}, SystemClock())
    run.set_tags({"paretune.model": IN_S3})
    run.log_model(JobModel(name="model", location=IN_S3, folder=None, card="A card.", requirements=()))

    register(NAME, run.run_id, tracking)

    assert MlflowClient().get_model_version(NAME, "1").tags["paretune.model"] == IN_S3
