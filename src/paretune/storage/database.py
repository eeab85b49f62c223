"""Engines for SQLite and PostgreSQL whose writing transactions exclude each other, and migrations of tables."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.pool import NullPool

from paretune.core.errors import BadInput

_LOCK = 7_205_759_403  # key of PostgreSQL's advisory lock; any number that nothing else in the database uses


def open_engine(address: str, *, keeps_connections: bool = True) -> sa.Engine:
    """An engine for an address of SQLAlchemy. It does not connect yet.

    Without `keeps_connections` each transaction opens its own connection and closes it.

    Raises:
        SQLAlchemyError, ImportError: the address is invalid, or its driver is not installed.
    """
    pool: dict[str, Any] = {"pool_pre_ping": True} if keeps_connections else {"poolclass": NullPool}
    engine = sa.create_engine(with_driver(address), **pool)
    if engine.dialect.name == "sqlite":
        # Only an immediate transaction of SQLite keeps others from reading what it is about to change.
        sa.event.listen(engine, "connect", _begin_by_hand)
        sa.event.listen(engine, "begin", _begin_immediately)
    return engine


def with_driver(address: str) -> str:
    """The address with psycopg as the driver of PostgreSQL, which SQLAlchemy takes by itself from version 2.1 on.

    >>> with_driver("postgresql://user@host/studies")
    'postgresql+psycopg://user@host/studies'
    """
    scheme, separator, rest = address.partition("://")
    return f"postgresql+psycopg://{rest}" if scheme == "postgresql" and separator else address


def _begin_by_hand(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # else Python's driver begins transactions itself, and later
    connection.execute("PRAGMA busy_timeout = 60000")


def _begin_immediately(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def is_same_database(first: sa.Engine, second: sa.Engine) -> bool:
    """Whether two engines certainly lead to one database, so that one transaction can change the tables of both.

    Two engines of one SQLite file are the same, because each would lock out the other. Two spellings of one server are
    not recognised.
    """
    if first.dialect.name == second.dialect.name == "sqlite":
        return Path(first.url.database or "").resolve() == Path(second.url.database or "").resolve()
    return first.url == second.url


@contextmanager
def without_waiting_for_the_disk() -> Iterator[None]:
    """Let SQLite write without waiting for the disk: for stores that need not survive a power cut."""

    def hurry(connection: object, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    sa.event.listen(sa.Engine, "connect", hurry)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "connect", hurry)


def migrate(connection: sa.Connection, name: str, revisions: Path, version_table: str) -> None:
    """Create tables, or upgrade tables of an earlier version; rows are kept.

    Several processes may open a database at the same moment: SQLite admits one writing transaction at a time, and on
    PostgreSQL a lock is held until the transaction ends. On SQLite the transaction must begin with BEGIN IMMEDIATE. The
    version is in a table of its own, because Optuna and MLflow may keep theirs in `alembic_version` of this database.

    Args:
        connection: in a transaction.
        name: the database, for messages.
        revisions: folder of the Alembic revisions, one per file.
        version_table: name of the table with the version.

    Raises:
        BadInput: a newer version of paretune wrote the tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"select pg_advisory_xact_lock({_LOCK})"))
    folder = str(revisions)
    scripts = ScriptDirectory(folder, version_locations=[folder])
    version = MigrationContext.configure(connection, opts={"version_table": version_table}).get_current_revision()
    newest = scripts.get_current_head()
    if version == newest:
        return
    if version is not None and version not in {script.revision for script in scripts.walk_revisions()}:
        versions = f"version of its tables: {version}, known here: up to {newest}"
        raise BadInput(
            [f"storage {name} was written by a newer paretune ({versions}): update paretune, or name another storage"]
        )
    upgrade = EnvironmentContext(Config(), scripts, fn=lambda revision, _: scripts._upgrade_revs("head", revision))
    with upgrade as environment:
        environment.configure(connection=connection, version_table=version_table)
        environment.run_migrations()
