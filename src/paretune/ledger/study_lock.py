"""The lock of a study: one process at a time works on it.

The operating system or the database server releases the lock when its process ends, however it ends. So nothing has to
be cleaned up after a kill: the next process takes the lock and continues.
"""

import fcntl
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from paretune.core.errors import StudyLocked

_LONGEST_NAME = 63  # characters that PostgreSQL keeps of an application_name
_KEEPALIVE = ("tcp_keepalives_idle = 60", "tcp_keepalives_interval = 10", "tcp_keepalives_count = 3")
"""Settings with which PostgreSQL notices within two minutes that the machine of the holder is gone."""
_HOLDER = sa.text(
    "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid) "
    "WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND classid = :high AND objid = :low "
    "AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@contextmanager
def locked_in_file(database: Path, study: str) -> Iterator[None]:
    """Hold the lock of a study whose ledger is a SQLite file; its lock is a file beside that one.

    Raises:
        StudyLocked: another process holds it.
    """
    path = database.with_name(f"{database.name}-{_digest(study).hex()[:16]}.lock")
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise _locked(study, file.read()) from None
        file.truncate(0)
        file.write(_this_process())
        file.flush()
        yield


@contextmanager
def locked_on_server(engine: sa.Engine, study: str) -> Iterator[sa.Connection]:
    """Hold the lock of a study whose ledger is on PostgreSQL, and give the connection that holds it.

    Raises:
        StudyLocked: another process holds it.
    """
    key = _digest(study)[:8]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("SELECT set_config('application_name', :name, false)"), {"name": _this_process()})
        for setting in _KEEPALIVE:
            connection.execute(sa.text(f"SET {setting}"))
        lock = sa.text("SELECT pg_try_advisory_lock(:key)")
        if not connection.execute(lock, {"key": int.from_bytes(key, signed=True)}).scalar_one():
            halves = {"high": int.from_bytes(key[:4]), "low": int.from_bytes(key[4:])}
            raise _locked(study, str(connection.execute(_HOLDER, halves).scalar() or ""))
        try:
            yield connection
        finally:
            connection.invalidate()  # the server releases the lock with its session


def _locked(study: str, holder: str) -> StudyLocked:
    who = holder or "another process"
    return StudyLocked(f"{who} works on {study}: wait until it has ended, or stop it; the same command then continues")


def _digest(study: str) -> bytes:
    return hashlib.sha256(study.encode()).digest()


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"[:_LONGEST_NAME]
