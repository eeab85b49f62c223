"""Databases of studies and budgets: which addresses are usable."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.exc import ArgumentError

from paretune.storage.database import open_engine


@pytest.mark.parametrize("named", ["by its address", "by its tables", "as the usual one"])
def test_the_database_of_mlflow_is_no_storage_of_studies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / ("mlflow.db" if named == "as the usual one" else "mine.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{file}" if named == "by its address" else "http://server")
    if named == "by its tables":
        with sqlite3.connect(file) as database:
            database.execute("CREATE TABLE latest_metrics (run_uuid TEXT)")

    with pytest.raises(ArgumentError, match="it is MLflow's own database"):
        open_engine(f"sqlite:///{file}")
    assert open_engine(f"sqlite:///{tmp_path / 'other.db'}") is not None
