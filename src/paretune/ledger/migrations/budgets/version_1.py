"""Version 1: entries, their tags, and the row that admissions lock."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "paretune_budget_entries",
        sa.Column("job", sa.String(255), primary_key=True),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("month", sa.String(7), nullable=False),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("worst_usd", sa.Float, nullable=False),
        sa.Column("booked_usd", sa.Float),
        sa.Column("kept_usd", sa.Float),
    )
    op.create_index("paretune_budget_entries_month", "paretune_budget_entries", ["month", "origin"])
    op.create_index("paretune_budget_entries_run", "paretune_budget_entries", ["run_id"])
    op.create_table(
        "paretune_budget_tags",
        sa.Column("job", sa.String(255), primary_key=True),
        sa.Column("name", sa.String(128), primary_key=True),
        sa.Column("value", sa.String(256), nullable=False),
    )
    lock = op.create_table("paretune_budget_lock", sa.Column("number", sa.Integer, primary_key=True))
    op.bulk_insert(lock, [{"number": 1}])
