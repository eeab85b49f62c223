"""Clocks, passed in as values: tests and the simulated launcher pass a clock that does not wait."""

import time
from typing import Protocol


class Clock(Protocol):
    """A clock that gives timestamps and durations, and that can wait."""

    def now(self) -> float:
        """Return the wall-clock time in seconds since the epoch, for timestamps."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. They never decrease, so use them for durations."""

    def sleep(self, seconds: float, /) -> None:
        """Wait for this many seconds."""


class SkippingClock(Clock, Protocol):
    """A clock of simulated time: `sleep` does not wait, but skips ahead, at least to the next change of a job."""

    def wake_at(self, moment: float, /) -> None:
        """Let `sleep` skip ahead to `moment`, in seconds since the epoch, as if a job changed then."""


class SystemClock:
    """The machine's clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
