"""The commands, one module each; the larger ones are folders, and those about existing jobs share `jobs.py`.

No lower layer imports them. A new command needs a `Command`, a constant with its name in capitals (see `command.py`),
and a row in `cli.COMMANDS`. To be called by `mlflow run`, it also needs an entry point in MLproject. `mlflow_run` is no
command, but a backend of `mlflow run`.
"""
