"""The lease of the process that watches a job, in the tags of its run, which every machine can read.

The tags name the process that watches, with its host, and the time at which it has last renewed its lease. Whether a
process of this machine runs can be looked up; one of another machine, or of another container, counts as dead when it
has not renewed its lease for ABANDONED_S.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from paretune.core.errors import LostContact
from paretune.launchers.processes import is_alive, this_process
from paretune.tracking import schema

if TYPE_CHECKING:
    from paretune.tracking import Run

ABANDONED_S = 300.0  # real seconds without a sign of life after which a process of another machine counts as dead
HEARTBEAT_S = 30.0  # real seconds between two signs of life


class Watches:
    """The runs whose jobs this process watches; a thread renews their leases by `now`, the machine's time."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._runs: dict[str, Run] = {}
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, run: "Run") -> dict[str, str]:
        """Renew the lease on the run's job from now on; returns the tags of the lease, to be recorded now."""
        self._runs[run.run_id] = run
        if self._thread is None:
            self._has_ended = threading.Event()
            self._thread = threading.Thread(target=self._renew, name="heartbeat", daemon=True)
            self._thread.start()
        return {schema.WATCHED_BY: this_process(), schema.WATCHED_AT: f"{self._now():.0f}"}

    def release(self, run_id: str) -> dict[str, str]:
        """Renew the lease no longer; returns the tags of a job that nobody watches."""
        self._runs.pop(run_id, None)
        if not self._runs and self._thread is not None:
            self._has_ended.set()
            self._thread.join()  # until a tag that is being written is there
            self._thread = None
        return {schema.WATCHED_BY: "", schema.WATCHED_AT: ""}

    def _renew(self) -> None:
        while not self._has_ended.wait(HEARTBEAT_S):
            for run in list(self._runs.values()):
                with suppress(LostContact):  # the main thread reports it at its next call; it may answer by then
                    run.renew({schema.WATCHED_AT: f"{self._now():.0f}"})


def watcher(tags: Mapping[str, str], now: float) -> str:
    """The other process that watches the job of a run with these tags, in words; empty if none is known to at `now`."""
    name, renewed_at = tags.get(schema.WATCHED_BY, ""), tags.get(schema.WATCHED_AT, "")
    if not name or name == this_process():
        return ""
    lives = is_alive(name)
    if lives is not None:
        return "another process on this machine" if lives else ""
    if not renewed_at or abs(now - float(renewed_at)) > ABANDONED_S:  # a clock that is far ahead is not trusted
        return ""
    return f"a process on {name.partition(' ')[0].partition('/')[0]} ({max(0.0, now - float(renewed_at)):.0f} s ago)"
