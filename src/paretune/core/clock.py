"""Time as a value that is passed in, so that tests and the simulated launcher do not wait."""

import time
from typing import Protocol


class Clock(Protocol):
    """Time stamps, durations and waiting."""

    def now(self) -> float:
        """Wall-clock seconds since the epoch, for time stamps."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start that never decrease, for durations."""

    def sleep(self, seconds: float, /) -> None:
        """Wait for so many seconds."""


class SystemClock:
    """The machine's clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
