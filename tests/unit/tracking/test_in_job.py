"""The program inside a job that logs by itself: it trains whatever MLflow does, and tells MLflow what it can."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.core.clock import SystemClock
from paretune.specification.container import JobFolder
from paretune.tracking.in_job import main
from tests.processes import wait_until

# Stands for the Python that trains: it does what the file `orders` in the job's folder says.
TRAINING = """#!{python}
import os, signal, sys, time
from pathlib import Path
from paretune.specification.container import Event, JobFolder

assert sys.argv[1:3] == ["-m", "paretune.training"], sys.argv
folder = JobFolder(Path(sys.argv[3]))
orders = (folder.root / "orders").read_text()
(folder.root / "starter").write_text(os.environ["PARETUNE_STARTER"])
folder.make()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
if "events" in orders:
    lines = [Event(time=1.0 + step, step=step, metrics={{"train/loss": 1 / step}}).line() for step in (1, 2, 3)]
    folder.events.write_text("\\n".join(lines) + "\\n")
if "wait" in orders:
    (folder.root / "ready").touch()
    time.sleep(60)
if "killed" in orders:
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(3 if "fail" in orders else 0)
"""


class QuickClock(SystemClock):
    """A clock that sleeps shortly."""

    def sleep(self, seconds: float) -> None:
        time.sleep(0.02)


@pytest.fixture
def client(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """The store, with a run that the launcher has opened."""
    client = MlflowClient()
    monkeypatch.setenv("MLFLOW_RUN_ID", client.create_run("0").info.run_id)
    return client


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobFolder]:
    """The job's folder; the program that trains is TRAINING."""
    program = tmp_path / "training"
    program.write_text(TRAINING.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    before = signal.getsignal(signal.SIGTERM)
    root = tmp_path / "ml"
    root.mkdir()
    yield JobFolder(root)
    signal.signal(signal.SIGTERM, before)


def order(folder: JobFolder, *words: str) -> None:
    (folder.root / "orders").write_text(" ".join(words))


def steps(client: MlflowClient) -> list[int]:
    return [point.step for point in client.get_metric_history(os.environ["MLFLOW_RUN_ID"], "train/loss")]


def test_what_the_training_tells_stands_in_the_run_that_the_launcher_opened(
    client: MlflowClient, folder: JobFolder
) -> None:
    order(folder, "events")

    assert main(folder, QuickClock()) == 0
    assert steps(client) == [1, 2, 3]
    assert client.get_run(os.environ["MLFLOW_RUN_ID"]).info.status == "RUNNING"  # the launcher closes it
    assert (folder.root / "starter").read_text() == str(os.getpid())


@pytest.mark.parametrize(("word", "code"), [("fail", 3), ("killed", 128 + signal.SIGKILL), ("", 0)])
def test_the_exit_code_is_that_of_the_training(client: MlflowClient, folder: JobFolder, word: str, code: int) -> None:
    order(folder, "events", word)

    assert main(folder, QuickClock()) == code


def test_an_instance_without_events_never_asks_mlflow(
    client: MlflowClient, folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_RUN_ID")
    order(folder, "nothing")

    assert main(folder, QuickClock()) == 0


def test_an_mlflow_that_does_not_answer_costs_a_gap_and_not_the_training(
    workplace: Path, folder: JobFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ada:lovelace@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_RUN_ID", "run")
    order(folder, "events")

    assert main(folder, QuickClock()) == 0
    output = capfd.readouterr().err
    assert "the launcher will fill the run at the end" in output
    assert "lovelace" not in output


def test_sigterm_reaches_the_training_and_its_last_words_reach_the_run(client: MlflowClient, folder: JobFolder) -> None:
    order(folder, "events", "wait")

    def stop_when_ready() -> None:
        wait_until((folder.root / "ready").exists, within_s=30, what="the training waits")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_when_ready, daemon=True).start()

    assert main(folder, QuickClock()) == 5
    assert steps(client) == [1, 2, 3]


def test_sigterm_before_the_training_has_begun_is_not_lost(
    client: MlflowClient, folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    start = subprocess.Popen

    def start_late(*words: object, **options: object) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return start(*words, **options)  # type: ignore[call-overload]

    order(folder, "wait")
    monkeypatch.setattr(subprocess, "Popen", start_late)

    assert main(folder, QuickClock()) in {5, 128 + signal.SIGTERM}
