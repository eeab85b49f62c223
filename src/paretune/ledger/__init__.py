"""Budgets beyond one study: dollars a month, for all jobs or for those with some tags.

file.BudgetFile      the budgets of a file
accounts.Accounts    what jobs have reserved and booked, in a database that all of them share
shared.SharedBudgets the trials of one study against them
settling.book_ended  books jobs that have ended and that nobody has booked
"""
