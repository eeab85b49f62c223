"""Tables of recorded runs: read, looked up, interpolated.

run_table        RunTable, RecordedRow   a CSV file of finished runs, read strictly
recorded_runs    RecordedRuns            what a job would have taken and reached, from a table
run_lookup       rows_at, Found          rows of a table at a point, or around it
                 enclosing               interpolation in a grid with holes
rehearsal        Rehearsal               the same without a table: from estimates and from runs in MLflow
import_request   ImportRequest           a table that is to be brought into MLflow
"""
