"""The lock of a study, which only one driver (a process that runs the study) can hold. It ends with the driver."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.errors import BadInput, CallAgain, LostContact, first_line
from paretune.core.file_lock import locked_file
from paretune.storage.database import open_engine, redacted

_HOLDER = """select application_name from pg_locks join pg_stat_activity using (pid)
where locktype = 'advisory' and granted and (classid::bigint << 32 | objid::bigint) = :key"""


class StudyLock:
    """A study's lock, which this process holds. In PostgreSQL, a separate connection holds the lock, and may break."""

    def __init__(self, connection: sa.Connection | None = None) -> None:
        self._connection = connection

    def check(self) -> None:
        """Raise LostContact if the connection that holds the lock is broken: another driver may then get the lock."""
        if self._connection is not None:
            try:
                self._connection.exec_driver_sql("select 1")
            except SQLAlchemyError as error:
                text = "the connection that locks the study is broken, so another driver may work on it"
                raise LostContact(f"{text}: jobs keep running, and the same command continues the study") from error


@contextmanager
def locked(storage: str, study: str, holder: str) -> Iterator[StudyLock]:
    """Lock a study inside the block. `storage` is an SQLAlchemy address; `holder` describes this process to others.

    With SQLite, the lock is an operating system lock on a file next to the database; with PostgreSQL, it is an
    advisory lock. Both locks end with the process that holds them. Raises BadInput if the storage cannot be used, and
    CallAgain if another process holds the lock.
    """
    digest, connection, other = hashlib.sha256(study.encode()).digest(), None, ""
    with ExitStack() as stack:
        try:
            engine = open_engine(storage)
            stack.callback(engine.dispose)
            if engine.dialect.name == "postgresql":
                connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                stack.callback(connection.close)
                stack.callback(connection.invalidate)  # runs before `close`: ends the session, and with it the lock
                key, name = {"key": int.from_bytes(digest[:8], "big", signed=True)}, {"holder": holder[:63]}
                connection.execute(sa.text("select set_config('application_name', :holder, false)"), name)
                if not connection.execute(sa.text("select pg_try_advisory_lock(:key)"), key).scalar_one():
                    other = str(connection.execute(sa.text(_HOLDER), key).scalar() or "another process")
            elif engine.url.database:
                path = Path(f"{engine.url.database}-{digest.hex()[:12]}.lock")
                try:
                    file = stack.enter_context(locked_file(path, waits=False))
                    file.truncate(0)
                    print(holder, end="", file=file, flush=True)
                except BlockingIOError:
                    other = path.read_text(encoding="utf-8") or "another process"
        except (SQLAlchemyError, ImportError, OSError) as error:
            raise unusable(storage, error) from None
        if other:
            text = f"{other} is working on the study {study}: this command has done nothing"
            raise CallAgain(f"{text}; run it again later")
        yield StudyLock(connection)


def unusable(storage: str, error: BaseException, holder: str = "") -> BadInput:
    """Return the error for a storage that cannot be opened; `holder` says what uses it, such as ` of team.yaml`."""
    text = f"storage {redacted(storage)}{holder} cannot be used ({first_line(error)}): check address, server and driver"
    return BadInput([text])
