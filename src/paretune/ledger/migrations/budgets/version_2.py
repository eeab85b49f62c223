"""Version 2: an entry says when it was reserved."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Add the column; of older entries it is not known."""
    op.add_column("paretune_budget_entries", sa.Column("reserved_at", sa.Float))
