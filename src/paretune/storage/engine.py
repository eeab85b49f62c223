"""Engines of SQLAlchemy whose transactions exclude one another where they write."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import NullPool


def open_engine(address: str, *, keeps_connections: bool = True) -> sa.Engine:
    """An engine of a SQLAlchemy address; nothing is connected yet.

    Without `keeps_connections` each transaction opens a connection of its own and closes it.

    Raises:
        SQLAlchemyError, ImportError: it is no address, or its driver is not installed.
    """
    pool: dict[str, Any] = {"pool_pre_ping": True} if keeps_connections else {"poolclass": NullPool}
    engine = sa.create_engine(address, **pool)
    if engine.dialect.name == "sqlite":
        # Of SQLite's transactions only an immediate one keeps others from reading what it is about to change.
        sa.event.listen(engine, "connect", _by_hand)
        sa.event.listen(engine, "begin", _immediately)
    return engine


def is_same_database(one: sa.Engine, other: sa.Engine) -> bool:
    """Whether two engines are known to lead to one database, so that one transaction can change both's tables.

    False for two spellings of one server. Two of one SQLite file are the same: its file would be locked by the other.
    """
    if one.dialect.name == other.dialect.name == "sqlite":
        return Path(one.url.database or "").resolve() == Path(other.url.database or "").resolve()
    return one.url == other.url


def _by_hand(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # Python's driver would begin transactions itself, and later
    connection.execute("PRAGMA busy_timeout = 60000")


def _immediately(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
