"""A fixture that makes stores of MLflow and Optuna open faster, and a variable that turns it off.

Each test has its own stores. Without the fixture, every store that is opened reads all migrations and compiles all its
statements again. The fixture `quick_databases` shares migrations and statements between the stores of a process, and
does not wait for the disk. To do this, it replaces methods of alembic and SQLAlchemy until the last test has ended.
`PARETUNE_PLAIN_DATABASES=1` turns the fixture off, for example to debug a migration or a statement. `.ci/full` sets
this variable for `newest` and `pythons`.

With the fixture, a sixth of the default tests takes 72 CPU s instead of 94 (2026-11-29, the same 482 tests, two cores
of a Xeon at 2.1 GHz, MLflow 3.17, SQLAlchemy 2). Most of the saved time was spent on checking migrations at each
opening and on compiling statements. No setting saves this time. MLflow's store checks its schema whenever it is opened,
and does not set `query_cache_size`. A statement cache belongs to one engine, and each file needs its own engine.
"""

import os
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

PLAIN = os.environ.get("PARETUNE_PLAIN_DATABASES") == "1"


@pytest.fixture(scope="session", autouse=True)
def quick_databases() -> Iterator[None]:
    """Share migrations and compiled statements between all SQLite stores of this process, and skip disk syncs."""
    if PLAIN:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        share_migrations(patch)
        share_statements(patch)
        sa.event.listen(sa.Engine, "connect", do_not_wait_for_the_disk)
        yield
        sa.event.remove(sa.Engine, "connect", do_not_wait_for_the_disk)


def share_migrations(patch: pytest.MonkeyPatch) -> None:
    """Let alembic read each folder of migrations only once, instead of once per store."""
    from alembic.script import ScriptDirectory
    from alembic.script.revision import RevisionMap

    make = ScriptDirectory.__init__
    revisions: dict[str, RevisionMap] = {}  # by folder

    def make_with_shared_revisions(scripts: ScriptDirectory, folder: Any, *words: Any, **options: Any) -> None:
        make(scripts, folder, *words, **options)
        scripts.revision_map = revisions.setdefault(str(folder), scripts.revision_map)

    patch.setattr(ScriptDirectory, "__init__", make_with_shared_revisions)


def share_statements(patch: pytest.MonkeyPatch) -> None:
    """Let SQLAlchemy compile each statement once for all SQLite files, which all have the same dialect."""
    from sqlalchemy.dialects.sqlite.base import SQLiteDialect
    from sqlalchemy.util import LRUCache

    make = sa.Engine.__init__
    statements: Any = LRUCache(5000)

    def make_with_shared_statements(engine: sa.Engine, pool: Any, dialect: Any, *words: Any, **options: Any) -> None:
        make(engine, pool, dialect, *words, **options)
        if isinstance(dialect, SQLiteDialect):
            engine._compiled_cache = statements

    patch.setattr(sa.Engine, "__init__", make_with_shared_statements)
    patch.setattr(SQLiteDialect, "__eq__", lambda dialect, other: type(dialect) is type(other))
    patch.setattr(SQLiteDialect, "__hash__", lambda dialect: hash(type(dialect)))


def do_not_wait_for_the_disk(connection: Any, _: Any) -> None:
    """Let SQLite return before a transaction is on the disk. Tests need not survive a power failure."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
