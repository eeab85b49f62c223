"""Budgets that many jobs share, and the lock of a study.

budget_file.BudgetFile      a budget file, read and checked
budget_ledger.BudgetLedger  reservations, costs and balances of all jobs that share the budgets of a file
lock.locked                 lets only one process at a time work on a study
"""
