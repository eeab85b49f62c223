"""Runs of a local MLflow store, kept in a file while the store does not change, so that MLflow need not be opened."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paretune.tracking.recorded_run import RecordedRun

if TYPE_CHECKING:
    from paretune.tracking.store import Tracking

_FILE = "known_runs.json"
_UNCHANGED_S = 2.0  # a store that changed so recently may change again within the resolution of its time stamp


class KeptRuns:
    """The runs of an SQLite store. Importing and opening MLflow takes 2 s of CPU, and reading the kept file 10 ms.

    store: the file of the store.
    folder: the folder of the kept file; nothing is kept if it does not exist.
    open_store: opens the store. It is called at once if nothing is kept or the store has changed, otherwise only for a
        search that is not kept.
    """

    def __init__(self, store: Path, folder: Path, open_store: "Callable[[], Tracking]") -> None:
        self._store, self._kept, self._open_store = store, folder / _FILE, open_store
        self._state = self._state_now()
        self._searches = self._read()
        self._tracking = None if self._searches else open_store()

    def runs(self, condition: str, newest: int | None = None) -> list[RecordedRun]:
        """Return the runs that `Tracking.runs` returns. Raises TrackingUnavailable."""
        key = f"{newest} {condition}"
        with suppress(KeyError, TypeError):
            return [RecordedRun(**run) for run in self._searches[key]]
        self._tracking = self._tracking or self._open_store()
        found = self._tracking.runs(condition, newest=newest)
        self._searches[key] = [asdict(run) for run in found]
        if Path(self._tracking.uri.removeprefix("sqlite:///")).resolve() == self._store.resolve():
            self._keep()  # MLflow chooses a folder `mlruns` with runs over the file that it makes by default
        return found

    def _keep(self) -> None:
        changed_at = max((mtime_ns / 1e9 for _, _, mtime_ns in self._state["files"]), default=time.time())
        if time.time() - changed_at > _UNCHANGED_S and self._state == self._state_now():
            draft = self._kept.with_suffix(".draft")
            with suppress(OSError):
                draft.write_text(json.dumps({**self._state, "searches": self._searches}))
                draft.replace(self._kept)

    def _state_now(self) -> dict[str, Any]:
        """Return what changes whenever the store does; without files if the store cannot be read."""
        files = list[list[Any]]()
        with suppress(OSError):
            store = self._store.resolve()
            for path in (store, store.with_name(f"{store.name}-wal")):
                if path == store or path.exists():
                    status = path.stat()
                    files.append([str(path), status.st_size, status.st_mtime_ns])
        return {"version": version("paretune"), "files": files}

    def _read(self) -> dict[str, Any]:
        """Return the kept searches of the store in its present state; {} if there are none."""
        with suppress(OSError, ValueError, KeyError, AttributeError, TypeError):
            kept = json.loads(self._kept.read_text())
            searches = dict(kept.pop("searches"))
            if self._state["files"] and kept == self._state:
                return searches
        return {}
