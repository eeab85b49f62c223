"""Version 3: the column `kept_usd`, dollars reserved for instances kept after a trial's job."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Add the column; no earlier version reserved anything for such instances."""
    op.add_column("paretune_ledger", sa.Column("kept_usd", sa.Float))
