"""Designs: a table of jobs, planned before it is paid, and run as a study whose points are the rows of the table.

- `run.run_design_file`: a design from its file to its last row.
- `plan.DesignPlan`: the rows, and what they can tell.
- `points.choose`: which rows; only here pydoe is imported.
- `model.DesignModel`: model matrix, correlations, D-efficiency, power; only here formulaic is imported.
- `bill.Bill`: what the rows are estimated to cost, and can cost at worst.
- `table_study.TableStudy`: the table, as the study that is driven.
- `record.DesignRunWriter`: the design's MLflow run; `answer.DesignResult`: what the command prints.
"""
