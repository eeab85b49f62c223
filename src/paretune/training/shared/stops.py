"""Why one trial of a shared job stops before its end."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

LOOK_EVERY_S = 0.25
"""Seconds between two looks for the file of a stop request, which on some file systems take a millisecond each."""
ALL, TOO_LONG, ASKED = "all", "too long", "asked"
"""Reasons: the whole job is to stop, the time of the trial is over, this trial is to stop."""
REASONS = (ALL, TOO_LONG, ASKED)
"""The one that counts first where the processes of a job have several."""

Clock = Callable[[], float]


class StopRequest(Protocol):
    """Something that may ask a training to stop after its current step, with a checkpoint."""

    @property
    def stop_requested(self) -> bool:
        """Whether it asks now; it never takes that back."""


class MemberStop:
    """The stop request of one trial: the job's, the file `asked`, or `max_seconds` that have passed on `clock`.

    `reason` is the first one that was found, one of REASONS; empty before.
    """

    def __init__(self, job: StopRequest, asked: Path, *, clock: Clock, max_seconds: float) -> None:
        self.reason = ""
        self._job = job
        self._asked = asked
        self._clock = clock
        self._until = clock() + max_seconds
        self._next_look = 0.0

    @property
    def stop_requested(self) -> bool:
        """Whether the trial is to stop."""
        if not self.reason:
            self.reason = self._found()
        return bool(self.reason)

    def _found(self) -> str:
        if self._job.stop_requested:
            return ALL
        if self._clock() > self._until:
            return TOO_LONG
        now = time.monotonic()
        if now < self._next_look:
            return ""
        self._next_look = now + LOOK_EVERY_S
        return ASKED if self._asked.exists() else ""
