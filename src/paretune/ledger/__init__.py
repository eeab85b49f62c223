"""Reserved and booked dollars: of the trials of a study, and of all jobs that share budgets of a month.

ledger.Ledger               reserve, book and balance, for both ledgers, and their tables
study_ledger.StudyLedger    the trials of one study
budget_ledger.BudgetLedger  all jobs that share the budgets of a file
lock.StudyLock              one driver at a time on a study
budget_file.BudgetFile      a file of budgets, read and checked
trial_entry                 values of a trial in the ledger: TrialNote, TrialEnd, TrialStatus, TrialEntry
"""
