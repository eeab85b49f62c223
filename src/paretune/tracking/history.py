"""Runs of the MLflow store for readers; the store is opened, and MLflow imported, only if it can hold any."""

import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from paretune.core.clock import Clock
from paretune.tracking import schema
from paretune.tracking.recorded_job import RecordedRun

if TYPE_CHECKING:
    from paretune.tracking.store import Tracking
_DEFAULT = "sqlite:///mlflow.db"  # MLflow's own default, where no setting names a store


class Runs(Protocol):
    """A store of runs that can be searched."""

    def runs(self, condition: str, newest: int | None = None) -> list[RecordedRun]:
        """See `Tracking.runs`."""


class History:
    """The runs of the store that MLflow's own settings name."""

    def __init__(self, environment: Mapping[str, str], clock: Clock) -> None:
        self._environment = environment
        self._clock = clock

    @cached_property
    def store(self) -> "Tracking":
        """The store, opened when it is first needed. Raises TrackingUnavailable."""
        from paretune.tracking.store import Tracking

        return Tracking(self._environment, self._clock)

    def runs(self, condition: str, newest: int | None = None) -> list[RecordedRun]:
        """Runs of all experiments for which `condition` holds; see `Tracking.runs`."""
        return [] if self._holds_no_job else self.store.runs(condition, newest)

    @cached_property
    def _holds_no_job(self) -> bool:
        """Whether the store certainly holds no job. True only for an SQLite file that is absent, or has no such tag."""
        uri = self._environment.get("MLFLOW_TRACKING_URI")
        # MLflow's functions may name another store, and so does its default where there is an older store of files.
        if "mlflow" in sys.modules or (not uri and any(Path("mlruns").glob("*/meta.yaml"))):
            return False
        scheme, _, path_text = (uri or _DEFAULT).partition(":///")
        if scheme != "sqlite" or {"?", "%"} & set(path_text):
            return False
        path = Path(path_text)
        if not path.exists():
            return True
        query = "SELECT 1 FROM tags WHERE key = ? AND value != ? LIMIT 1"
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
                return database.execute(query, (schema.ORIGIN, schema.ESTIMATED)).fetchone() is None
        except sqlite3.Error:
            return False
