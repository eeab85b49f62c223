"""A tracking server that is unavailable: before the launch, nothing is launched; after it, nothing is lost."""

import socket
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.specification.container import Event, EventReader, JobFolder
from tests.support.processes import command, free_port, paretune, tracking_server, use_one_core, wait_until, working_in
from tests.support.tags import tags_of

WITHIN_S = 120.0


def _job(tiny_model: Path, reviews: Path, epochs: int = 1) -> list[str]:
    return [
        *("--model", str(tiny_model), "--dataset", str(reviews), "--max_seq_length", "32"),
        *("--num_train_epochs", str(epochs), "--per_device_train_batch_size", "8"),
        *("--training_arguments", '{"save_strategy": "no", "logging_steps": 20}'),
    ]


@pytest.mark.parametrize("listens", [False, True])
def test_nothing_is_launched_when_the_server_is_down_or_does_not_answer(
    listens: bool,
    workplace: Path,
    tiny_model: Path,
    reviews: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        if not listens:
            mute.close()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://someone:secret@{address}")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

        assert main(["train", *_job(tiny_model, reviews)]) == 2

    message = capsys.readouterr().err
    assert f"http://{address} {'cannot be used' if listens else 'does not answer'}" in message
    assert "secret" not in message
    assert not (workplace / ".paretune" / "jobs").exists()
    assert working_in(workplace / ".paretune") == []


@pytest.mark.slow
def test_a_server_that_is_away_while_the_job_trains_leaves_no_gap(
    workplace: Path, tiny_model: Path, reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, port = workplace / ".paretune", free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")

    def steps() -> int:
        return max((event.step for path in home.glob("jobs/*") for event in _events(path)), default=0)

    words = paretune("train", *_job(tiny_model, reviews, epochs=100))
    with ExitStack() as whole_test:
        with tracking_server(workplace, port):
            running = whole_test.enter_context(command(words, cwd=workplace, preexec_fn=use_one_core))
            wait_until(lambda: running.process.poll() is not None or steps(), within_s=WITHIN_S, what="it trains")
            assert running.process.poll() is None, running.text
            wait_until(lambda: _curve("train/loss"), within_s=WITHIN_S, what="MLflow has the first points")
        away_since = steps()
        wait_until(lambda: steps() >= away_since + 100, within_s=WITHIN_S, what="it keeps training without the server")
        wait_until(
            lambda: "MLflow does not answer; the job continues" in running.text, within_s=WITHIN_S, what="it says so"
        )
        assert running.process.poll() is None, running.text
        with tracking_server(workplace, port):
            assert running.wait(2 * WITHIN_S) == 0, running.text
            _check_record(home)
        assert "has gaps" not in running.text


def _events(job: Path) -> list[Event]:
    return list(EventReader(JobFolder(job).events).new())


def _curve(name: str) -> list[int]:
    """Return the steps of a curve of the only run."""
    (run,) = MlflowClient().search_runs(["0"]) or [None]
    return [] if run is None else [point.step for point in MlflowClient().get_metric_history(run.info.run_id, name)]


def _check_record(home: Path) -> None:
    (run,) = MlflowClient().search_runs(["0"])
    (job,) = home.glob("jobs/*")
    expected: dict[str, list[int]] = {}
    for event in _events(job):
        for name in event.metrics:
            expected.setdefault(name, []).append(event.step)
    assert len(expected["train/loss"]) > 50
    for name, steps in expected.items():
        assert sorted(_curve(name)) == sorted(set(steps)), name
    headlines = {name for name in run.data.metrics if "/" not in name}
    assert {"f1", "cost_usd", "job_seconds", "train_seconds", "baseline_f1_tfidf"} <= headlines
    once = headlines - {"cost_usd"}  # dollars so far are a curve
    assert Counter(len(_curve(name)) for name in once) == {1: len(once)}
    assert run.info.status == "FINISHED"
    assert tags_of(run)["paretune.state"] == "Completed"
    assert {item.path for item in MlflowClient().list_artifacts(run.info.run_id)} >= {"report.json"}
