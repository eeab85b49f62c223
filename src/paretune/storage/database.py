"""SQLite and PostgreSQL databases: checks of addresses and files, engines, and transactions that run one at a time."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from paretune.core.reading import exists, is_file, takes_files

if TYPE_CHECKING:  # imported when an engine is opened: this import takes as long as a whole estimate
    import sqlalchemy

_ADDRESS = re.compile(r"sqlite:///(?!:memory:)[^?#]+|postgresql(\+\w+)?://.+", re.DOTALL)
_USUAL_STORE = "sqlite:///mlflow.db"  # of MLflow 3, in the current folder
_LOCK = 7_205_759_403  # key of our advisory lock in PostgreSQL: any number that nothing else in the database uses


def address_fault(address: str) -> str:
    """Return why this address cannot be the value of `storage`; empty if it can be."""
    if _ADDRESS.fullmatch(address):
        return ""
    rule = "storage must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE (a file or a database that "
    return rule + f"outlives the command), got {redacted(address)!r}"


def redacted(address: str) -> str:
    """Return the address without user and password, for messages and records."""
    scheme, colon, rest = address.partition(":")
    # A password may contain any character, even @ and others that should be escaped. A SQLite address has none.
    if "@" in rest and not address.startswith("sqlite:///"):
        rest = f"//{rest.rpartition('@')[2]}"
    return re.sub(r"(?i)([?&](?:password|passfile|sslpassword|user)=)[^&\s]*", r"\1...", scheme + colon + rest)


def file_fault(path: Path) -> str:
    """Return why SQLite can neither open nor create the file; empty if no reason was found. Nothing is created.

    A missing folder is not a fault if it can be made. An existing file is opened with SQLite: a process that opens and
    closes a database file in any other way loses the locks that it has on the file (SQLite, "How To Corrupt An SQLite
    Database File", section 2.2).
    """
    if not exists(path):
        folder = path.absolute().parent
        return "" if takes_files(folder) else f"{folder} must be a folder that can be written to, for {path.name}"
    if not is_file(path):
        return f"{path} must be a SQLite file, but is a folder, a pipe or a device"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=0, uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        if error.sqlite_errorcode not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"{path} must be a SQLite file, but cannot be read as one ({error})"
    return ""


def open_engine(address: str) -> "sqlalchemy.Engine":
    """Create an engine for an SQLAlchemy address, without connecting. Each transaction opens its own connection.

    Raises SQLAlchemyError or ImportError if the address is invalid or its driver is not installed.
    """
    import sqlalchemy as sa

    def begin_by_hand(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # otherwise Python's driver begins transactions itself, and too late
        connection.execute("PRAGMA busy_timeout = 60000")

    url: sa.URL | None = None
    with suppress(ValueError):  # if the port is not a number
        url = sa.make_url(with_driver(address))
    # This error, and that of a connection to a host with an @, would show a part of the password.
    if url is None or "@" in (url.host or ""):
        raise sa.exc.ArgumentError("its port must be a number; in a password, write %40 for @ and %3A for :")
    if url.drivername.startswith("sqlite") and url.database and _is_of_mlflow(Path(url.database)):
        raise sa.exc.ArgumentError("it is MLflow's own database, which MLflow could not use afterwards: name another")
    if url.drivername.startswith("postgresql+psycopg"):  # AWS's NAT gateways forget a connection idle for 350 s
        url = url.set(query={"keepalives_idle": "60", **url.query})
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    if engine.dialect.name == "sqlite":
        # SQLite runs only one immediate transaction at a time, so no transaction reads what another is about to change.
        sa.event.listen(engine, "connect", begin_by_hand)
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _is_of_mlflow(path: Path) -> bool:
    """Return whether MLflow keeps its runs in an SQLite file, or will do so: its address says so, or its tables."""
    stores = (os.environ.get("MLFLOW_TRACKING_URI", ""), _USUAL_STORE)
    if any(uri.startswith("sqlite:///") and path.resolve() == Path(uri[10:]).resolve() for uri in stores):
        return True
    with suppress(sqlite3.Error):
        if path.is_file():
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=0, uri=True)) as database:
                row = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'latest_metrics'"
                return database.execute(row).fetchone() is not None
    return False


def with_driver(address: str) -> str:
    """Return the address with psycopg as PostgreSQL's driver, because SQLAlchemy before 2.1 has a different default.

    An address that names a driver is returned unchanged.

    >>> with_driver("postgresql://user@host/studies")
    'postgresql+psycopg://user@host/studies'
    """
    scheme, separator, rest = address.partition("://")
    return f"postgresql+psycopg://{rest}" if scheme == "postgresql" and separator else address


@contextmanager
def without_waiting_for_the_disk() -> Iterator[None]:
    """Make SQLite connections that are opened inside the block write without waiting for the disk.

    A power failure may then destroy data.
    """
    import sqlalchemy as sa

    def hurry(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    sa.event.listen(sa.Engine, "connect", hurry)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "connect", hurry)


def exclude_others(connection: "sqlalchemy.Connection") -> None:
    """Make other transactions that call this function wait until the transaction of `connection` ends.

    With SQLite, transactions of `open_engine` wait for each other anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
