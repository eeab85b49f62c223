"""Versions of the tables of the ledger: those of studies and those of budgets, each with its own history."""
