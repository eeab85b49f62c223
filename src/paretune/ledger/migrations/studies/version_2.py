"""Version 2: the column `place` of the ledger is called `booking_order`."""

from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Rename the column and its index."""
    op.drop_index("paretune_ledger_place", "paretune_ledger")
    op.execute("ALTER TABLE paretune_ledger RENAME COLUMN place TO booking_order")
    op.create_index("paretune_ledger_booking_order", "paretune_ledger", ["study", "booking_order"])
