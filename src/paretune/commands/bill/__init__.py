"""The command `reconcile`: AWS's bill, a Cost and Usage Report 2.0, against the recorded costs of jobs.

command         ReconcileRequest: which bill to read
run             reads the bill, records what each run was billed, keeps the tables with the command's own run
reconciliation  reconcile: a bill and the recorded costs in, what each run was billed out
difference      why the bill and the recorded cost of a run differ, to the last digit
recorded_costs  what runs have recorded, and which of them a line of the bill belongs to
discounts       discounts of an account and SKU, divided among the lines that they discount
rates           what an hour of an instance costs in effect
reading         Parquet and CSV files as lines, read in pieces; all lines of other services as one sum
deliveries      the files of a bill: each month of an account counts from one delivery
coverage        up to when a bill shows what SageMaker has charged
lines           one line of the bill, and what kind of charge it is
tables          what the command prints and stores
"""
