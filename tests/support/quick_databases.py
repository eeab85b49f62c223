"""A fixture that makes stores of MLflow and Optuna open faster, and a variable that turns it off.

Each test has its own stores. Without the fixture, every store that is opened reads all migrations and compiles all its
statements again, and every session of MLflow sets three pragmas by SQLAlchemy and checks its own flushes. The fixture
`quick_databases` shares migrations and statements between the stores of a process, sets pragmas directly, leaves these
checks out, and does not wait for the disk. To do this, it replaces methods of alembic and SQLAlchemy until the last
test has ended. `empty_store` also lets MLflow read a run without SQLAlchemy.
`PARETUNE_PLAIN_DATABASES=1` turns the fixture off, for example to debug a migration or a statement. `.ci/full` sets
this variable for `newest` and `pythons`.

With the fixture, a sixth of the default tests takes 72 CPU s instead of 94 (2026-11-29, the same 482 tests, two cores
of a Xeon at 2.1 GHz, MLflow 3.17, SQLAlchemy 2). Most of the saved time was spent on checking migrations at each
opening and on compiling statements. No setting saves this time. MLflow's store checks its schema whenever it is opened,
and does not set `query_cache_size`. A statement cache belongs to one engine, and each file needs its own engine.
"""

import contextlib
import functools
import os
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session, sessionmaker

_RUN = """
SELECT name, experiment_id, user_id, status, start_time, end_time, lifecycle_stage, artifact_uri
FROM runs WHERE run_uuid = ?
"""
_DATA_SETS = """
SELECT d.name, d.digest, d.dataset_source_type, d.dataset_source, d.dataset_schema, d.dataset_profile, t.name, t.value
FROM inputs i JOIN datasets d ON i.source_id = d.dataset_uuid LEFT JOIN input_tags t ON t.input_uuid = i.input_uuid
WHERE i.destination_type = 'RUN' AND i.destination_id = ?
"""
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
        shorten_sessions(patch)
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


def shorten_sessions(patch: pytest.MonkeyPatch) -> None:
    """Let sessions set pragmas without SQLAlchemy, keep what they have read, and not check the flushes of MLflow.

    MLflow checks in tests alone that a session which only reads does not write.
    """
    execute, listen = Session.execute, sa.event.listen

    def set_pragmas_directly(session: Session, statement: Any, *words: Any, **options: Any) -> Any:
        if isinstance(statement, sa.TextClause) and statement.text.startswith("PRAGMA ") and not words:
            connection = session.connection().connection.dbapi_connection
            if isinstance(connection, sqlite3.Connection):
                return connection.execute(statement.text)
        return execute(session, statement, *words, **options)

    def listen_without_checks(target: Any, name: str, call: Any, *words: Any, **options: Any) -> None:
        if getattr(call, "__name__", "") != "_reject_flush":
            listen(target, name, call, *words, **options)

    patch.setattr(Session, "execute", set_pragmas_directly)
    patch.setitem(sessionmaker.__init__.__kwdefaults__, "expire_on_commit", False)
    patch.setattr(sa.event, "listen", listen_without_checks)


def read_runs_directly(patch: pytest.MonkeyPatch) -> None:
    """Let MLflow read a run by plain SQL, which takes a fifth of the time, unless the run is not there."""
    from mlflow.entities import (
        Dataset,
        DatasetInput,
        InputTag,
        Metric,
        Param,
        Run,
        RunData,
        RunInfo,
        RunInputs,
        RunOutputs,
        RunTag,
    )
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    plain = SqlAlchemyStore.get_run

    @functools.wraps(plain)
    def get_run(store: Any, run_id: str) -> Any:
        if store.db_type != "sqlite":
            return plain(store, run_id)
        try:
            with contextlib.closing(store.engine.raw_connection()) as connection:

                def rows(statement: str) -> list[Any]:
                    return connection.driver_connection.execute(statement, (run_id,)).fetchall()

                ((name, experiment, *others),) = rows(_RUN)
                values = rows("SELECT key, value, is_nan, timestamp, step FROM latest_metrics WHERE run_uuid = ?")
                params = rows("SELECT key, value FROM params WHERE run_uuid = ?")
                tags = rows("SELECT key, value FROM tags WHERE run_uuid = ?")
                data_sets = rows(_DATA_SETS)
                has_models = rows("SELECT 1 FROM inputs WHERE source_id = ?")
        except (ValueError, sa.exc.SQLAlchemyError, sqlite3.Error):
            return plain(store, run_id)
        if has_models:
            return plain(store, run_id)
        names = "user_id", "status", "start_time", "end_time", "lifecycle_stage", "artifact_uri"
        info = RunInfo(
            run_id=run_id, run_name=name, experiment_id=str(experiment), **dict(zip(names, others, strict=True))
        )
        metrics = [Metric(key, float("nan") if is_nan else value, *at) for key, value, is_nan, *at in values]
        data = RunData(metrics, [Param(*row) for row in params], [RunTag(*row) for row in tags])
        inputs = {row[:6]: DatasetInput(Dataset(*row[:6]), []) for row in data_sets}
        for row in data_sets:
            inputs[row[:6]].tags.extend([InputTag(*row[6:])] if row[6] else [])
        return Run(info, data, RunInputs(dataset_inputs=[*inputs.values()], model_inputs=[]), RunOutputs([]))

    patch.setattr(SqlAlchemyStore, "get_run", get_run)


def do_not_wait_for_the_disk(connection: Any, _: Any) -> None:
    """Let SQLite return before a transaction is on the disk. Tests need not survive a power failure."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
