"""The lock of a study: who holds it, who is refused, and that it ends with its process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from paretune.core.errors import LostContact, StudyLocked
from paretune.ledger.study_ledger import StudyLedger
from paretune.storage.database import open_engine
from tests.stand_ins import postgresql

_HOLD = """
import signal, sys
from paretune.ledger.study_ledger import StudyLedger
with StudyLedger(*sys.argv[1:]).locked():
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'studies.db'}"
        return
    if missing := postgresql.what_is_missing():
        pytest.skip(missing)
    with postgresql.server() as address:
        yield address


@contextmanager
def holder(storage: str, study: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that holds the lock."""
    with subprocess.Popen([sys.executable, "-c", _HOLD, storage, study], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_a_second_process_is_told_who_works_on_the_study_and_gets_the_lock_after_a_kill(storage: str) -> None:
    ledger, other = StudyLedger(storage, "one"), StudyLedger(storage, "other")
    with closing(ledger), closing(other), holder(storage, "one") as process:
        for _ in range(2):
            with pytest.raises(StudyLocked, match=f"^process {process.pid} on .* works on one: "), ledger.locked():
                pass
        with other.locked():  # of another study in the same storage
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        with ledger.locked():
            ledger.open("run", "{}")


def test_one_process_does_not_take_the_lock_twice_and_leaves_it_when_it_is_done(storage: str) -> None:
    with closing(StudyLedger(storage, "one")) as first, closing(StudyLedger(storage, "one")) as second:
        with first.locked(), pytest.raises(StudyLocked, match=f"process {os.getpid()} on"), second.locked():
            pass
        with second.locked():
            pass


def test_nothing_is_written_once_the_server_has_ended_the_session_with_the_lock() -> None:
    if missing := postgresql.what_is_missing():
        pytest.skip(missing)
    with postgresql.server() as storage, closing(StudyLedger(storage, "one")) as ledger:
        engine = open_engine(storage)
        with ledger.locked():
            ledger.open("", "{}")
            with engine.begin() as connection:
                mine = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'process %'"
                connection.execute(sa.text(mine)).all()
            for _ in range(2):
                with pytest.raises(LostContact, match="the same command continues the study"):
                    ledger.name_run("late")
        assert ledger.open("", "{}") == ""
        engine.dispose()
