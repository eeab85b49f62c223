"""The experimental command `recur`: a training that recurs every night, at a cheaper point if quality stays good.

It is experimental: on three of four recorded tables the default or another policy is cheaper (docs/recurring.md).

- `file.RecurFile`: the checked file; `night.run_night`: one night from the choice of its point to its result.
- `policy.Policy`: which point tonight's run takes; `model.DriftingProcess`: values that drift from night to night.
- `points.Points`: the jobs of the points, their expected dollars and worst cases; `history`: earlier nights in MLflow.
- `result`: the result of a night, nights.csv and the MLflow run of all nights.
- `command`: how the command line calls it.
"""
