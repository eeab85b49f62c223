"""Databases that are made once and copied, and environment variables that keep everything under one folder."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from paretune.core.file_lock import locked_file


def made_once(folder: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return a file that `make` writes once for all workers of pytest-xdist. `folder` is this worker's own folder."""
    path = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / name
    with locked_file(path.with_suffix(".lock")):
        if not path.exists():
            draft = path.with_suffix(".draft")
            make(draft)
            draft.rename(path)
    return path


def copy_store(store: Path, folder: Path) -> str:
    """Copy an MLflow store to `mlflow.db` in `folder`, which also gets its artifacts. Return the copy's address."""
    shutil.copy(store, folder / "mlflow.db")
    with sqlite3.connect(folder / "mlflow.db") as connection:
        connection.execute("PRAGMA synchronous = OFF")  # no test has to survive a power failure
        connection.execute("UPDATE experiments SET artifact_location = ?", (str(folder / "mlruns" / "0"),))
    return f"sqlite:///{folder / 'mlflow.db'}"


def user_s_own(folder: Path) -> dict[str, str]:
    """Return environment variables that keep all files of a user under `folder` and avoid network access."""
    return {
        "PARETUNE_HOME": str(folder / ".paretune"),
        "HF_HOME": str(folder / "huggingface"),
        "HF_HUB_OFFLINE": "1",
    }
