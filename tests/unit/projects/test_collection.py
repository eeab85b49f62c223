"""What a command has recorded in its job, copied into its run."""

import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus

from paretune.projects import collection
from paretune.projects.collection import collect, read_store
from paretune.projects.container_entrypoint import RUN_NAME, make_store


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> MlflowClient:
    """The user's own tracking store."""
    folder = tmp_path_factory.mktemp("outside")
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    client.create_experiment("mine", artifact_location=str(folder / "files"))
    return client


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, outside: MlflowClient) -> tuple[str, Path]:
    """A run outside, and the archive of what its command has recorded in the job."""
    folder = tmp_path_factory.mktemp("job")
    experiment = outside.get_experiment_by_name("mine")
    assert experiment is not None  # made above
    run_id = outside.create_run(experiment.experiment_id, run_name="outer").info.run_id
    outside.log_param(run_id, "given", "'quoted'")
    workspace = folder / "paretune"
    (workspace / "mlruns").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "mlruns").symlink_to(workspace / "mlruns")
        make_store(workspace, run_id, "mine")
    _record(MlflowClient(f"sqlite:///{workspace / 'mlflow.db'}"), run_id, folder)
    archive = folder / "output.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(workspace, "paretune")
        packed.add(workspace / "experiment", "something/else")
    return run_id, archive


def _record(inner: MlflowClient, run_id: str, folder: Path) -> None:
    """What a project would record."""
    run = inner.get_run(run_id)
    assert run.info.run_name == RUN_NAME
    for step in range(3):
        inner.log_metric(run_id, "loss", 1.0 / (step + 1), timestamp=1000 + step, step=step)
    inner.log_metric(run_id, "strange", float("nan"), timestamp=1000)
    inner.log_param(run_id, "given", "quoted")
    inner.log_param(run_id, "own", "1")
    inner.set_tag(run_id, "colour", "blue")
    inner.set_tag(run_id, "mlflow.source.name", "wrong")
    texts = folder / "mlruns" / run.info.experiment_id / run_id / "artifacts" / "texts"
    texts.mkdir(parents=True)  # not through MLflow, which in one process takes equal run ids for one run
    (texts / "a.txt").write_text("words")
    child = inner.create_run(run.info.experiment_id, run_name="fold", tags={"mlflow.parentRunId": run_id}).info.run_id
    inner.log_metric(child, "fold_loss", 0.5)
    inner.set_terminated(child)
    deleted = inner.create_run(run.info.experiment_id).info.run_id
    inner.delete_run(deleted)
    model = inner.create_logged_model(run.info.experiment_id, name="my-model", source_run_id=run_id)
    (folder / "MLmodel").write_text("flavors: {}")
    inner.log_model_artifacts(model.model_id, str(_folder_with(folder / "MLmodel")))
    inner.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def _folder_with(file: Path) -> Path:
    folder = file.parent / "model"
    folder.mkdir()
    (folder / file.name).write_text(file.read_text())
    return folder


@pytest.mark.slow
def test_everything_is_copied_once_however_often_it_is_asked_for(
    outside: MlflowClient, store: tuple[str, Path]
) -> None:
    run_id, archive = store
    remarks = [collect(archive, run_id, outside) for _ in range(2)]

    run = outside.get_run(run_id)
    assert remarks == [["parameter given of the command stays as it was given to `mlflow run`"]] * 2
    history = outside.get_metric_history(run_id, "loss")
    assert [(point.step, point.value, point.timestamp) for point in history] == [
        (0, 1.0, 1000),
        (1, 0.5, 1001),
        (2, pytest.approx(1 / 3), 1002),
    ]
    assert len(outside.get_metric_history(run_id, "strange")) == 1
    assert run.data.params == {"given": "'quoted'", "own": "1"}
    assert run.data.tags["colour"] == "blue"
    assert "mlflow.source.name" not in run.data.tags
    assert run.info.run_name == "outer"
    assert run.info.status == "RUNNING"  # the job says how it ended, not the command


def test_files_and_models_are_artifacts_of_the_run(
    outside: MlflowClient, store: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", outside.tracking_uri)  # MLflow 3.1 looks for a model's files only there
    run_id, archive = store
    collect(archive, run_id, outside)

    assert [entry.path for entry in outside.list_artifacts(run_id)] == ["my-model", "texts"]
    assert [entry.path for entry in outside.list_artifacts(run_id, "my-model")] == ["my-model/MLmodel"]


def test_a_run_that_the_command_has_opened_beside_its_own_is_there_once(
    outside: MlflowClient, store: tuple[str, Path]
) -> None:
    run_id, archive = store
    for _ in range(2):
        collect(archive, run_id, outside)

    experiment = outside.get_run(run_id).info.experiment_id
    runs = outside.search_runs([experiment], f"attributes.run_id != '{run_id}'")
    assert [(run.info.run_name, run.info.status) for run in runs] == [("fold", "FINISHED")]
    assert runs[0].data.metrics == {"fold_loss": 0.5}
    assert runs[0].data.tags["mlflow.parentRunId"] == run_id


def test_a_job_that_has_recorded_nothing_leaves_the_run_as_it_is(
    outside: MlflowClient, store: tuple[str, Path], tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "output.tar.gz", "w:gz") as packed:
        packed.add(store[1], "paretune-like/mlflow.db")

    assert collect(tmp_path / "output.tar.gz", store[0], outside) == []


RUNS = "CREATE TABLE runs (run_uuid, name, status, start_time, end_time, experiment_id, lifecycle_stage)"
OTHERS = (
    "CREATE TABLE params (key, value, run_uuid)",
    "CREATE TABLE tags (key, value, run_uuid)",
    "CREATE TABLE metrics (key, value, timestamp, step, is_nan, run_uuid)",
    "CREATE TABLE logged_models (name, model_id, source_run_id, creation_timestamp_ms)",
)


def written(folder: Path, *statements: str) -> Path:
    """A store that these statements make."""
    with closing(sqlite3.connect(folder / "mlflow.db")) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()
    return folder


def a_run(**changes: str) -> str:
    """The statement that adds a run, with these values in place of sound ones."""
    sound = {"id": "'r1'", "name": "'n'", "status": "'FINISHED'", "start": "1", "end": "2", "experiment": "0"}
    return f"INSERT INTO runs VALUES ({', '.join((sound | changes).values())}, 'active')"  # noqa: S608


def test_a_store_written_by_hand_is_read_as_one_of_mlflow(tmp_path: Path) -> None:
    (tmp_path / "mlruns" / "0" / "models" / "m-1" / "artifacts").mkdir(parents=True)
    model = "INSERT INTO logged_models VALUES ('my model', 'm-1', 'r1', 1)"
    metric = "INSERT INTO metrics VALUES ('loss', 0.5, 1, 0, 0, 'r1')"

    (run,) = read_store(written(tmp_path, RUNS, *OTHERS, a_run(), metric, model))

    assert (run.run_id, run.start_ms, run.end_ms, run.metrics[0].value) == ("r1", 1, 2, 0.5)
    assert [name for name, _ in run.models] == ["my model"]


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE runs (run_uuid, lifecycle_stage)"],
        [RUNS, a_run(start="'x'")],
        [RUNS, a_run(status="'DONE'")],
        [RUNS, a_run(name="x'ff'")],
        [RUNS, a_run(), "INSERT INTO tags VALUES (x'00ff', 5, 'r1')"],
        [RUNS, a_run(), "INSERT INTO params VALUES (null, x'ff', 'r1')"],
        [RUNS, a_run(), "INSERT INTO metrics VALUES ('a', 'y', 1, 1, 0, 'r1')"],
        [RUNS, a_run(), "INSERT INTO metrics VALUES ('a', 1, 'x', 1, 0, 'r1')"],
        [RUNS, a_run(name="zeroblob(50000000)")],
        [
            "CREATE VIEW runs AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT 'r' || x "
            "run_uuid, 'n' name, 'FINISHED' status, 1 start_time, 2 end_time, 0 experiment_id, 'active' "
            "lifecycle_stage FROM c"
        ],
    ],
    ids=["columns", "start", "status", "name", "tag", "param", "value", "time", "long", "view"],
)
def test_a_store_with_values_that_mlflow_does_not_write_is_damaged(statements: list[str], tmp_path: Path) -> None:
    store = written(tmp_path, *OTHERS, *statements)

    with pytest.raises(sqlite3.Error):
        list(read_store(store))


@pytest.mark.parametrize(
    "name", ["null", "5", "x'00ff'", "'a' || char(0) || 'b'", f"'{'a' * 5000}'", "'../r1'", "'..'", "'a''b'"]
)
def test_a_run_or_a_model_whose_name_is_none_of_mlflow_is_passed_over(name: str, tmp_path: Path) -> None:
    (tmp_path / "mlruns" / "0" / "models").mkdir(parents=True)
    pairs = (f"'m', {name}", f"{name}, 'm-1'")
    models = [f"INSERT INTO logged_models VALUES ({pair}, 'r1', 1)" for pair in pairs]  # noqa: S608
    store = written(tmp_path, RUNS, *OTHERS, a_run(id=name), a_run(), *models)

    (run,) = read_store(store)

    assert (run.run_id, run.models) == ("r1", ())


def test_a_store_that_computes_without_end_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "_MOST_STEPS", 10_000)
    monkeypatch.setattr(collection, "_STEPS_AT_ONCE", 1_000)
    store = written(tmp_path, RUNS, *OTHERS, *[a_run(id=f"'r{number}'") for number in range(300)])

    with pytest.raises(sqlite3.Error, match="interrupted"):
        list(read_store(store))


def test_artifacts_that_lead_out_of_the_store_are_not_copied(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "mlruns" / "0" / "r1").mkdir(parents=True)
    (store / "mlruns" / "0" / "r1" / "artifacts").symlink_to(tmp_path)

    assert list(read_store(written(store, RUNS, *OTHERS, a_run()))) == []
