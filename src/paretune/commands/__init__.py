"""The commands, a module each; the larger ones are folders. Nothing below imports them.

A new command is a module here that defines a `COMMAND` (see `command.py`), and a line in `cli.COMMANDS`. To be called
by `mlflow run` it needs an entry point in MLproject.
"""
