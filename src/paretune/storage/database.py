"""Engines for SQLite and PostgreSQL whose writing transactions exclude each other."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

_LOCK = 7_205_759_403  # key of PostgreSQL's advisory locks; any number that nothing else in the database uses


def open_engine(address: str) -> sa.Engine:
    """An engine for an address of SQLAlchemy. It does not connect yet; each transaction opens a connection of its own.

    Raises:
        SQLAlchemyError, ImportError: the address is invalid, or its driver is not installed.
    """
    engine = sa.create_engine(with_driver(address), poolclass=NullPool)
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


def exclude_others(connection: sa.Connection) -> None:
    """Let no other transaction that calls this begin before this one has ended; SQLite excludes all others anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.text(f"select pg_advisory_xact_lock({_LOCK})"))
