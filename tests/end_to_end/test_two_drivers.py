"""Two drivers, two processes, one study: one works at a time, and after a kill the next one continues."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import optuna
import pytest
from mlflow import MlflowClient
from optuna.storages import RDBStorage

from paretune.ledger.study_ledger import StudyLedger
from paretune.ledger.trial_entry import TrialEntry, TrialStatus
from paretune.pricing.budget import Balance
from tests.processes import Command, command, paretune, wait_until
from tests.stand_ins import postgresql
from tests.study_tables import entries_of, write_study
from tests.unit.ledger.test_study_lock import holder

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


def _started(storage: str, folder: Path, *words: str) -> AbstractContextManager[Command]:
    """The command of the study, in a process of its own."""
    return command(
        paretune("study", "--study", "study.yaml", "--storage", storage, *words),
        home=folder / ".paretune",
        cwd=folder,
        environment=os.environ,
        log=folder / f"driver-{len(list(folder.glob('driver-*')))}.log",
    )


def _books(storage: str) -> tuple[list[TrialEntry], Balance]:
    ledger = StudyLedger(storage, "shared")
    entries, balance = entries_of(ledger), ledger.balance()
    ledger.close()
    return entries, balance


@pytest.mark.slow
def test_a_second_driver_is_refused_and_after_a_kill_the_next_one_continues(storage: str, workplace: Path) -> None:
    write_study(workplace, name="shared", budget_usd=BUDGET_USD, n_parallel=2)
    with holder(storage, "shared") as busy:
        for words, code in (((), 3), (("--once",), 75)):
            with _started(storage, workplace, *words) as second:
                assert second.wait(WITHIN_S) == code, second.text
                assert f"process {busy.pid} on " in second.text
                assert "works on shared: wait until it has ended" in second.text
        assert _books(storage)[0] == []
    with _started(storage, workplace) as first:
        wait_until(lambda: _books(storage)[0], within_s=WITHIN_S, what="a trial is reserved")
        first.process.kill()
        first.process.wait()
    before, _ = _books(storage)
    with _started(storage, workplace) as third:
        assert third.wait(WITHIN_S) == 0, third.text

    entries, balance = _books(storage)
    assert {entry.trial for entry in before} <= {entry.trial for entry in entries}
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
    optuna_s = RDBStorage(storage)
    states = [trial.state for trial in optuna.load_study(study_name="shared", storage=optuna_s).get_trials()]
    optuna_s.remove_session()
    optuna_s.engine.dispose()
    assert all(state.is_finished() for state in states)
