"""Errors, time, signals and small algorithms for all other folders; standard library only.

checks         Finding, Verdict             results of checks on machine, account and server
clock          Clock, Interruption          time, Ctrl-C, SIGTERM and the end of the parent process
commands       command_line                 commands as text that the user can paste
errors         ParetuneError                the tree of errors, and suggestions for misspelt names
packages       training_is_missing          installed packages and the extras that they belong to
pareto         front                        which points are on the Pareto front
result         Result, CommandOutput        results as rows, text and JSON; CSV with typed cells
tags           Attribution, tag_faults      owner of a job, and which tags AWS accepts
untrusted      read_text, printable         paths, files, JSON and texts of strangers, handled safely
watchdog       watch                        ends a job that hangs
"""
