"""Versions of tables, one Alembic revision a file, and `migrate`, which brings a database to the newest.

The version stands in a table of our own: Optuna and MLflow keep theirs in `alembic_version`, perhaps of this database.
"""

from pathlib import Path

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from paretune.core.errors import BadInput

_LOCK = 7_205_759_403  # of PostgreSQL's advisory locks; any number that nothing else in the database uses


def migrate(connection: Connection, where: str, revisions: Path, version_table: str) -> None:
    """Create tables, or change those of an earlier version into today's. Rows are kept.

    Several processes may open a database at the same moment: SQLite lets in one writing transaction at a time, and in
    PostgreSQL a lock is held until the transaction ends. On SQLite the transaction must write from its beginning
    (BEGIN IMMEDIATE).

    Args:
        connection: in a transaction.
        where: the database, for messages.
        revisions: folder of the revisions.
        version_table: name of the table with the version.

    Raises:
        BadInput: a newer version of paretune has written the tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"select pg_advisory_xact_lock({_LOCK})"))
    folder = str(revisions)
    scripts = ScriptDirectory(folder, version_locations=[folder])
    found = MigrationContext.configure(connection, opts={"version_table": version_table}).get_current_revision()
    newest = scripts.get_current_head()
    if found == newest:
        return
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        versions = f"version of its tables: {found}, known here: up to {newest}"
        raise BadInput(
            [f"storage {where} was written by a newer paretune ({versions}): update paretune, or name another storage"]
        )
    with EnvironmentContext(Config(), scripts, fn=lambda there, _: scripts._upgrade_revs("head", there)) as environment:
        environment.configure(connection=connection, version_table=version_table)
        environment.run_migrations()
