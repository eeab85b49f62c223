"""Alembic revisions of the ledgers' tables: `studies/` and `budgets/`, each with its own version table."""
