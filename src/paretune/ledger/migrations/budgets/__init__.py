"""Versions of the accounts' tables, one Alembic revision a file."""

from pathlib import Path

from sqlalchemy import Connection

from paretune.storage import migrations

VERSION_TABLE = "paretune_budget_schema"


def migrate(connection: Connection, where: str) -> None:
    """Create the accounts' tables, or change those of an earlier version; as `database.migrations.migrate`."""
    migrations.migrate(connection, where, Path(__file__).parent, VERSION_TABLE)
