"""The lock of a study: one driver at a time works on it, and that of a dead driver is free at once."""

import fcntl
import hashlib
import os
from pathlib import Path

import sqlalchemy as sa

from paretune.core.errors import LostContact

_HOLDER = "select a.application_name from pg_locks l join pg_stat_activity a using (pid) where l.locktype = 'advisory'"


class StudyLock:
    """The lock of one study of a database.

    In SQLite it is a lock of the operating system on a file beside the database, in PostgreSQL an advisory lock of a
    connection of its own. Both end with the process that holds them. A database in memory needs none.
    """

    def __init__(self, engine: sa.Engine, study: str) -> None:
        self._engine = engine
        self._digest = hashlib.sha256(study.encode()).digest()
        self._file: int | None = None
        self._connection: sa.Connection | None = None

    def take(self, holder: str) -> str:
        """Take the lock as `holder`; returns the holder of it if another process has it, else an empty text."""
        return self._take_row(holder) if self._engine.dialect.name == "postgresql" else self._take_file(holder)

    def release(self) -> None:
        """Let the next driver take it."""
        if self._file is not None:
            os.close(self._file)
        if self._connection is not None:
            self._connection.invalidate()  # closes the session, with its lock
            self._connection.close()
        self._file = self._connection = None

    def check(self) -> None:
        """Raise LostContact if the connection that holds the lock has broken: another driver may have it."""
        if self._connection is not None:
            try:
                self._connection.exec_driver_sql("select 1")
            except sa.exc.SQLAlchemyError as error:
                text = (
                    "the connection that locks the study is broken, so another driver may work on it: jobs go on, and"
                )
                raise LostContact(f"{text} the same command continues the study") from error

    def _take_file(self, holder: str) -> str:
        if not self._engine.url.database:
            return ""
        path = Path(f"{self._engine.url.database}-{self._digest.hex()[:12]}.lock")
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return path.read_text(encoding="utf-8") or "another process"
        os.ftruncate(file, 0)
        os.write(file, holder.encode())
        self._file = file
        return ""

    def _take_row(self, holder: str) -> str:
        key = int.from_bytes(self._digest[:8], "big", signed=True)
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(sa.text("select set_config('application_name', :holder, false)"), {"holder": holder[:63]})
        if connection.execute(sa.text("select pg_try_advisory_lock(:key)"), {"key": key}).scalar_one():
            self._connection = connection
            return ""
        halves = {"high": key >> 32 & 0xFFFFFFFF, "low": key & 0xFFFFFFFF}
        query = sa.text(f"{_HOLDER} and l.granted and l.classid = :high and l.objid = :low")  # no input
        name = connection.execute(query, halves).scalar()
        connection.invalidate()
        connection.close()
        return name or "another process"
