"""Runs of a local store that are kept for estimates: MLflow is not opened again until the store changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.core.clock import SystemClock
from paretune.specification.job import JobSpec
from paretune.tracking.kept_runs import KeptRuns
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.store import Tracking
from tests.support.recorded_jobs import put_run

ENDED = "tags.`paretune.state` = 'Completed'"


@pytest.fixture
def opened(workplace: Path) -> list[Tracking]:
    """Return a list with an element for each time that a store was opened; the home of the workplace exists."""
    (workplace / ".paretune").mkdir()
    return []


def kept(database: Path, opened: list[Tracking]) -> KeptRuns:
    def open_store() -> Tracking:
        opened.append(Tracking({}, SystemClock()))
        return opened[-1]

    return KeptRuns(database, database.parent / ".paretune", open_store)


def put(client: MlflowClient, database: Path, *, seconds_ago: float = 60.0) -> None:
    put_run(client, {"model": "m"}, {"state": "Completed"}, {"billable_seconds": 500.0})
    changed_at = database.stat().st_mtime - seconds_ago
    os.utime(database, (changed_at, changed_at))


def test_a_store_that_has_not_changed_is_not_opened_again(
    client: MlflowClient, database: Path, opened: list[Tracking]
) -> None:
    put(client, database)
    first, again, other = (kept(database, opened).runs(ENDED, newest=number) for number in (200, 200, 100))

    assert first == again == other == opened[0].runs(ENDED)
    assert [type(run) for run in first] == [RecordedRun]
    assert len(opened) == 2  # at first, and for the search that was new


def test_a_run_that_is_added_is_read(client: MlflowClient, database: Path, opened: list[Tracking]) -> None:
    counts = []
    for _ in range(3):
        put(client, database)
        counts.append(len(kept(database, opened).runs(ENDED)))

    assert counts == [1, 2, 3]


def test_a_store_that_has_just_changed_is_opened_again(
    client: MlflowClient, database: Path, opened: list[Tracking]
) -> None:
    put(client, database, seconds_ago=-60.0)  # a second change may get the same time stamp
    kept(database, opened).runs(ENDED)
    kept(database, opened).runs(ENDED)

    assert len(opened) == 2


@pytest.mark.parametrize("text", ["", "[]", '{"searches": 3}', '{"version": 1, "files": [], "searches": {}}'])
def test_a_file_that_is_not_ours_is_ignored(
    client: MlflowClient, database: Path, opened: list[Tracking], text: str
) -> None:
    put(client, database)
    (database.parent / ".paretune" / "known_runs.json").write_text(text)

    assert len(kept(database, opened).runs(ENDED)) == 1
    assert len(kept(database, opened).runs(ENDED)) == 1
    assert len(opened) == 1


def test_a_second_estimate_from_a_store_with_runs_imports_no_mlflow(client: MlflowClient, database: Path) -> None:
    job = {"instance_type": "ml.g5.xlarge", "max_train_samples": "1600"}
    tags = {"origin": "measured", "state": "Completed"}
    put_run(client, JobSpec.read(job).as_text(), tags, {"billable_seconds": 500.0})
    os.utime(database, (1e9, 1e9))
    (database.parent / ".paretune").mkdir()
    words = ["estimate", *(f"--{name}={text}" for name, text in job.items())]
    program = "import sys; from paretune.cli import main; main(sys.argv[1:]); print('mlflow' in sys.modules)"
    first, again = (
        subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    )

    assert "1 run of this model on this cluster" in first
    assert first.splitlines()[:-1] == again.splitlines()[:-1]
    assert [text.splitlines()[-1] for text in (first, again)] == ["True", "False"]
