"""Runs for readers, of a store that is opened only if it can hold any."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paretune.core.clock import SystemClock
from paretune.tracking import History, schema


class Opened(Exception):
    """The store was opened."""


@pytest.fixture(autouse=True)
def unopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not imported MLflow, in an empty folder, and a store that must not be opened."""

    def opened(*_: Any) -> None:
        raise Opened

    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mlflow")
    monkeypatch.setitem(sys.modules, "paretune.tracking.store", SimpleNamespace(Tracking=opened))  # type: ignore[arg-type]


def holds_jobs(uri: str | None) -> bool:
    try:
        return bool(History({} if uri is None else {"MLFLOW_TRACKING_URI": uri}, SystemClock()).runs("any"))
    except Opened:
        return True


def write(path: Path, *origins: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE tags (key TEXT, value TEXT)")
        database.executemany("INSERT INTO tags VALUES (?, ?)", [(schema.ORIGIN, origin) for origin in origins])


@pytest.mark.parametrize(
    ("origins", "expected"), [((), False), (("estimated",), False), (("estimated", "published"), True)]
)
def test_a_store_without_jobs_is_not_opened(origins: tuple[str, ...], expected: bool) -> None:
    write(Path("mlflow.db"), *origins)
    write(Path("other.db"), *origins)

    assert holds_jobs(None) is expected
    assert holds_jobs("sqlite:///other.db") is expected
    assert not holds_jobs("sqlite:///absent.db")
    assert not Path("absent.db").exists()


@pytest.mark.parametrize("uri", ["http://127.0.0.1:5000", "sqlite:///other.db?timeout=9", "postgresql://a/b", "mlruns"])
def test_a_store_that_cannot_be_looked_into_is_opened(uri: str) -> None:
    assert holds_jobs(uri)


def test_a_damaged_file_and_an_older_store_of_files_are_opened() -> None:
    Path("damaged.db").write_text("not a database")
    assert holds_jobs("sqlite:///damaged.db")
    assert not holds_jobs(None)
    Path("mlruns/0").mkdir(parents=True)
    Path("mlruns/0/meta.yaml").touch()
    assert holds_jobs(None)
