"""Engines for SQLite and PostgreSQL whose writing transactions exclude each other, and the versions of their tables."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from paretune.core.errors import BadInput

_VERSION = "0.5"  # of paretune that changed the tables last
_LOCK = 7_205_759_403  # key of PostgreSQL's advisory locks; any number that nothing else in the database uses


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


def exclude_others(connection: sa.Connection, purpose: int = 0) -> None:
    """Let no other transaction of this purpose begin before this one has ended; SQLite excludes all others anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"select pg_advisory_xact_lock({_LOCK + purpose})"))


def create_tables(connection: sa.Connection, name: str, metadata: sa.MetaData, version_table: str) -> None:
    """Create the tables unless they are there. Several processes may do so at the same moment.

    Args:
        connection: in a transaction; on SQLite one that began with BEGIN IMMEDIATE.
        name: the database, for messages.
        metadata: the tables.
        version_table: name of the table with their version.

    Raises:
        BadInput: another version of paretune made them.
    """
    exclude_others(connection)
    versions = sa.Table(version_table, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))
    versions.create(connection, checkfirst=True)
    version = connection.execute(sa.select(versions)).scalar()
    if version is None:
        metadata.create_all(connection, checkfirst=False)
        connection.execute(versions.insert().values(version_num=_VERSION))
    elif version != _VERSION:
        raise BadInput(
            [f"storage {name} was written by another version of paretune: use that version, or name another storage"]
        )
