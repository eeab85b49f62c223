"""MLflow stores of tests, and environment variables that keep everything below one folder."""

import shutil
import sqlite3
from pathlib import Path


def copy_store(store: Path, folder: Path) -> str:
    """Copy an MLflow store to `mlflow.db` in `folder`, which keeps its artifacts too; the address of the copy."""
    shutil.copy(store, folder / "mlflow.db")
    with sqlite3.connect(folder / "mlflow.db") as connection:
        connection.execute("UPDATE experiments SET artifact_location = ?", (str(folder / "mlruns" / "0"),))
    return f"sqlite:///{folder / 'mlflow.db'}"


def user_s_own(folder: Path) -> dict[str, str]:
    """Environment variables that keep all that is written below `folder`, and nothing asked of the network."""
    return {
        "PARETUNE_HOME": str(folder / ".paretune"),
        "HF_HOME": str(folder / "huggingface"),
        "HF_HUB_OFFLINE": "1",
    }
