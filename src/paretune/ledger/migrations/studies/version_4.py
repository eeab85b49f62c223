"""Version 4: the table of leases, for studies that are driven in rounds."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Create the table; no earlier version knows rounds."""
    op.create_table(
        "paretune_leases",
        sa.Column("study", sa.String(255), primary_key=True),
        sa.Column("holder", sa.String(255), nullable=False),
        sa.Column("token", sa.Integer, nullable=False),
        sa.Column("until", sa.Float, nullable=False),
        sa.Column("ended", sa.Text),
    )
