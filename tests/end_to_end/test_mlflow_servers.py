"""The contract with tracking servers of other MLflow versions: jobs, studies, models and MLflow's UI.

`.ci/full servers` makes an environment for each version, names their folders in PARETUNE_MLFLOW_SERVERS (separated as
in PATH), and runs these tests with the server of each.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import mlflow
import pytest
import requests
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.models import Model

from paretune.cli import main
from paretune.commands.doctor import store_findings
from paretune.core.checks import Verdict
from tests.support.processes import free_port, tracking_server
from tests.support.study_tables import write_study
from tests.support.tags import tags_of

VARIABLE = "PARETUNE_MLFLOW_SERVERS"
ENVIRONMENTS = [Path(folder) for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder]
WITHOUT = pytest.param(
    None,
    marks=pytest.mark.skip(reason=f"{VARIABLE} names no environments: `.ci/full servers` makes them and runs this"),
)
NAME = "sentiment-en"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Server:
    """A running tracking server."""

    address: str

    def ask(self, path: str, question: object = None, /, **query: str) -> requests.Response:
        """Return what its UI gets from a path, by POST if there is a `question`."""
        with requests.Session() as session:
            session.trust_env = False
            method = "GET" if question is None else "POST"
            answer = session.request(method, urljoin(f"{self.address}/", path), json=question, params=query, timeout=30)
        answer.raise_for_status()
        return answer

    def api(self, path: str, question: object = None, /, **query: str) -> Any:
        """Return the JSON that its UI gets from a path of the API."""
        return self.ask(f"ajax-api/2.0/mlflow/{path}", question, **query).json()


@pytest.fixture(scope="module", params=ENVIRONMENTS or [WITHOUT], ids=lambda folder: getattr(folder, "name", "none"))
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a server of one of the environments, with an empty store."""
    port = free_port()
    with tracking_server(tmp_path_factory.mktemp("server"), port, str(request.param / "bin" / "python")):
        yield Server(f"http://127.0.0.1:{port}")


@pytest.fixture
def server(running: Server, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return that server, from the folder of one of its users."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", running.address)
    monkeypatch.setattr("paretune.launchers.local.usable_cores", lambda: 1)
    return running


def newest_run(condition: str = "") -> Run:
    """Return the newest of the runs that meet a condition."""
    return MlflowClient().search_runs(["0"], condition, order_by=["attributes.start_time DESC"], max_results=1)[0]


def artifacts(run: Run) -> set[str]:
    """Return the paths of the artifacts of a run."""
    return {item.path for item in MlflowClient().list_artifacts(run.info.run_id)}


def test_the_check_of_the_store_passes(server: Server) -> None:
    (finding,) = store_findings({})

    assert finding.verdict == Verdict.PASSED, finding.text


def test_a_simulated_job_is_recorded_from_its_start_to_its_end(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--launcher", "simulated", "--instance_type", "ml.g5.xlarge", "--max_train_samples", "2000"]

    assert main(["train", *words, "--register", NAME]) == 0

    run = newest_run()
    assert run.info.status == "FINISHED"
    assert run.data.params["instance_type"] == "ml.g5.xlarge"
    assert {"cost_usd", "job_seconds", "throughput_samples_per_second"} <= set(run.data.metrics)
    tags = tags_of(run)
    assert (tags["paretune.state"], tags["paretune.origin"]) == ("Completed", "simulated")
    assert "a simulated job trains nothing" in tags["mlflow.note.content"]
    assert "paretune.no_model" not in tags
    assert "report.json" in artifacts(run)
    printed = capsys.readouterr()
    assert "MLflow" not in printed.out
    assert "does not answer" not in printed.err


def test_the_model_of_a_job_is_recorded_registered_and_used(
    server: Server, tiny_model: Path, reviews: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--model", str(tiny_model), "--dataset", str(reviews), "--max_seq_length", "32", "--num_train_epochs", "1"]
    arguments = '{"save_strategy": "no", "logging_steps": 2}'
    assert main(["train", *words, "--training_arguments", arguments, "--register", NAME]) == 0

    printed = capsys.readouterr()
    assert "has gaps" not in printed.out
    assert "does not answer" not in printed.err
    run = newest_run()
    assert artifacts(run) >= {"report.json", "confusion_matrix.png", "classification_report.txt"}
    assert len(MlflowClient().get_metric_history(run.info.run_id, "train/loss")) > 1
    inputs = {item.tags[0].value: item.dataset for item in run.inputs.dataset_inputs}
    assert inputs.keys() == {"training", "validation"}
    assert {item.name for item in inputs.values()} == {"reviews.csv"}
    on = [{"dataset_name": "reviews.csv", "dataset_digest": inputs["validation"].digest}]
    (model,) = mlflow.search_logged_models(
        [run.info.experiment_id], filter_string="metrics.f1 >= 0", datasets=on, output_format="list"
    )
    assert (model.source_run_id, model.model_type) == (run.info.run_id, "classification")
    uri = tags_of(run)["paretune.model_uri"]
    assert set(Model.load(uri).flavors) == {"transformers", "python_function"}
    assert len(mlflow.pyfunc.load_model(f"models:/{NAME}@candidate").predict([{"text": "a great film"}])) == 1
    assert uri.startswith("models:/m-")
    version = MlflowClient().get_model_version_by_alias(NAME, "candidate")
    assert (version.run_id, version.status) == (run.info.run_id, "READY")


def test_a_study_is_recorded_with_its_page_and_mlflow_s_ui_gets_what_it_shows(server: Server, workplace: Path) -> None:
    write_study(workplace, n_trials=4)

    assert main(["study", "--study", "study.yaml"]) == 0

    parent = newest_run("tags.`paretune.kind` = 'study'")
    run_id, experiment = parent.info.run_id, parent.info.experiment_id
    assert parent.info.status == "FINISHED"
    assert artifacts(parent) >= {"pareto.html", "pareto.csv"}
    assert "<div id" in server.ask("").text  # the UI itself
    question = {
        "experiment_ids": [experiment],
        "filter": f"tags.`mlflow.parentRunId` = '{run_id}'",
        "order_by": ["metrics.`f1` DESC"],
        "run_view_type": "ACTIVE_ONLY",
    }
    trials = server.api("runs/search", question)["runs"]
    assert len(trials) >= 4
    best = {metric["key"]: metric["value"] for metric in trials[0]["data"]["metrics"]}
    one_run = {"run_id": trials[0]["info"]["run_id"], "metric_key": "f1"}
    history = server.api("metrics/get-history", **one_run, max_results="25000")  # MLflow 3.1 reads a missing one as 0
    assert [point["value"] for point in history["metrics"]] == [best["f1"]]
    shown = {tag["key"]: tag["value"] for tag in server.api("runs/get", run_id=run_id)["run"]["data"]["tags"]}
    assert "Take trial" in shown["mlflow.note.content"]
    assert trials[0]["info"]["run_id"] in server.ask("get-artifact", path="pareto.html", run_uuid=run_id).text
