"""Version 1: the tables as they were before versions were counted; a storage that has them is only marked."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Create the tables where there are none."""
    op.create_table(
        "paretune_studies",
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("mark", sa.String(64), nullable=False),
        sa.Column("described", sa.Text, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "paretune_ledger",
        sa.Column("study", sa.String(255), primary_key=True),
        sa.Column("trial", sa.Integer, primary_key=True),
        sa.Column("identity", sa.String(255), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("worst_usd", sa.Float),
        sa.Column("booked_usd", sa.Float),
        sa.Column("spent_usd", sa.Float),
        sa.Column("place", sa.Integer),
        sa.Column("counts", sa.Integer, nullable=False),
        sa.Column("settled", sa.Integer, nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("parameters", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("ended", sa.Text),
        if_not_exists=True,
    )
    for column in ("identity", "place"):
        op.create_index(f"paretune_ledger_{column}", "paretune_ledger", ["study", column], if_not_exists=True)
    op.create_table(
        "paretune_drivers",
        sa.Column("study", sa.String(255), primary_key=True),
        sa.Column("owner", sa.String(255), primary_key=True),
        sa.Column("seen", sa.Float, nullable=False),
        if_not_exists=True,
    )
