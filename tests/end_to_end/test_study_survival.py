"""A study whose drivers are killed at random moments: nothing is lost, nothing is paid twice, no budget is exceeded.

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
from optuna.storages import RDBStorage
from optuna.trial import TrialState

from paretune.cli.main import main
from paretune.ledger.study_ledger import StudyLedger
from paretune.ledger.trial_entry import TrialStatus
from tests.end_to_end.cloud import REPOSITORY
from tests.study_tables import entries_of, write_study

KILLS = int(os.environ.get("PARETUNE_KILLS", "4"))
SEED = int(os.environ.get("PARETUNE_KILL_SEED", "0"))


@pytest.mark.slow
def test_drivers_killed_at_random_moments_lose_and_double_nothing(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = MlflowClient()
    write_study(workplace)
    words = [str(KILLS), str(SEED), "study", "--study", "study.yaml"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    killed = subprocess.run(
        [sys.executable, "-m", "tests.killed_drivers", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600 + 10 * KILLS,
        check=False,
    )
    assert killed.returncode == 0, killed.stderr
    content = json.loads(killed.stdout)
    logs = "\n".join(log.read_text() for log in workplace.glob("driver-*.log"))
    assert set(content["codes"]) <= {0}, logs
    assert "Traceback" not in logs
    assert "taken over" in logs

    capsys.readouterr()
    assert main(["study", "--study", "study.yaml", "--budget_usd", str(content["budget_usd"])]) == 0
    _check_books(client, workplace, capsys.readouterr().out, content["budget_usd"])


def _check_books(client: MlflowClient, folder: Path, printed: str, budget_usd: float) -> None:
    ledger = StudyLedger(f"sqlite:///{folder / '.paretune' / 'studies.db'}", "survival")
    entries = entries_of(ledger)
    runs = client.search_runs(["0"], max_results=10_000)
    result = [run for run in runs if run.data.tags.get("paretune.kind") == "study"]
    trials = {run.info.run_id: run for run in runs if "paretune.trial" in run.data.tags}
    jobs = Counter(
        re.sub(r"^paretune-(\w+)-\d+$", r"\1", path.stem)
        for path in (folder / ".paretune" / "simulated" / "jobs").glob("*.json")
        if not path.stem.endswith(".stop")
    )

    assert entries
    assert len(runs) == len(result) + len(trials)
    assert [run.info.status for run in result] == ["FINISHED"]
    assert all(entry.end is not None for entry in entries)
    assert sorted(entry.run_id for entry in entries) == sorted(trials) == sorted(jobs)
    assert set(jobs.values()) == {1}
    assert {run.info.status for run in trials.values()} <= {"FINISHED", "FAILED", "KILLED"}
    assert {run.data.tags["paretune.state"] for run in trials.values()} <= {"Completed", "Failed", "Stopped"}

    spent = ledger.balance().spent_usd
    assert sum(_usd(run) for run in trials.values()) == pytest.approx(spent)
    assert {entry.run_id: entry.booked_usd for entry in entries} == pytest.approx(
        {run_id: _usd(run) for run_id, run in trials.items()}
    )
    assert result[0].data.metrics["cost_usd"] == pytest.approx(spent)
    assert f"budget: spent {spent:.2f} USD, committed 0.00 USD" in printed
    assert spent <= budget_usd

    completed = Counter(
        entry.identity for entry in entries if entry.end is not None and entry.end.status is TrialStatus.COMPLETED
    )
    assert set(completed.values()) == {1}
    storage = RDBStorage(f"sqlite:///{folder / '.paretune' / 'studies.db'}")
    (study,) = storage.get_all_studies()
    left = storage.get_all_trials(study._study_id, states=(TrialState.RUNNING, TrialState.WAITING))
    assert left == []


def _usd(run: Run) -> float:
    return float(run.data.metrics["cost_usd"])
