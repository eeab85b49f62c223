"""Reserved and booked dollars: of the trials of a study, and of all jobs that share budgets of a month.

ledger.Ledger               reserve, book and balance, for both ledgers
study_ledger.StudyLedger    the trials of one study, and the drivers at work on it
budget_ledger.BudgetLedger  all jobs that share the budgets of a file
budget_file.BudgetFile      a file of budgets, read and checked
trial_entry                 values of a trial in the ledger: TrialNote, TrialEnd, TrialStatus, TrialEntry
lease.Lease                 lets one round at a time work on a study
tables                      the tables of both ledgers; `migrations/` has their versions, one Alembic revision a file
"""
