"""The lock of a study: one driver at a time works on it, and that of a dead driver is free at once."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.errors import BadInput, CallAgain, LostContact, first_line
from paretune.storage.database import open_engine, redacted

_HOLDER = "select a.application_name from pg_locks l join pg_stat_activity a using (pid) where l.locktype = 'advisory'"


class StudyLock:
    """The lock of a study, held. PostgreSQL keeps it for a connection of its own, which may break."""

    def __init__(self, connection: sa.Connection | None = None) -> None:
        self._connection = connection

    def check(self) -> None:
        """Raise LostContact if the connection that holds the lock has broken: another driver may have it."""
        if self._connection is not None:
            try:
                self._connection.exec_driver_sql("select 1")
            except SQLAlchemyError as error:
                text = "the connection that locks the study is broken, so another driver may work on it"
                raise LostContact(f"{text}: jobs go on, and the same command continues the study") from error


@contextmanager
def locked(storage: str, study: str, holder: str) -> Iterator[StudyLock]:
    """Work alone on a study of a storage, a SQLAlchemy address, inside the block; `holder` says who does.

    In SQLite it is a lock of the operating system on a file beside the database, in PostgreSQL an advisory lock. Both
    end with the process that holds them. A database in memory needs none.

    Raises:
        BadInput: the storage does not answer.
        CallAgain: another process works on the study.
    """
    digest = hashlib.sha256(study.encode()).digest()
    held: int | sa.Connection | None
    try:
        engine = open_engine(storage)
        on_server = engine.dialect.name == "postgresql"
        held, other = _take_row(engine, digest, holder) if on_server else _take_file(engine, digest, holder)
    except (SQLAlchemyError, ImportError, OSError) as error:
        raise unusable(storage, error) from None
    try:
        if other:
            raise CallAgain(f"{other} works on the study {study}: this command has done nothing; call again")
        yield StudyLock(held if isinstance(held, sa.Connection) else None)
    finally:
        if isinstance(held, sa.Connection):
            held.invalidate()  # closes the session, with its lock
            held.close()
        elif held is not None:
            os.close(held)
        engine.dispose()


def unusable(storage: str, error: BaseException, holder: str = "") -> BadInput:
    """The refusal of a storage that cannot be opened; `holder` says what it belongs to, such as ` of team.yaml`."""
    text = f"storage {redacted(storage)}{holder} cannot be used ({first_line(error)}): check address, server and driver"
    return BadInput([text])


def _take_file(engine: sa.Engine, digest: bytes, holder: str) -> tuple[int | None, str]:
    """The open file that holds the lock, or who holds it."""
    if not engine.url.database:
        return None, ""
    path = Path(f"{engine.url.database}-{digest.hex()[:12]}.lock")
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None, path.read_text(encoding="utf-8") or "another process"
    os.ftruncate(file, 0)
    os.write(file, holder.encode())
    return file, ""


def _take_row(engine: sa.Engine, digest: bytes, holder: str) -> tuple[sa.Connection, str]:
    """A connection, and who holds the lock if it does not."""
    key = int.from_bytes(digest[:8], "big", signed=True)
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    connection.execute(sa.text("select set_config('application_name', :holder, false)"), {"holder": holder[:63]})
    if connection.execute(sa.text("select pg_try_advisory_lock(:key)"), {"key": key}).scalar_one():
        return connection, ""
    halves = {"high": key >> 32 & 0xFFFFFFFF, "low": key & 0xFFFFFFFF}
    query = sa.text(f"{_HOLDER} and l.granted and l.classid = :high and l.objid = :low")  # no input
    return connection, str(connection.execute(query, halves).scalar() or "another process")
