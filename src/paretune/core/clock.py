"""Clocks, passed in as values: tests and the simulated launcher pass a clock that does not wait."""

import time
from typing import Protocol


class Clock(Protocol):
    """Time stamps, durations and waiting."""

    def now(self) -> float:
        """Return the wall-clock time in seconds since the epoch, for time stamps."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. They never decrease, so use them for durations."""

    def sleep(self, seconds: float, /) -> None:
        """Wait for so many seconds."""


class SkippingClock(Clock, Protocol):
    """A clock of simulated time, whose `sleep` skips to the next change."""

    def wake_at(self, moment: float, /) -> None:
        """Let `sleep` end at `moment`, in seconds since the epoch."""


class SystemClock:
    """The machine's clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
