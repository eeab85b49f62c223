"""The commands, one module each; the larger ones are folders, and those about existing jobs share `jobs.py`.

No lower layer imports them. A new command needs two things: a `Command` (see `command.py`), which is a constant named
like the command in capitals, and a row in `cli.COMMANDS`. A command that `mlflow run` can call also needs an entry
point in MLproject. `mlflow_run` is not a command but a backend of `mlflow run`.
"""
