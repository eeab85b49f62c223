"""The connection to MLflow, with a real store in a file and real servers on the loopback network."""

import json
import logging
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import pytest
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import NoCredentialsError
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
from mlflow.store.artifact.s3_artifact_repo import S3ArtifactRepository
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy.exc import IntegrityError

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, TrackingUnavailable
from paretune.specification.container import Event
from paretune.specification.job import JobSpec
from paretune.tracking import schema
from paretune.tracking.data_sets import dataset_input
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.run_writer import Run
from paretune.tracking.store import Tracking, alone_with, is_absent_file, require_answer
from paretune.tracking.ui_view import StudyView
from tests.support.processes import free_port
from tests.support.stand_ins.mlflow_store import denying_batches
from tests.support.tags import tags_of


@pytest.fixture
def store(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """Return a client that reads what was written."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return MlflowClient()


def tracking(**environment: str) -> Tracking:
    return Tracking(environment, SystemClock())


def history_of(store: MlflowClient, run: Run, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in store.get_metric_history(run.run_id, name)]


def losses(*steps: int, since: float = 1000.0) -> list[Event]:
    return [Event(time=since + step, step=step, metrics={"train/loss": 1 / step}) for step in steps]


def test_a_value_that_mlflow_refuses_is_left_out_and_holds_nothing_back(store: MlflowClient) -> None:
    run = tracking().begin("job")
    run.log_metrics({"hits@10": 0.75, "f1": 0.5})
    run.log_events([Event(time=1.0, step=1, metrics={"eval/acc@1": 0.5, "train/loss": 1.0})])
    run.set_tags({"t" * 300: "x", "paretune.state": "Completed"})

    recorded = store.get_run(run.run_id).data
    assert recorded.metrics == {"f1": 0.5, "hits_10": 0.75, "train/loss": 1.0, "eval/acc_1": 0.5}
    assert recorded.tags["paretune.state"] == "Completed"
    run.has_gap = False
    run.flush()
    assert not run.has_gap  # it is not tried again


def test_a_run_is_read_by_its_id_in_every_experiment_unless_it_is_deleted_or_unknown(store: MlflowClient) -> None:
    other = store.create_run(store.create_experiment("other"), tags={"paretune.state": "Completed"}).info.run_id
    recorded = tracking().recorded(other)
    assert recorded is not None
    assert (recorded.run_id, recorded.tags["paretune.state"]) == (other, "Completed")

    store.delete_run(other)

    assert [tracking().recorded(run_id) for run_id in (other, "0" * 32, "no id '", "")] == [None] * 4


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ('=HYPERLINK("http://h")', "_HYPERLINK__http:/h__"),
        ("../../etc/passwd", "__/__/etc/passwd"),
        ("/a//b/./c/", "a/b/_/c"),
        ("..", "__"),
        ("a..b", "a__b"),
        ("//", "_"),
        ("n" * 300, "n" * 250),
    ],
)
def test_a_metric_of_any_name_is_recorded(store: MlflowClient, name: str, recorded: str) -> None:
    run = tracking().begin("job")
    run.log_metrics({name: 0.5})

    assert store.get_run(run.run_id).data.metrics == {recorded: 0.5}
    assert not run.has_gap


def test_the_run_that_mlflow_run_has_opened_is_filled_and_no_other_is_made(store: MlflowClient) -> None:
    experiment = store.create_experiment("opened by mlflow run")
    opened = store.create_run(experiment).info.run_id
    store.log_param(opened, "learning_rate", "1e-4")  # in the user's spelling, which stays
    run = tracking(MLFLOW_RUN_ID=opened, MLFLOW_EXPERIMENT_ID=experiment).begin("tiny")
    run.log_metrics({"f1": 0.5})
    run.log_params({"learning_rate": "0.0001", "seed": "42"})
    run.end("FINISHED")

    (result,) = store.search_runs([experiment])
    assert (run.run_id, run.has_gap, result.info.status) == (opened, False, "FINISHED")
    assert result.data.metrics == {"f1": 0.5}
    assert result.data.params == {"learning_rate": "1e-4", "seed": "42"}


def test_parameters_written_twice_are_written_once_however_many_and_long(store: MlflowClient) -> None:
    run = tracking().begin("tiny")
    params = {f"parameter_{number}": str(number) for number in range(230)} | {"training_arguments": "x" * 9000}
    run.log_params(params)
    run.log_params(params | {"parameter_0": "another value"})

    recorded = store.get_run(run.run_id).data.params
    assert not run.has_gap
    assert len(recorded) == 231
    assert recorded["parameter_0"] == "0"
    assert recorded["training_arguments"] == "x" * 6000


def test_parameters_whose_request_failed_once_are_recorded_later(
    store: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, failures = SqlAlchemyStore.log_batch, [MlflowException("connection refused")]

    def fail_once(*args: Any, **named: Any) -> None:
        if failures:
            raise failures.pop()
        send(*args, **named)

    monkeypatch.setattr(SqlAlchemyStore, "log_batch", fail_once)
    run = tracking().begin("job")
    run.log_params({"model": "tiny", "seed": "42"})
    assert run.has_gap

    run.set_tags({schema.STATE: "Completed"})

    recorded = store.get_run(run.run_id).data
    assert recorded.params == {"model": "tiny", "seed": "42"}
    assert recorded.tags[schema.STATE] == "Completed"


def test_events_are_written_once_by_a_second_process_too(store: MlflowClient) -> None:
    first = tracking().begin("tiny")
    first.log_events(losses(1, 2))
    second = tracking().run(first.run_id)
    second.log_events(losses(1, 2, 4, since=5000.0))

    assert history_of(store, first, "train/loss") == [(1, 1.0), (2, 0.5), (4, 0.25)]


def test_a_headline_of_a_machine_whose_clock_is_late_replaces_the_one_before(store: MlflowClient) -> None:
    class LateClock(SystemClock):
        now = staticmethod(lambda: 1_000_000_000.0)

    run = tracking().begin("tiny")
    run.log_metrics({"cost_usd": 0.25, "f1": 0.9})
    late = Tracking({}, LateClock()).run(run.run_id)
    late.log_metrics({"cost_usd": 0.75})

    assert store.get_run(run.run_id).data.metrics == {"cost_usd": 0.75, "f1": 0.9}


@pytest.mark.parametrize("has_code", [True, False])
def test_a_server_that_denies_an_operation_has_all_and_is_not_asked_for_ever(
    store: MlflowClient, caplog: pytest.LogCaptureFixture, has_code: bool
) -> None:
    run = tracking().begin("tiny")
    with denying_batches(has_code=has_code) as answers:
        run.log_params({"epochs": "3"})
        run.set_tags({schema.STATE: "Completed"})
        run.log_metrics({"cost_usd": 0.5, "f1": 0.9})
        before = len(answers)
        for _ in range(5):
            run.flush()

    data = store.get_run(run.run_id).data
    assert (data.params, data.tags[schema.STATE]) == ({"epochs": "3"}, "Completed")
    assert data.metrics == {"cost_usd": 0.5, "f1": 0.9}
    assert len(answers) == before > 0
    assert not run.has_gap
    assert "MLflow refuses a part of the record" not in caplog.text
    assert "does not answer" not in caplog.text


@pytest.mark.parametrize(
    ("source", "name", "kind", "location"),
    [
        ("s3://b/rows.csv", "s3://b/rows.csv", "s3", {"uri": "s3://b/rows.csv"}),
        ("./data/rows.csv", "rows.csv", "local", {"uri": "./data/rows.csv"}),
        ("bundled:imdb", "bundled:imdb", "local", {"uri": "bundled:imdb"}),
        (
            "nyu-mll/glue:sst2.x",
            "nyu-mll/glue:sst2.x",
            "hugging_face",
            {"path": "nyu-mll/glue", "config_name": "sst2.x"},
        ),
    ],
)
def test_the_data_of_a_run_are_its_inputs_once_for_each_context_however_often_they_are_logged(
    store: MlflowClient, source: str, name: str, kind: str, location: dict[str, str]
) -> None:
    run = tracking().begin("tiny")
    splits = {"training": ("d1", 80), "validation": ("d2", 20)}
    for _ in range(2):
        run.log_inputs([dataset_input(source, context, digest, rows) for context, (digest, rows) in splits.items()])

    inputs = {item.tags[0].value: item.dataset for item in store.get_run(run.run_id).inputs.dataset_inputs}
    rows = {context: json.loads(first.profile)["num_rows"] for context, first in inputs.items()}
    assert rows == {"training": 80, "validation": 20}
    assert len(store.get_run(run.run_id).inputs.dataset_inputs) == 2
    assert {item.digest for item in inputs.values()} == {"d1", "d2"}
    validation = inputs["validation"]
    assert (validation.name, validation.source_type, json.loads(validation.source)) == (name, kind, location)
    assert mlflow.data.get_source(validation) is not None  # MLflow reads it back


def test_a_data_set_that_another_process_registers_at_the_same_time_is_recorded(
    store: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, failures = SqlAlchemyStore.log_inputs, [IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed"))]

    def race(self: SqlAlchemyStore, *arguments: Any, **more: Any) -> None:
        if failures:
            raise failures.pop()
        send(self, *arguments, **more)

    monkeypatch.setattr(SqlAlchemyStore, "log_inputs", race)
    run = tracking().begin("tiny")
    run.log_inputs([dataset_input("bundled:imdb", "training", "d1", 80)])

    assert not run.has_gap
    assert len(store.get_run(run.run_id).inputs.dataset_inputs) == 1


def test_inputs_that_a_server_refuses_are_missing_and_all_else_is_recorded(
    store: MlflowClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def deny(*_: object, **__: object) -> None:
        raise MlflowException("not authorized: LogInputs", error_code=PERMISSION_DENIED)

    monkeypatch.setattr(SqlAlchemyStore, "log_inputs", deny)
    run = tracking().begin("tiny")
    run.log_inputs([dataset_input("bundled:imdb", "training", "d1", 80)])
    run.log_metrics({"f1": 0.9})

    assert store.get_run(run.run_id).data.metrics == {"f1": 0.9}
    assert not run.has_gap
    assert caplog.text.count("MLflow refuses a part of the record") == 1


def test_a_headline_is_the_latest_value_although_another_client_has_written_a_curve(store: MlflowClient) -> None:
    run = Run(store, store.create_run("0").info.run_id, SystemClock(), created_with={})
    run.log_metrics({"eval_loss": 0.9})
    store.log_metric(run.run_id, "eval_loss", 0.8, step=6)
    store.log_metric(run.run_id, "eval_f1", 0.5, step=6)

    run.reread()
    run.log_metrics({"eval_loss": 0.7, "eval_f1": 0.6})

    assert store.get_run(run.run_id).data.metrics == {"eval_loss": 0.7, "eval_f1": 0.6}


def test_a_run_begins_with_results_and_has_sizes_and_estimates_as_tags(store: MlflowClient) -> None:
    run = Run(store, store.create_run("0").info.run_id, SystemClock(), created_with={})
    facts = {"total_parameters": 66_955_010.0, "estimated_seconds_low": 7.25}
    speed = {"throughput_samples_per_second": 52.5}
    run.log_facts({"baseline_f1_tfidf": 0.75, "layers": 6.0})
    with run.later():
        run.log_events(losses(1, 2))
        run.log_results({"train_seconds": 9.0, **speed, **facts, "cost_usd": 0.5, "baseline_f1_tfidf": 0.75, "f1": 0.9})
    run.flush()

    recorded = store.get_run(run.run_id).data
    first, *_, last = recorded.metrics
    assert [*recorded.metrics][:3] == ["f1", "cost_usd", *speed]  # MLflow's Compare draws the first metric
    assert (first, last) == ("f1", "train/loss")
    assert not {*facts, "layers"} & recorded.metrics.keys()
    assert schema.unpacked(recorded.tags)["paretune.total_parameters"] == "66955010"
    read_back = tracking().recorded(run.run_id)
    assert read_back is not None
    assert run.metrics() == read_back.metrics == {**recorded.metrics, **facts, "layers": 6.0}


def test_a_curve_s_last_value_is_the_headline_that_is_recorded_at_the_end(store: MlflowClient) -> None:
    run = tracking().begin("tiny")
    for step in (10, 20):
        run.log_events([Event(time=1000.0 + step, step=step, metrics={"f1": step / 100})])

    tracking().run(run.run_id).log_metrics({"f1": 0.17})

    assert store.get_run(run.run_id).data.metrics["f1"] == 0.17


def test_a_run_has_user_and_source_as_mlflow_s_own_runs_have_and_ends_when_its_job_did(store: MlflowClient) -> None:
    run = tracking().begin("tiny")
    run.end("FINISHED", 1234.5)
    run.end("FINISHED", 1234.5)  # a later correction

    recorded = store.get_run(run.run_id)
    assert {"mlflow.user", "mlflow.source.name", "mlflow.source.type"} <= tags_of(recorded).keys()
    assert recorded.info.end_time == 1_234_500


def test_a_tag_that_is_deleted_is_absent_and_one_that_waits_is_not_written_later(store: MlflowClient) -> None:
    run = tracking().create("job", {schema.FAILURE_REASON: "quota"})
    with run.later():
        run.set_tags({schema.REMARKS: "waits"})
        run.delete_tags(schema.FAILURE_REASON, schema.REMARKS, schema.VERDICT)
    run.flush()

    assert not {schema.FAILURE_REASON, schema.REMARKS} & tags_of(store.get_run(run.run_id)).keys()
    assert not run.has_gap


def test_mlflow_opens_a_view_with_quality_and_dollars_and_keeps_one_that_a_user_has_changed(workplace: Path) -> None:
    first = tracking()
    first.create("a run")
    experiment = MlflowClient().get_experiment("0")
    key = "mlflow.sharedViewState.paretune"
    state = json.loads(json.loads(experiment.tags[key])["state"])

    assert state["selectedColumns"][:2] == ["metrics.`f1`", "metrics.`cost_usd`"]
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"

    changed = json.dumps({**json.loads(experiment.tags[key]), "updatedAt": 2_000_000_000_000})
    MlflowClient().set_experiment_tag("0", key, changed)
    tracking().create("another")

    assert MlflowClient().get_experiment("0").tags[key] == changed


def test_a_value_that_mlflow_run_records_in_quotes_is_recorded_as_it_is_used_beside_it(store: MlflowClient) -> None:
    opened = store.create_run("0")
    store.log_param(opened.info.run_id, "dataset", "'my data/r e.csv'")  # as `mlflow run -P dataset="my data/r e.csv"`
    store.log_param(opened.info.run_id, "epochs", "3")

    tracking().run(opened.info.run_id).log_params({"dataset": "my data/r e.csv", "epochs": "5", "rate": "0.1"})

    data = store.get_run(opened.info.run_id).data
    assert data.params == {"dataset": "'my data/r e.csv'", "epochs": "3", "rate": "0.1"}
    assert data.tags["paretune.used_dataset"] == "my data/r e.csv"
    assert "paretune.used_epochs" not in data.tags
    (found,) = store.search_runs(["0"], "tags.`paretune.used_dataset` = 'my data/r e.csv'")
    assert found.info.run_id == opened.info.run_id


def view_of(
    run_id: str, name: str, settings: Sequence[str] = ("training_arguments.lr",), paid: str = "cost_usd"
) -> StudyView:
    return StudyView(run_id=run_id, name=name, metrics=["val_rae", paid], settings=settings, paid=paid)


def test_the_view_of_a_study_has_its_own_objectives_as_columns_and_chart(workplace: Path) -> None:
    tracking().offer_view(view_of("id", "study"))
    tag = MlflowClient().get_experiment("0").tags["mlflow.sharedViewState.id"]
    state = json.loads(json.loads(tag)["state"])

    assert state["selectedColumns"] == [
        "metrics.`val_rae`",
        "metrics.`cost_usd`",
        "metrics.`throughput_samples_per_second`",
        "params.`training_arguments.lr`",
        "tags.`paretune.position`",
        "metrics.`job_seconds`",
        "tags.`paretune.origin`",
    ]
    assert [(chart["xaxis"]["key"], chart["yaxis"]["key"]) for chart in state["compareRunCharts"]] == [
        ("cost_usd", "val_rae")
    ]
    assert state["compareRunSections"][0]["name"] == "val_rae over dollars"


def test_the_view_of_a_study_that_nobody_bills_shows_time_in_the_place_of_dollars(workplace: Path) -> None:
    tracking().offer_view(view_of("id", "study", paid="job_seconds"))
    state = json.loads(json.loads(MlflowClient().get_experiment("0").tags["mlflow.sharedViewState.id"])["state"])

    assert state["selectedColumns"][:2] == ["metrics.`val_rae`", "metrics.`job_seconds`"]
    assert state["selectedColumns"][-2] == "metrics.`cost_usd`"
    assert [chart["xaxis"]["key"] for chart in state["compareRunCharts"]] == ["job_seconds"]
    assert state["compareRunSections"][0]["name"] == "val_rae over job time"


def test_a_view_with_many_searched_parameters_fits_into_a_tag(workplace: Path) -> None:
    tracking().offer_view(view_of("id", "study", [f"training_arguments.a_rather_long_name_{n}" for n in range(60)]))
    tag = MlflowClient().get_experiment("0").tags["mlflow.sharedViewState.id"]

    assert "a_rather_long_name_0" in tag
    assert len(tag) <= 5_000


def test_the_description_of_an_experiment_links_to_its_views_the_newest_study_first(workplace: Path) -> None:
    def description() -> str:
        return MlflowClient().get_experiment("0").tags["mlflow.note.content"]

    view = "#/experiments/0/runs?viewStateShareKey="
    tracking().create("a run")
    assert description() == f"[All runs with F1 and dollars]({view}paretune&workflowType=machine_learning)"

    for number in (*range(8), 6):
        tracking().offer_view(view_of(f"id{number}", f"study [{number}]"))
    links = description().split(" · ")
    assert [link.partition("=")[2].partition("&")[0] for link in links] == [
        "id6",
        "id7",
        "id5",
        "id4",
        "id3",
        "paretune",
    ]
    assert links[0].startswith("[study (6)](")

    before = description()
    tracking().create("another run")
    assert description() == before


def test_a_description_of_a_users_own_stays(workplace: Path) -> None:
    tracking().create("a run")
    written = "Reviews of films. " + MlflowClient().get_experiment("0").tags["mlflow.note.content"]
    MlflowClient().set_experiment_tag("0", "mlflow.note.content", written)

    tracking().offer_view(view_of("id", "study"))

    assert MlflowClient().get_experiment("0").tags["mlflow.note.content"] == written


def test_the_open_command_names_the_store_and_the_run(
    store: MlflowClient, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    output = tracking().open_command("abc")

    assert f"mlflow ui --backend-store-uri sqlite:///{database} " in output
    assert output.endswith("/#/experiments/0/runs/abc?workflowType=machine_learning")


@pytest.mark.parametrize("uri", ["sqlite:////my data/mlflow.db", "postgresql://host/db?sslmode=require&timeout=5"])
def test_the_open_command_can_be_pasted_whatever_characters_the_address_has(workplace: Path, uri: str) -> None:
    here = tracking()
    here.uri = uri

    assert here.open_command("abc").startswith(f"mlflow ui --backend-store-uri '{uri}'  # then open ")


def test_the_open_command_omits_the_default_store_unless_mlflow_run_changed_the_folder(
    store: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")

    assert tracking().open_command("abc").startswith("mlflow ui  # then open ")
    by_mlflow = tracking(MLFLOW_RUN_ID=tracking().create("opened").run_id).open_command("abc")
    assert by_mlflow.startswith(f"mlflow ui --backend-store-uri sqlite:///{tmp_path / 'mlflow.db'} ")


@pytest.mark.parametrize(
    ("resource", "command"),
    [
        ("mlflow-tracking-server/mine", "tracking-server-url --tracking-server-name mine"),
        ("mlflow-app/app-1A", "app-url --arn arn:aws:sagemaker:eu-west-1:123456789012:mlflow-app/app-1A"),
    ],
)
def test_the_open_command_of_a_managed_server_asks_for_a_presigned_url(
    store: MlflowClient, resource: str, command: str
) -> None:
    here = tracking()
    here.uri = f"arn:aws:sagemaker:eu-west-1:123456789012:{resource}"

    before, comment = here.open_command("abc").split("  # ")

    assert before == f"aws sagemaker create-presigned-mlflow-{command} --region eu-west-1"
    assert comment == "then open its URL and the run abc"


def test_a_specification_is_read_back_with_the_region_where_it_ran() -> None:
    spec = JobSpec(instance_type="ml.g5.12xlarge", tags={"team": "search + rescue"}, model="a b", learning_rate=3e-4)
    tags = {**schema.given_tag(spec.given()), "paretune.region": "eu-west-1"}

    read = RecordedRun("run", {}, tags, {}).spec()
    assert read == spec.replace(region="eu-west-1")
    with pytest.raises(BadInput, match="must have at most 8,000 characters as JSON"):
        schema.given_tag(JobSpec(environment={f"V{number}": "x" * 500 for number in range(20)}).given())
    with pytest.raises(BadInput, match="no specification of a job is recorded"):
        RecordedRun("run", {}, {}, {}).spec()


@contextmanager
def without_metrics(database: Path) -> Iterator[None]:
    """Make the store refuse metrics while the block runs."""
    with sqlite3.connect(database) as connection:
        connection.execute("ALTER TABLE metrics RENAME TO metrics_away")
    try:
        yield
    finally:
        with sqlite3.connect(database) as connection:
            connection.execute("ALTER TABLE metrics_away RENAME TO metrics")


def test_metrics_of_a_store_that_was_away_are_written_when_it_is_back(
    store: MlflowClient, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tracking().begin("tiny")
    run.log_events(losses(1))
    with without_metrics(database):
        run.log_events(losses(2))
        run.log_events(losses(3))
        assert run.has_gap
    run.log_events(losses(4))

    assert [step for step, _ in history_of(store, run, "train/loss")] == [1, 2, 3, 4]
    actual = [record for record in caplog.records if record.name == "paretune.tracking.run_writer"]
    assert [record.levelname for record in actual] == ["WARNING"]  # said once, not every half second
    assert "\n" not in actual[0].getMessage()


@pytest.mark.parametrize("error", [NoCredentialsError(), S3UploadFailedError("An error occurred (AccessDenied)")])
def test_a_bucket_that_takes_no_artifacts_leaves_a_gap_in_a_run_and_ends_a_command_in_our_words(
    error: Exception, store: MlflowClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def upload(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(S3ArtifactRepository, "_upload_file", upload)
    store.create_experiment("in S3", artifact_location="s3://bucket/runs")
    here = tracking(MLFLOW_EXPERIMENT_NAME="in S3")
    run = here.create("job")
    run.log_text("{}", "report.json")
    assert run.has_gap
    assert f"the storage of MLflow cannot be used; the job continues: {error}" in caplog.text

    run.has_gap = False
    run.log_files({"gone.txt": b"text"}, "output")
    assert run.has_gap
    with pytest.raises(TrackingUnavailable, match="cannot be used"):
        here.keep("report", "note", {"report.json": "{}"})


def test_a_server_that_is_not_there_is_said_within_seconds_and_without_a_password_that_looks_like_a_path(
    store: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:hush/hush@{address}")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")  # as for a user
    began = time.monotonic()
    with pytest.raises(TrackingUnavailable, match=f"http://{address} does not answer") as refused:
        tracking()

    assert time.monotonic() - began < 6
    assert "nothing was launched" in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_store_below_a_folder_that_cannot_be_entered_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> bool:
        raise PermissionError

    monkeypatch.setattr(tempfile, "TemporaryFile", denied)
    monkeypatch.setattr(Path, "exists", denied)
    assert not is_absent_file("sqlite:////none/inside/it.db")
    with pytest.raises(TrackingUnavailable, match="/none/inside must be a folder that can be written to"):
        require_answer("sqlite:////none/inside/it.db")


@pytest.mark.parametrize("folder", ["/proc", "/dev/null/below"])
def test_a_store_that_cannot_be_made_is_refused_at_once_whoever_asks(folder: str) -> None:
    with pytest.raises(TrackingUnavailable, match=f"{folder} must be a folder that can be written to, for it.db"):
        require_answer(f"sqlite:///{folder}/it.db")


def test_a_server_behind_a_proxy_is_not_connected_to_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, int]]()

    def connect(address: tuple[str, int], timeout: float) -> None:
        asked.append(address)
        raise OSError("Name or service not known")

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", "direct.example")
    require_answer("https://mlflow.example")
    assert asked == []

    with pytest.raises(TrackingUnavailable, match="does not answer"):
        require_answer("https://direct.example")
    assert asked == [("direct.example", 443)]


def test_no_message_shows_the_password_of_a_server_that_goes_away(
    store: MlflowClient, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"http://me:secret@127.0.0.1:{free_port()}"
    here = tracking()
    here.uri = address
    run = Run(MlflowClient(address), "abc", SystemClock())
    with caplog.at_level(logging.WARNING, logger="paretune"):
        run.log_metrics({"f1": 0.5})

    assert run.has_gap
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("paretune")]
    assert messages
    assert not [text for text in [*messages, here.open_command("abc")] if "secret" in text]


@pytest.mark.parametrize(
    "uri", ["nonsense://x", "http://127.0.0.1:notaport", "sqlite:///{file}/mlflow.db", "sqlite://me:x@host/y.db"]
)
def test_a_store_that_cannot_be_used_is_said_in_our_words(
    uri: str, store: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()  # where a folder should be
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(file=tmp_path / "file"))

    with pytest.raises(TrackingUnavailable):
        tracking()


_OPEN = """
import sys, time
from paretune.core.clock import SystemClock
from paretune.tracking.store import Tracking
print("ready", flush=True)
sys.stdin.readline()
print(Tracking({}, SystemClock()).create("first").run_id)
"""


@pytest.mark.slow
def test_two_processes_that_open_a_new_store_at_once_both_find_it_made(tmp_path: Path) -> None:
    environment = os.environ | {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [
        subprocess.Popen([sys.executable, "-c", _OPEN], cwd=tmp_path, env=environment, **pipes)  # type: ignore[call-overload]
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    message = [process.communicate(timeout=120) for process in both]

    assert [process.returncode for process in both] == [0, 0], message
    assert len({out for out, _ in message}) == 2


def test_an_experiment_that_another_command_creates_at_the_same_moment_is_used(
    store: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = MlflowClient.create_experiment

    def create_twice(client: MlflowClient, name: str, *others: Any, **terms: Any) -> str:
        create(client, name, *others, **terms)
        return create(client, name, *others, **terms)  # as the later of two commands

    monkeypatch.setattr(MlflowClient, "create_experiment", create_twice)
    run = tracking(MLFLOW_EXPERIMENT_NAME="new").create("job")

    experiment = store.get_experiment_by_name("new")
    assert experiment is not None
    assert store.get_run(run.run_id).info.experiment_id == experiment.experiment_id


def test_mlflow_s_own_process_does_not_warn_about_headers_of_aws_s_plug_in() -> None:
    code = (
        "import mlflow\nmlflow.set_tracking_uri('http://127.0.0.1:9')\n"
        "from mlflow.tracking.request_header import registry\nprint(registry.resolve_request_headers().keys())\n"
        "registry._logger.warning('another warning')"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "User-Agent" in ended.stdout
    assert "list index out of range" not in ended.stderr
    assert "another warning" in ended.stderr


def test_a_lock_excludes_others_leaves_no_file_and_cannot_be_prepared_by_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(30):
            with alone_with("a store"):
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == 1
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []
    folder.chmod(0o777)  # as if another user had made it
    with pytest.raises(PermissionError, match="only you can write to"), alone_with("a store"):
        pass


def test_a_run_of_a_job_has_few_tags_and_is_read_as_if_it_had_them_all(store: MlflowClient) -> None:
    run = tracking().create("a job", {schema.STATE: "Running", schema.WATCHED_BY: "here", schema.CLAIMED_AT: "1"})
    run.set_tags({schema.USED_BATCH: "8", schema.PRICE_SOURCE: "a list", schema.SECONDARY_STATUS: "Training"})
    store.set_tag(run.run_id, schema.USED_BATCH, "4")  # as version 0.6, or somebody in MLflow, sets it
    tracking().run(run.run_id).set_tags({schema.WATCHED_BY: "there", schema.USED_BATCH: "2"})
    run.delete_tags(schema.CLAIMED_AT)

    recorded = store.get_run(run.run_id).data.tags
    assert {name for name in recorded if name.startswith("paretune.")} == {
        *(schema.STATE, schema.WATCH, schema.FACTS, schema.USED_BATCH)
    }
    read = schema.unpacked(recorded)
    assert (read[schema.WATCHED_BY], read[schema.USED_BATCH], read[schema.PRICE_SOURCE]) == ("there", "2", "a list")
    assert read[schema.SECONDARY_STATUS] == "Training"
    assert schema.CLAIMED_AT not in read


@pytest.mark.parametrize("document", ["", "{", "[1]", "[" * 5000])
def test_a_document_that_somebody_has_broken_hides_no_other_tag(document: str) -> None:
    assert schema.unpacked({schema.WATCH: document, schema.STATE: "Running"}) == {schema.STATE: "Running"}


def test_a_document_never_becomes_longer_than_a_tag_may_be() -> None:
    written = schema.packed({schema.COMMAND: "x" * 9_000, schema.USED_BATCH: "8"}, {})

    assert schema.unpacked(written) == {schema.USED_BATCH: "8"}


def test_facts_that_wait_are_not_lost_when_the_run_is_read_for_its_watcher(store: MlflowClient) -> None:
    run = tracking().create("a job")
    with run.later():
        run.set_tags({schema.MODEL_REVISION: "0a1b2c"})
        run.set_tags({schema.UNSEEN: "true"})  # for which the run is read
    run.set_tags({schema.USED_BATCH: "8"})

    read = schema.unpacked(store.get_run(run.run_id).data.tags)
    assert (read[schema.MODEL_REVISION], read[schema.UNSEEN], read[schema.USED_BATCH]) == ("0a1b2c", "true", "8")
