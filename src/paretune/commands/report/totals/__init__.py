"""Totals over all recorded jobs: dollars, instance hours and the best F1, and the picture of dollars against F1.

`sums` adds up by study, month, user, team, tag and instance type; `tables` shows and stores the sums; `picture` draws
every run's dollars and F1 with the front.
"""
