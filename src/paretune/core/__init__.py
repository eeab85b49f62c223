"""Errors, time, signals and small algorithms for all other folders; standard library only.

checks         Finding, Verdict             results of checks on machine, account and server
clock          Clock, Interruption          time, Ctrl-C, SIGTERM and the end of the parent process
errors         ParetuneError                the tree of errors, and suggestions for misspelt names
own_script     read_own_script              which arguments a script of the user's declares, read from its text
packages       missing                      installed packages and the extras that they belong to
pareto         front                        which points are on the Pareto front
result         Result, CommandOutput        results as rows, text and JSON; CSV with typed cells
script_metrics numbers_in                   numbers in the lines that a script prints
shell          command_line                 commands as text that the user can paste
tags           Attribution, tag_faults      owner of a job, and which tags AWS accepts
untrusted      read_text, printable         paths, files, JSON and texts of strangers, handled safely
watchdog       watch                        ends a job that hangs
"""
