"""A design whose drivers are killed at random moments: each row runs once, and is in the table once.

PARETUNE_KILLS says how many are killed (4), PARETUNE_KILL_SEED when.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from paretune.cli.main import main
from paretune.core.result import read_rows
from paretune.ledger.study_ledger import StudyLedger
from tests.design_examples import write_design
from tests.end_to_end.cloud import REPOSITORY
from tests.study_tables import entries_of

KILLS = int(os.environ.get("PARETUNE_KILLS", "4"))
SEED = int(os.environ.get("PARETUNE_KILL_SEED", "0"))


@pytest.mark.slow
def test_a_design_whose_drivers_are_killed_at_random_moments_loses_and_doubles_no_row(workplace: Path) -> None:
    client = MlflowClient()
    job = {"launcher": "simulated", "recorded_runs": str(workplace / "runs.csv"), "num_train_epochs": 2}
    trouble = {"failure_rate": 0.1, "capacity_error_rate": 0.1, "f1_noise": 0.002}
    write_design(workplace, job={**job, "simulation": trouble}, replicates=2)
    killed = subprocess.run(
        [sys.executable, "-m", "tests.killed_drivers", str(KILLS), str(SEED), "design", "--design", "design.yaml"],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=600 + 10 * KILLS,
        check=False,
    )
    assert killed.returncode == 0, killed.stderr
    content = json.loads(killed.stdout)
    logs = "\n".join(log.read_text() for log in workplace.glob("driver-*.log"))
    assert content["killed"] >= KILLS
    assert set(content["codes"]) <= {0}, logs
    assert "Traceback" not in logs
    assert "taken over" in logs

    last = f"survival {len(content['codes'])}"  # that the last one killed was at work on
    assert main(["design", "--design", "design.yaml", "--name", last]) == 0
    for number in range(len(content["codes"]) + 1):
        _check_books(client, workplace, f"survival {number}")


def _check_books(client: MlflowClient, folder: Path, name: str) -> None:
    ledger = StudyLedger(f"sqlite:///{folder / '.paretune' / 'studies.db'}", name)
    entries = entries_of(ledger)
    runs = client.search_runs(["0"], max_results=10_000)
    named = [run for run in runs if run.data.tags.get("paretune.study") == name]
    (result,) = [run for run in named if run.data.tags.get("paretune.kind") == "design"]
    children = {run.info.run_id: run for run in runs if run.data.tags.get("mlflow.parentRunId") == result.info.run_id}
    rows = read_rows(Path(client.download_artifacts(result.info.run_id, "design.csv")).read_text())
    jobs = Counter(
        re.sub(r"^paretune-(\w+)-\d+$", r"\1", path.stem)
        for path in (folder / ".paretune" / "simulated" / "jobs").glob("*.json")
        if not path.stem.endswith(".stop")
    )

    assert result.info.status == "FINISHED"
    assert [row["run"] for row in rows] == list(range(1, 25))
    assert {row["status"] for row in rows} <= {"Completed", "Failed"}
    assert len({row["run_id"] for row in rows}) == 24
    assert sorted(entry.run_id for entry in entries) == sorted(children)
    assert all(entry.end is not None for entry in entries)
    assert all(jobs[run_id] == 1 for run_id in children)
    completed = Counter(int(entry.note.point["run"]) for entry in entries if entry.end and entry.end.metrics)
    assert completed == Counter(int(str(row["run"])) for row in rows if row["status"] == "Completed")
    assert set(completed.values()) == {1}
    assert sum(_usd(run) for run in children.values()) == pytest.approx(ledger.balance().spent_usd)
    assert result.data.metrics["cost_usd"] == pytest.approx(ledger.balance().spent_usd)


def _usd(run: Run) -> float:
    return float(run.data.metrics["cost_usd"])
