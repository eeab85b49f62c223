"""One driver at a time works on a study, on SQLite and on PostgreSQL."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paretune.core.errors import BadInput, CallAgain, LostContact
from paretune.ledger.lock import locked
from paretune.storage.database import open_engine
from tests.support.processes import wait_until
from tests.support.stand_ins import postgresql

HOLD = """
import sys, time
from paretune.ledger.lock import locked
with locked(sys.argv[1], "one", "elsewhere 1 0"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield an empty storage."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'studies.db'}"
        return
    if missing := postgresql.what_is_missing():
        pytest.skip(missing)
    with postgresql.server() as address:
        yield address


def is_free(storage: str, study: str = "one") -> bool:
    """Return whether nobody is working on the study."""
    try:
        with locked(storage, study, "me 2 0"):
            return True
    except CallAgain:
        return False


def test_a_second_driver_hears_who_works_on_the_study_and_goes_on_once_that_one_is_killed(storage: str) -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLD, storage], stdout=subprocess.PIPE, text=True)
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == "held\n"
        refusal = "elsewhere 1 0 is working on the study one: this command has done nothing"
        with pytest.raises(CallAgain, match=refusal), locked(storage, "one", "me 2 0"):
            pass
        assert is_free(storage, "two")
    finally:
        first.kill()
        first.communicate()
    wait_until(lambda: is_free(storage), within_s=30, what="the lock is free")


def test_a_connection_is_kept_alive_every_minute_and_a_driver_that_loses_it_learns_that_its_lock_is_gone() -> None:
    if missing := postgresql.what_is_missing():
        pytest.skip(missing)
    with postgresql.server() as storage, locked(storage, "one", "me 2 0") as lock:
        lock.check()
        with open_engine(storage).begin() as connection:
            assert connection.connection.dbapi_connection is not None
            with socket.socket(fileno=os.dup(connection.connection.dbapi_connection.fileno())) as same:
                assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            connection.exec_driver_sql(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'me 2 0'"
            )
        with pytest.raises(LostContact, match="another driver may work on it"):
            lock.check()


@pytest.mark.parametrize(
    "storage",
    [
        "postgresql://me@127.0.0.1:PORT/none",
        "postgresql://me:p@secret:w0rd@127.0.0.1/x",
        "postgresql://me:p@secret@127.0.0.1:1/x",
    ],
)
def test_a_storage_whose_port_is_no_number_or_whose_password_has_an_at_is_refused_without_its_password(
    storage: str,
) -> None:
    refusal = r"cannot be used \(its port must be a number; in a password, write %40 for @ and %3A for :\)"
    with pytest.raises(BadInput, match=refusal) as caught, locked(storage, "one", "me"):
        pass
    assert not {word for word in ("secret", "w0rd") if word in str(caught.value)}


@pytest.mark.parametrize("storage", ["sqlite:////nowhere/at/all.db", "postgresql://me:secret@127.0.0.1:1/none"])
def test_a_storage_that_does_not_answer_is_named_without_its_password(storage: str) -> None:
    with pytest.raises(BadInput, match=r"cannot be used \(.+\): check address") as caught, locked(storage, "one", "me"):
        pass
    assert "secret" not in str(caught.value)
