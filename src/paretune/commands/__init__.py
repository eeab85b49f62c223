"""The commands; the larger ones are folders, those about jobs in `jobs.py`. No lower layer imports them.

A new command is a `Command` under its name in capitals (see `command.py`), and a line in `cli.COMMANDS`. To be called
by `mlflow run` it needs an entry point in MLproject.
"""
