"""Errors, time, signals and small algorithms that all folders use; standard library only.

clock.Clock, SystemClock        time as a value that is passed in
errors.ParetuneError            root of all errors; BadInput, JobFailed, BudgetRefused, ...
finding.Finding                 what a check found out: in order, wrong, or not to be asked
interruption.Interruption       Ctrl-C, SIGTERM and the end of the parent process
pareto.front                    which points are on the Pareto front
tags.Attribution, tag_faults    whose job it is, and which tags AWS takes
text_table.text_table           aligned columns for a terminal
"""
