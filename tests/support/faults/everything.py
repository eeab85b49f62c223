"""Imports everything that commands import late, once for all forks. It runs a simulated job in a separate folder."""

import contextlib
import gc
import os
import tempfile

import paretune.user_code.collection  # noqa: F401
from paretune.cli import main

custom = dict(os.environ)
with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), open(os.devnull, "w") as nowhere:
    os.environ.update(MLFLOW_TRACKING_URI=f"sqlite:///{folder}/mlflow.db", PARETUNE_HOME=f"{folder}/home")
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        main(["train", "--launcher", "simulated", "--instance_type", "ml.g5.xlarge"])
        main(["sync"])
os.environ.clear()
os.environ.update(custom)
gc.freeze()
