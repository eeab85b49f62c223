"""Time as a value that is passed in, so that tests and the simulated launcher need not wait for it."""

import time
from typing import Protocol


class Clock(Protocol):
    """What paretune asks of time."""

    def now(self) -> float:
        """Seconds since the epoch (wall clock); for time stamps."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back; for durations."""

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread for `seconds`."""
        time.sleep(seconds)
