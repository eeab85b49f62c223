"""What a command has recorded in its job is copied into its run."""

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus

from paretune.user_code.collection import artifacts_of, collect, read_runs
from paretune.user_code.script_metrics import Point, write_curves
from tests.support.stores import copy_store
from tests.support.tags import tags_of

PLANTED = {"hub_token": "hf_abcdefghijklmnopqrstuvwxyz", "wandb_api_key": "0123456789abcdef", "db.password": "hunter2"}


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> MlflowClient:
    """Return the user's own tracking store."""
    client = MlflowClient(copy_store(empty_store, folder := tmp_path_factory.mktemp("outside")))
    client.create_experiment("mine", artifact_location=str(folder / "files"))
    return client


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, empty_store: Path, outside: MlflowClient) -> tuple[str, Path]:
    """Return the id of a run outside, and the folder in which its command has recorded in the job."""
    folder = tmp_path_factory.mktemp("job")
    experiment = outside.get_experiment_by_name("mine")
    assert experiment is not None  # made above
    run_id = outside.create_run(experiment.experiment_id, run_name="outer").info.run_id
    outside.log_param(run_id, "given", "'quoted'")
    workspace = folder / "paretune"
    (workspace / "mlruns").mkdir(parents=True)
    write_curves({"Acc@1": [Point(0, 1000, 0.5), Point(1, 2000, 0.75)]}, workspace)  # MLflow refuses @ in a name
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "mlruns").symlink_to(workspace / "mlruns")
        _record(MlflowClient(copy_store(empty_store, workspace)), folder)
    return run_id, workspace


def _record(inner: MlflowClient, folder: Path) -> None:
    """Record what a project would record."""
    run = inner.create_run("0")
    run_id = run.info.run_id
    for step in range(3):
        inner.log_metric(run_id, "loss", 1.0 / (step + 1), timestamp=1000 + step, step=step)
    inner.log_metric(run_id, "strange", float("nan"), timestamp=1000)
    inner.log_param(run_id, "given", "quoted")
    inner.log_param(run_id, "own", "1")
    inner.log_metric(run_id, "cost_usd", 0.0)  # only a bill can know this
    for name, text in (PLANTED | {"eos_token_id": "50256", "use_token": "True"}).items():
        inner.log_param(run_id, name, text)
    inner.set_tag(run_id, "auth", "Bearer abcdef0123456789abcdef")
    inner.set_tag(run_id, "db_password", "hunter2")
    inner.set_tag(run_id, "mlflow.note.content", "see http://ann:hunter2@host/x")
    inner.set_tag(run_id, "color", "blue")
    inner.set_tag(run_id, "mlflow.source.name", "wrong")
    inner.set_tag(run_id, "paretune.given", '{"instance_type": "ml.p4d.24xlarge"}')  # from a nested job, or a trap
    texts = folder / "mlruns" / run.info.experiment_id / run_id / "artifacts" / "texts"
    texts.mkdir(parents=True)
    (texts / "a.txt").write_text("words")
    tags = {"mlflow.parentRunId": run_id, "paretune.state": "Running"}
    child = inner.create_run(run.info.experiment_id, run_name="fold", tags=tags).info.run_id
    inner.log_metric(child, "fold_loss", 0.5)
    inner.set_terminated(child)
    inner.create_run(run.info.experiment_id, run_name="left open", tags={"mlflow.parentRunId": run_id})
    deleted = inner.create_run(run.info.experiment_id).info.run_id
    inner.delete_run(deleted)
    model = inner.create_logged_model(run.info.experiment_id, name="my-model", source_run_id=run_id)
    (folder / "model").mkdir()
    (folder / "model" / "MLmodel").write_text("flavors: {}")
    inner.log_model_artifacts(model.model_id, str(folder / "model"))
    inner.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def test_everything_is_copied_once_however_often_it_is_asked_for(
    outside: MlflowClient, store: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", outside.tracking_uri)  # MLflow 3.1 looks for a model's files only there
    run_id, records = store
    differs = "parameters that it logged to MLflow differ from the given ones: given=quoted (given: 'quoted')"
    assert [collect(records, run_id, outside, status="FAILED") for _ in range(2)] == [[differs], [differs]]

    run = outside.get_run(run_id)
    history = [(point.step, point.timestamp) for point in outside.get_metric_history(run_id, "loss")]
    assert history == [(0, 1000), (1, 1001), (2, 1002)]
    assert len(outside.get_metric_history(run_id, "strange")) == 1
    curve = [(point.step, point.timestamp, point.value) for point in outside.get_metric_history(run_id, "Acc_1")]
    assert curve == [(0, 1000, 0.5), (1, 2000, 0.75)]
    masked = dict.fromkeys(PLANTED, "...")
    assert run.data.params == {"given": "'quoted'", "own": "1", "eos_token_id": "50256", "use_token": "True"} | masked
    assert tags_of(run)["color"] == "blue"
    assert (tags_of(run)["auth"], tags_of(run)["db_password"]) == ("Bearer ...", "...")
    assert tags_of(run)["mlflow.note.content"] == "see http://host/x"
    assert "cost_usd" not in run.data.metrics
    assert not {"mlflow.source.name", "paretune.given"} & tags_of(run).keys()
    assert (run.info.run_name, run.info.status) == ("outer", "RUNNING")  # the job determines the end, not the command
    assert [entry.path for entry in outside.list_artifacts(run_id)] == ["my-model", "texts"]
    assert [entry.path for entry in outside.list_artifacts(run_id, "my-model")] == ["my-model/MLmodel"]
    children = outside.search_runs([run.info.experiment_id], f"attributes.run_id != '{run_id}'")
    child, left_open = sorted(children, key=lambda each: str(each.info.run_name))
    assert (left_open.info.run_name, left_open.info.status) == ("left open", "FAILED")  # like its job
    assert (child.info.run_name, child.info.status, child.data.metrics) == ("fold", "FINISHED", {"fold_loss": 0.5})
    assert tags_of(child)["mlflow.parentRunId"] == run_id
    assert "paretune.state" not in tags_of(child)  # otherwise `sync` would search for its job


def test_a_store_that_mlflow_cannot_read_is_skipped_with_a_remark(
    outside: MlflowClient, store: tuple[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "mlflow.db").write_text("no database")

    (remark,) = collect(tmp_path, store[0], outside, status="FINISHED")

    assert remark.startswith("the records of the command could not be copied (")


def test_artifacts_that_lead_out_of_the_store_are_not_copied(store: tuple[str, Path], tmp_path: Path) -> None:
    records = shutil.copytree(store[1], tmp_path / "records")
    (texts,) = records.glob("mlruns/*/*/artifacts/texts")
    folder = texts.parent
    shutil.rmtree(folder)
    folder.symlink_to("/etc")

    inner, (run, *_) = read_runs(records)

    assert [name for name, _ in artifacts_of(run, records, inner)] == ["my-model"]


def test_links_among_artifacts_to_other_files_of_this_machine_are_not_followed(
    outside: MlflowClient, store: tuple[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "id_rsa").write_text("secret")
    records = shutil.copytree(store[1], tmp_path / "records")
    (texts,) = records.glob("mlruns/*/*/artifacts/texts")
    links = {"key.txt": tmp_path / "home" / "id_rsa", "home": tmp_path / "home", "gone": tmp_path / "none"}
    for name, target in {**links, "loop": Path("loop"), "same.txt": Path("a.txt")}.items():
        (texts / name).symlink_to(target)
    (texts.parent / "top.txt").write_text("words")
    run_id = outside.create_run(outside.create_experiment("links", str(tmp_path / "files"))).info.run_id

    collect(records, run_id, outside, status="FINISHED")

    assert [entry.path for entry in outside.list_artifacts(run_id)] == ["my-model", "texts", "top.txt"]
    assert [entry.path for entry in outside.list_artifacts(run_id, "texts")] == ["texts/a.txt", "texts/same.txt"]


@pytest.mark.parametrize("links", [["."], ["mlflow.db", "curves.jsonl"]])
def test_a_link_to_another_store_of_this_machine_is_not_followed(
    outside: MlflowClient, store: tuple[str, Path], tmp_path: Path, links: list[str]
) -> None:
    records = tmp_path / "records"
    for name in links:
        (records / name).parent.mkdir(exist_ok=True)
        (records / name).symlink_to(store[1] / name)
    run_id = outside.create_run(outside.create_experiment(tmp_path.name, str(tmp_path / "files"))).info.run_id

    assert collect(records, run_id, outside, status="FINISHED") == []

    run = outside.get_run(run_id)
    assert (run.data.params, run.data.metrics, outside.list_artifacts(run_id)) == ({}, {}, [])
