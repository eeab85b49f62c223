"""Budgets that many jobs share, and the lock of a study.

budget_file.BudgetFile      a file of budgets, read and checked
budget_ledger.BudgetLedger  reserve, record and balance, for all jobs that share the budgets of a file
lock.locked                 one process at a time works on a study
"""
