"""One driver at a time works on a study, on SQLite and on PostgreSQL."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paretune.core.errors import CallAgain, LostContact
from paretune.ledger.study_ledger import StudyLedger
from paretune.ledger.trial_entry import TrialNote
from tests.processes import wait_until
from tests.stand_ins import postgresql

HOLD = """
import sys, time
from paretune.ledger.study_ledger import StudyLedger
with StudyLedger(sys.argv[1], "one").locked("elsewhere 1 0"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty storage."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'studies.db'}"
        return
    if missing := postgresql.what_is_missing():
        pytest.skip(missing)
    with postgresql.server() as address:
        yield address


def is_free(ledger: StudyLedger) -> bool:
    """Whether nobody works on the study."""
    try:
        with ledger.locked("me 2 0"):
            return True
    except CallAgain:
        return False


def test_a_second_driver_hears_who_works_on_the_study_and_goes_on_once_that_one_is_killed(storage: str) -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLD, storage], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == "held\n"
        ledger, other = StudyLedger(storage, "one"), StudyLedger(storage, "two")
        refusal = "elsewhere 1 0 works on the study one: this command has done nothing"
        with pytest.raises(CallAgain, match=refusal), ledger.locked("me 2 0"):
            pass
        assert is_free(other)
    finally:
        first.kill()
        first.communicate()
    wait_until(lambda: is_free(ledger), within_s=30, what="the lock is free")
    ledger.close()
    other.close()


def test_a_driver_whose_lock_has_gone_with_its_connection_writes_nothing() -> None:
    if missing := postgresql.what_is_missing():
        pytest.skip(missing)
    with postgresql.server() as storage:
        ledger, killer = StudyLedger(storage, "one"), StudyLedger(storage, "two")
        with ledger.locked("me 2 0"):
            with killer._engine.begin() as connection:
                connection.exec_driver_sql(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'me 2 0'"
                )
            with pytest.raises(LostContact, match="another driver may work on it"):
                ledger.reserve(0, {}, TrialNote(), worst_usd=1.0, budget_usd=None)
        ledger.close()
        killer.close()
