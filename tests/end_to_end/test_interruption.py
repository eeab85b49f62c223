"""However paretune is ended: no process is left, the run says what happened, and the same command continues."""

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.specification.container import Event, EventReader, JobFolder
from tests.support.cloud import job_of_seconds, spelled
from tests.support.processes import Command, command, paretune, use_one_core, wait_until, working_in
from tests.support.tags import tags_of

REPOSITORY = Path(__file__).parents[2]
STARTS_WITHIN_S = 90.0
ENDS_WITHIN_S = 90.0


@pytest.fixture
def home(workplace: Path) -> Path:
    return workplace / ".paretune"


@pytest.fixture
def job(tiny_model: Path, reviews: Path) -> dict[str, object]:
    """Return the parameters of a training job of 14,000 steps, long enough to be interrupted during an epoch."""
    arguments = {"eval_strategy": "no", "logging_steps": 5}
    job = job_of_seconds(tiny_model, reviews) | {"num_train_epochs": 1000, "training_arguments": arguments}
    return {name: value for name, value in job.items() if name != "instance_type"}


def _run(words: list[str], home: Path, cwd: Path | None = None, processes: int = 1) -> AbstractContextManager[Command]:
    environment = dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    options = {"home": home, "cwd": cwd or home.parent, "log": home.parent / "printed", "environment": environment}
    return command(words, **options, preexec_fn=use_one_core if processes == 1 else None)


def _folders(home: Path) -> list[JobFolder]:
    return [JobFolder(path) for path in sorted(home.glob("jobs/*"), key=lambda path: path.stat().st_ctime)]


def _events(home: Path) -> list[Event]:
    """Return the events of the newest job."""
    folders = _folders(home)
    return list(EventReader(folders[-1].events).new()) if folders else []


def _until_it_trains(running: Command, home: Path) -> None:
    def trains() -> bool:
        return running.process.poll() is not None or any(event.step for event in _events(home))

    wait_until(trains, within_s=STARTS_WITHIN_S, what="the job is training")
    assert running.process.poll() is None, running.text


def _recorded(name: str = "Default") -> list[Run]:
    """Return the runs of an experiment, newest first."""
    client = MlflowClient()
    experiment = client.get_experiment_by_name(name)
    return [] if experiment is None else list(client.search_runs([experiment.experiment_id]))


def _checkpoints(home: Path) -> list[Path]:
    """Return the complete checkpoints; those that are not needed any more are emptied."""
    return [path.parent for path in home.glob("checkpoints/*/checkpoint-*/complete.json") if path.stat().st_size]


def _check_it_was_stopped(run: Run, reason: str, instances: int = 1) -> None:
    assert run.info.status == "KILLED"
    assert tags_of(run)["paretune.state"] == "Stopped"
    assert reason in tags_of(run)["paretune.failure_reason"]
    seconds = run.data.metrics["job_seconds"]
    assert seconds > 0
    assert run.data.metrics["cost_usd"] == pytest.approx(seconds * instances * 0.115 / 3600)
    assert "f1" not in run.data.metrics
    assert "train/loss" in run.data.metrics


@pytest.mark.slow
def test_an_interrupted_job_stops_with_a_checkpoint_and_is_recorded(home: Path, job: dict[str, object]) -> None:
    with _run(paretune("train", *spelled(job)), home) as running:
        _until_it_trains(running, home)

        running.process.send_signal(signal.SIGINT)

        assert running.wait(ENDS_WITHIN_S) == 130, running.text
        assert working_in(home) == []
    (run,) = _recorded()
    _check_it_was_stopped(run, "SIGINT")
    (checkpoint,) = _checkpoints(home)
    assert _events(home)[-1].message == f"stopped after step {checkpoint.name.split('-')[1]}, checkpoint written"
    ended = f"interrupted by SIGINT; {_folders(home)[-1].root.name} has stopped, its checkpoint is in"
    assert f"{ended} {checkpoint.parent.resolve()}" in running.text
    assert "Traceback" not in running.text


@pytest.mark.slow
@pytest.mark.parametrize("during", ["preparation", "training"])
def test_a_job_of_mlflow_run_stops_when_mlflow_itself_is_killed(
    home: Path, job: dict[str, object], during: str
) -> None:
    MlflowClient().create_experiment("jobs", artifact_location=(home.parent / "artifacts").as_uri())
    words = [sys.executable, "-m", "mlflow", "run", ".", "--env-manager", "local", "--experiment-name", "jobs"]
    typed = spelled(job)
    words += [word for name, text in zip(typed[::2], typed[1::2], strict=True) for word in ("-P", f"{name[2:]}={text}")]
    with _run(words, home, cwd=REPOSITORY) as running:
        if during == "training":
            _until_it_trains(running, home)
        else:
            wait_until(lambda: working_in(home), within_s=STARTS_WITHIN_S, what="the preparation runs")
        actual = psutil.Process(running.process.pid).children(recursive=True)
        assert any("entrypoints/run.py" in word for process in actual for word in process.cmdline())

        running.process.terminate()

        running.wait(ENDS_WITHIN_S)
        wait_until(
            lambda: not any(_lives(process) for process in actual), within_s=ENDS_WITHIN_S, what="all have ended"
        )
        assert working_in(home) == []
    (run,) = _recorded("jobs")
    if during == "training":
        _check_it_was_stopped(run, "the process that started this command has ended")
        assert len(_checkpoints(home)) == 1
    else:
        assert run.info.status == "KILLED"
        assert "the process that started this command has ended" in tags_of(run)["paretune.failure_reason"]


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_nothing_trains_on_when_paretune_is_killed(home: Path, job: dict[str, object]) -> None:
    job |= {"instance_count": 2}
    with _run(paretune("train", *spelled(job)), home, processes=2) as running:
        _until_it_trains(running, home)
        trained = working_in(home)
        assert len(trained) == 3

        running.process.kill()

        running.wait(ENDS_WITHIN_S)
        wait_until(lambda: not working_in(home), within_s=ENDS_WITHIN_S, what="no training process is left")
        assert not any(_lives(process) for process in trained)
    assert len(_checkpoints(home)) == 1


@pytest.mark.slow
def test_status_logs_and_stop_in_another_terminal(home: Path, job: dict[str, object]) -> None:
    with _run(paretune("train", *spelled(job)), home) as running:
        _until_it_trains(running, home)
        (run,) = _recorded()
        status = _answer("status", home)
        assert run.info.run_id[:8] in status
        assert "USD so far" in status
        assert "loss" in _answer(f"logs {run.info.run_id[:8]}", home)

        stopped = _answer(f"stop {run.info.run_id[:8]}", home)

        assert running.wait(ENDS_WITHIN_S) == 3, running.text  # its job was stopped from outside
    assert "Stopped: it was stopped by `paretune stop`" in stopped
    (run,) = _recorded()
    assert (run.info.status, tags_of(run)["paretune.state"]) == ("KILLED", "Stopped")
    assert run.data.metrics["cost_usd"] > 0
    assert "no jobs are running" in _answer("status", home)
    assert not working_in(home)


def _answer(words: str, home: Path) -> str:
    """Return what a successful command prints; the command leaves processes of others alone."""
    done = subprocess.run(paretune(*words.split()), cwd=home.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
