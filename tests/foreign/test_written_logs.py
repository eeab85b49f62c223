"""Trainings that write a log with a JSON document on each line: to the end, on emulated SageMaker, and after Ctrl-C.

The log itself, and the settings that the training has written beside it, are compared with the record. `.ci/full
foreign` installs the libraries.
"""

import importlib.util
import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.support.cloud import Cloud, spelled
from tests.support.processes import command, paretune, wait_until
from tests.support.stand_ins.sagemaker.emulator import Emulator
from tests.support.tags import tags_of

HERE = Path(__file__).parent


class Training(NamedTuple):
    """A training: the module that it needs, how it is named, its arguments, its log, and the name of a step in it."""

    module: str
    named: dict[str, str]
    given: dict[str, float]
    longest: dict[str, float]  # arguments of a training that takes minutes
    log: str
    counter: str
    metrics: tuple[str, ...]
    second_names: tuple[str, ...] = ()  # that paretune gives some metrics


TRAININGS = {
    "detection_loop": Training(
        "numpy",
        {"project": "detection_loop"},
        {"training_arguments.base_lr": 0.05, "training_arguments.max_iter": 60},
        {"training_arguments.max_iter": 60_000},
        "metrics.json",
        "iteration",
        ("total_loss", "bbox/AP"),
    ),
    "factory_sft": Training(
        "omegaconf",
        {"entry_script": "factory_sft/train.py"},
        {"learning_rate": 0.25, "num_train_epochs": 3},
        {"num_train_epochs": 3000},
        "trainer_log.jsonl",
        "current_steps",
        ("loss", "eval_loss", "lr"),
    ),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a user."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setenv("PARETUNE_HOME", str(tmp_path / "home" / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    return tmp_path / "home"


@pytest.fixture(params=TRAININGS)
def training(request: pytest.FixtureRequest, home: Path) -> Training:
    """Return a training whose files are in the user's folder."""
    name = request.param
    if importlib.util.find_spec(TRAININGS[name].module) is None:
        pytest.skip(f"needs {TRAININGS[name].module}: `.ci/full foreign` runs it")
    shutil.copytree(HERE / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    return TRAININGS[name]


def recorded(training: Training, given: Mapping[str, float], status: str) -> tuple[MlflowClient, Run]:
    """Return the only job of the user, after checking its end, its parameters and its artifacts."""
    client = MlflowClient(mlflow.get_tracking_uri())
    (run,) = (run for run in client.search_runs(["0"]) if "paretune.launcher" in tags_of(run))
    assert run.info.status == status
    assert {name: float(run.data.params[name]) for name in given} == given
    assert {"log.txt", "command.txt", "versions.txt", "code"} <= {
        item.path for item in client.list_artifacts(run.info.run_id)
    }
    return client, run


def check_curves(training: Training, log: Path, client: MlflowClient, run: Run) -> None:
    """Check that the record has the metrics of the log, each with its curve, and no counter or time of it."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    for name in training.metrics:
        curve = {record[training.counter]: record[name] for record in records if name in record}
        points = {point.step: point.value for point in client.get_metric_history(run.info.run_id, name)}
        assert points == pytest.approx(curve), name
        assert run.data.metrics[name] == pytest.approx(list(curve.values())[-1]), name
    of_the_job = {name for name in run.data.metrics if name.endswith(("_seconds", "_usd"))}
    assert run.data.metrics.keys() - of_the_job == {*training.metrics, *training.second_names}


def only(folder: Path, name: str) -> Path:
    """Return the only file of this name in a folder."""
    (path,) = folder.rglob(name)
    return path


@pytest.mark.foreign
def test_a_log_of_json_lines_is_recorded_as_it_was_written(training: Training, home: Path) -> None:
    words = paretune("train", *spelled(training.named | training.given))
    with command(words, cwd=home, environment=dict(os.environ)) as running:
        assert running.wait(400) == 0, running.text

    client, run = recorded(training, training.given, "FINISHED")
    check_curves(training, only(home, training.log), client, run)
    used = sorted(json.loads(only(home, "used.json").read_text()).values())
    assert used == sorted(training.given.values())


@pytest.mark.foreign
def test_after_ctrl_c_the_lines_of_a_log_that_were_written_are_recorded(training: Training, home: Path) -> None:
    given = training.given | training.longest
    words = paretune("train", *spelled(training.named | given))

    def lines() -> bool:
        return any(len(log.read_text().splitlines()) > 5 for log in home.rglob(training.log))

    with command(words, cwd=home, environment=dict(os.environ)) as running:
        wait_until(
            lambda: lines() or running.process.poll() is not None, within_s=400, what="it has trained for some steps"
        )
        running.process.send_signal(signal.SIGINT)
        assert running.wait(400) == 130, running.text

    client, run = recorded(training, given, "KILLED")
    check_curves(training, only(home, training.log), client, run)


@pytest.mark.foreign
def test_on_sagemaker_a_log_of_json_lines_is_recorded_as_it_was_written(
    training: Training, home: Path, tmp_path: Path
) -> None:
    place = {"instance_type": "ml.m5.large", "launcher": "sagemaker", "max_runtime_minutes": 10}
    with Emulator(tmp_path / "account") as emulator:
        done = Cloud(emulator, home).run(**training.named, **training.given, **place)
        assert done.code == 0, done.text
        (name,) = emulator.jobs()
        log = only(emulator.job_folder(name), training.log)
        client, run = recorded(training, training.given, "FINISHED")
        check_curves(training, log, client, run)
