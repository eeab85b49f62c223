"""One module for each entry point, imported when it runs; its `run(request)` gives what is printed.

job           main: one job
estimate      seconds, dollars and memory before paying
study         the front of a study's objectives
prices        the known prices of a region, read anew on request
report        recorded runs, priced again; estimates against measurements
imports       import: runs of other teams, from a table into MLflow
sync          jobs that nobody watches
"""
