"""Which drivers work on a study: each one records a heartbeat in the study's ledger."""

import threading
from collections.abc import Callable
from contextlib import suppress

from paretune.core.errors import LostContact
from paretune.launchers.processes import is_alive
from paretune.ledger.study_ledger import StudyLedger

ABANDONED_S = 300.0
"""Real seconds without a heartbeat after which another machine's driver counts as dead."""
HEARTBEAT_S = 30.0


def drivers_at_work(ledger: StudyLedger, now: float) -> set[str]:
    """Drivers of the study that stay until its end and are alive at `now`, seconds since the epoch."""

    def is_living(owner: str, last_heartbeat: float) -> bool:
        alive = is_alive(owner)
        return alive if alive is not None else now - last_heartbeat <= ABANDONED_S

    return {owner for owner, last_heartbeat in ledger.drivers().items() if is_living(owner, last_heartbeat)}


class Heartbeat:
    """Calls `beat` every HEARTBEAT_S seconds in a thread of its own, whatever the main thread is busy with."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun. The first record is written before this returns."""
        self._beat()
        if self._thread is None:
            self._thread = threading.Thread(target=self._repeat, name="heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for a record that is being written."""
        self._has_ended.set()
        if self._thread is not None:
            self._thread.join()

    def _repeat(self) -> None:
        while not self._has_ended.wait(HEARTBEAT_S):
            with suppress(LostContact):  # the main thread reports it at its next call; the storage may answer by then
                self._beat()
