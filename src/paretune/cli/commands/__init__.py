"""Commands that the Python interface does not have; each module's `run(request)` gives what is printed.

prices        the known prices of a region, read anew on request
report        recorded runs, priced again; estimates against measurements
imports       import: runs of other teams, from a table into MLflow
sync          jobs whose launcher has ended
predict       a trained model on the rows of a file
doctor        what is wrong with machine, account and server; one paid job
"""
