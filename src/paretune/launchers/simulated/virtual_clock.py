"""Time that advances only during `sleep`, shared through a small file by all processes with the same home folder."""

import fcntl
import os
import struct
import time
import weakref
from pathlib import Path
from typing import Protocol

_SECONDS = struct.Struct("<d")


class Scheduled(Protocol):
    """An object that changes at known virtual times."""

    def next_change(self, after: float) -> float | None:
        """The first change later than `after`, in seconds since the epoch; None if there is none."""


class VirtualClock:
    """A `Clock` whose `sleep` advances to the next change of a watched object, at least by the seconds given.

    A new clock starts at the machine's time; a later process continues at the time in the file simulated/clock of
    `home`.
    """

    def __init__(self, home: Path) -> None:
        path = home.resolve() / "simulated" / "clock"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._watched: weakref.WeakSet[Scheduled] = weakref.WeakSet()
        self._wake_at: set[float] = set()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            if os.fstat(self._file).st_size < _SECONDS.size:
                os.write(self._file, _SECONDS.pack(time.time()))
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def now(self) -> float:
        """Virtual seconds since the epoch."""
        return float(_SECONDS.unpack(os.pread(self._file, _SECONDS.size, 0))[0])

    def monotonic(self) -> float:
        """The same as `now`, which never goes back."""
        return self.now()

    def watch(self, scheduled: Scheduled) -> None:
        """Let `sleep` end at the next change of `scheduled`; holds a weak reference."""
        self._watched.add(scheduled)

    def wake_at(self, moment: float) -> None:
        """Let `sleep` end at `moment`, in virtual seconds since the epoch."""
        self._wake_at.add(moment)

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds`, or further to the next change if that is later; returns without waiting."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            now = self.now()
            changes = [change for item in self._watched if (change := item.next_change(now)) is not None]
            self._wake_at = {moment for moment in self._wake_at if moment > now}
            following = min([*changes, *self._wake_at], default=now)
            os.pwrite(self._file, _SECONDS.pack(max(now + seconds, following)), 0)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)
