"""Tables of recorded runs: read, looked up, interpolated.

run_table      RunTable, RecordedRow: a CSV file of finished runs, read strictly
recorded_runs  RecordedRuns: seconds and F1 of a job from a table
"""
