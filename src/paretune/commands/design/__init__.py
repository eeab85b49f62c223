"""The command `design`: a table of jobs, planned before it is paid, and run as a study whose points are its rows.

- `file.DesignFile`: the checked file; `reading.read_design` reads it; `rows.job_of_row` gives the job of a row.
- `plan.DesignPlan`: the rows and what they can show; `points.choose`: which rows (the only user of pydoe).
- `model.DesignModel`: model matrix, correlations, D-efficiency, power (the only user of formulaic).
- `bill.Bill`: estimated dollars and worst case of the rows.
- `run.run_design_file`: a design from its file to its last row; `table_study.TableStudy`: its table as a study.
- `record.DesignRunWriter`: the design's MLflow run; `answer.DesignResult`: what the command prints.
- `command`: how the command line calls it.
"""
