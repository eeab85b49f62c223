"""Versions of the ledger's tables, one Alembic revision a file."""

from pathlib import Path

from sqlalchemy import Connection

from paretune.storage import migrations

VERSION_TABLE = "paretune_schema"


def migrate(connection: Connection, where: str) -> None:
    """Create the ledger's tables, or change those of an earlier version; as `database.migrations.migrate`."""
    migrations.migrate(connection, where, Path(__file__).parent, VERSION_TABLE)
