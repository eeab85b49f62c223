"""Two drivers, two processes, one study: no trial is run twice, and together they keep to one budget."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import optuna
import pytest
from mlflow import MlflowClient
from optuna.storages import RDBStorage

from paretune.ledger.study_ledger import StudyLedger
from paretune.ledger.trial_entry import TrialEntry, TrialStatus
from paretune.pricing.budget import Balance
from tests.processes import command, paretune
from tests.stand_ins import postgresql
from tests.study_tables import entries_of, write_study

BUDGET_USD = 9.0
WITHIN_S = 240.0


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, workplace: Path) -> Iterator[str]:
    """Where the study is kept."""
    if request.param == "sqlite":
        yield f"sqlite:///{workplace / 'shared.db'}"
        return
    missing = postgresql.what_is_missing()
    if missing:
        pytest.skip(missing)
    with postgresql.server() as address:
        yield address


def _drive(storage: str, folder: Path, drivers: int) -> list[str]:
    """Run the study with so many drivers at once; what each has printed."""
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                command(
                    paretune("study", "--study", "study.yaml", "--storage", storage),
                    home=folder / ".paretune",
                    cwd=folder,
                    environment=os.environ,
                    log=folder / f"driver-{number}.log",
                )
            )
            for number in range(drivers)
        ]
        codes = [driver.wait(WITHIN_S) for driver in started]
        texts = [driver.text for driver in started]
    assert codes == [0] * drivers, "\n\n".join(texts)
    return texts


def _books(storage: str, study: str) -> tuple[list[TrialEntry], Balance]:
    ledger = StudyLedger(storage, study)
    entries, balance = entries_of(ledger), ledger.balance()
    ledger.close()
    return entries, balance


@pytest.mark.slow
def test_two_drivers_share_a_budget_and_run_no_job_twice(storage: str, workplace: Path) -> None:
    write_study(workplace, name="shared", budget_usd=BUDGET_USD, n_parallel=2)
    texts = _drive(storage, workplace, 2)

    entries, balance = _books(storage, "shared")
    assert len({entry.owner for entry in entries}) == 2, "\n\n".join(texts)
    assert all(entry.end is not None for entry in entries)
    assert balance.spent_usd <= BUDGET_USD
    assert balance.committed_usd == 0
    completed = Counter(
        entry.identity for entry in entries if entry.end is not None and entry.end.status is TrialStatus.COMPLETED
    )
    assert set(completed.values()) == {1}

    runs = MlflowClient().search_runs(["0"], max_results=1000)
    result = [run for run in runs if run.data.tags.get("paretune.kind") == "study"]
    trials = [run for run in runs if "paretune.trial" in run.data.tags]
    assert [run.info.status for run in result] == ["FINISHED"]
    assert sorted(run.info.run_id for run in trials) == sorted(entry.run_id for entry in entries)
    assert sum(run.data.metrics["cost_usd"] for run in trials) == pytest.approx(balance.spent_usd)
    assert result[0].data.metrics["cost_usd"] == pytest.approx(balance.spent_usd)


@pytest.mark.slow
def test_two_drivers_on_a_grid_try_each_point_once(storage: str, workplace: Path) -> None:
    search = {
        "instance_count": {"choices": [1, 2, 4]},
        "per_device_train_batch_size": {"choices": [8, 16, 32, 64]},
        "learning_rate": {"choices": [1e-5, 1e-4]},
    }
    job = {
        "launcher": "simulated",
        "recorded_runs": str(workplace / "runs.csv"),
        "instance_type": "ml.g5.xlarge",
        "num_train_epochs": 2,
    }
    write_study(workplace, name="grid", sampler="grid", search=search, job=job, n_parallel=2)
    _drive(storage, workplace, 2)

    entries, _ = _books(storage, "grid")
    first = [entry for entry in entries if entry.note.repeats is None]
    assert Counter(tuple(entry.note.point.values()) for entry in first).most_common(1)[0][1] == 1
    fitting = [entry for entry in first if entry.note.point["per_device_train_batch_size"] < 64]
    assert len(fitting) == 18
    assert 1 <= len(first) - len(fitting) <= 4  # 64 rows do not fit, which one job for each driver and place shows
    optuna_s = RDBStorage(storage)
    states = [trial.state for trial in optuna.load_study(study_name="grid", storage=optuna_s).get_trials()]
    optuna_s.remove_session()
    optuna_s.engine.dispose()
    assert all(state.is_finished() for state in states)
