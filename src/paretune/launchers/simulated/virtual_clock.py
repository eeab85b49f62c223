"""Time that passes only while somebody sleeps, shared by all processes of one place through a small file."""

import fcntl
import mmap
import os
import struct
import time
import weakref
from pathlib import Path
from typing import Protocol

_SECONDS = struct.Struct("<d")


class Scheduled(Protocol):
    """Something that changes at known times."""

    def next_change(self, after: float) -> float | None:
        """The first time later than `after` (seconds since the epoch) at which it changes; None when there is none."""


class VirtualClock:
    """A clock that jumps: `sleep` ends when what is watched next changes, but not before the seconds asked for.

    It starts at the machine's time and goes on where it was left by the last process.

    Args:
        path: where its time is kept; made if absent.
    """

    def __init__(self, path: Path) -> None:
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
        self._time = mmap.mmap(self._file, _SECONDS.size)

    def now(self) -> float:
        """Seconds since the epoch, in virtual time."""
        return float(_SECONDS.unpack_from(self._time)[0])

    def monotonic(self) -> float:
        """The same: it never goes back."""
        return self.now()

    def watch(self, scheduled: Scheduled) -> None:
        """Never sleep over a change of `scheduled` unasked; forgotten with the object."""
        self._watched.add(scheduled)

    def wake_at(self, moment: float) -> None:
        """Never sleep over `moment` unasked."""
        self._wake_at.add(moment)

    def sleep(self, seconds: float) -> None:
        """Put the clock forward, by `seconds` or to the next change after them; returns at once."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            begun = self.now()
            changes = [change for item in self._watched if (change := item.next_change(begun)) is not None]
            self._wake_at = {moment for moment in self._wake_at if moment > begun}
            following = min([*changes, *self._wake_at], default=begun)
            _SECONDS.pack_into(self._time, 0, max(begun + seconds, following))
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def __del__(self) -> None:
        if hasattr(self, "_time"):
            self._time.close()
            os.close(self._file)
