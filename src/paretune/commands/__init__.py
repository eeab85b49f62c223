"""The commands, a module each; the larger ones are folders. Nothing below imports them.

clean         `clean`: what jobs have left in S3, and its removal
demo          `demo`: a whole simulated study
doctor        `doctor`: checks machine, AWS account and MLflow
estimate      `estimate`: seconds, dollars and memory of jobs before they are paid for
imports       `import`: a table of finished runs, brought into MLflow
logs          `logs`: what a job prints
mcp           `mcp`: a server for agents
prices        `prices`: the prices of a region
reconcile     `reconcile`: AWS's bill against the recorded costs of jobs
report        `report`: tables, figures and findings of recorded jobs
status        `status`: the jobs that run now, and their dollars
stop          `stop`: ends a job, with everything booked
study         `study`: the front of a study within its budget; its work is `paretune.studies`
sync          `sync`: follows and collects jobs whose launcher has ended; its work is `paretune.jobs`
train         `train`: one job; its work is `paretune.jobs`

A new command is a module here that defines a `COMMAND` (see `command.py`), and a line in `cli.COMMANDS`. To be called
by `mlflow run` it needs an entry point in MLproject.
"""
