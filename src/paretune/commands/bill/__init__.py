"""AWS's bill: a Cost and Usage Report 2.0 against what was recorded of each job. No network, no MLflow.

lines           one line of the bill, and what kind of charge it is
deliveries      the files of a bill: a month of an account counts from one delivery
reading         Parquet and CSV files as lines, in pieces; everybody else's lines as one sum
tag_columns     the tag of a run, whichever column and form it is in
coverage        up to when a bill tells what SageMaker has charged
seen            which lines have been read already
accounts        the recorded runs, and which of them a line belongs to
difference      why the bill and the recorded cost differ, to the last digit
rates           what an hour of an instance costs in effect
reconciliation  all of it: a bill and the recorded runs in, what each run was billed out
"""
