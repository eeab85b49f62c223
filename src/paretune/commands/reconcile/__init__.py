"""The command `reconcile`: AWS's bill beside the recorded costs of jobs.

command  ReconcileRequest: which bill to read
lines    the lines of training jobs in exports of CUR 2.0 and FOCUS
run      compares them with the runs, records what each was billed, keeps the table with the command's own run
"""
