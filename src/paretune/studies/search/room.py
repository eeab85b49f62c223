"""How many jobs at a time AWS may be asked for, after it has refused one: a quota, or no permission at all."""

import math

from paretune.core.clock import Clock
from paretune.core.errors import LaunchRefused
from paretune.launchers.base import Launcher

REFUSED_PAUSE_S = 60.0
"""Seconds until AWS is asked again that has refused the only job."""
ROOM_S = 1800.0
"""Seconds until AWS is asked again for more jobs at a time than it has let run."""
MOST_REFUSED = 3
"""Times in a row that AWS refuses the only job, before the study ends."""


class Room:
    """Holds back jobs that would only be refused.

    Args:
        clock: of the launcher.
        launcher: told when it is asked again.
    """

    def __init__(self, clock: Clock, launcher: Launcher) -> None:
        self._clock = clock
        self._launcher = launcher
        self._most = math.inf
        self._until = 0.0
        self._refused = 0

    def may_start(self, running: int) -> bool:
        """Whether a job may be asked for beside those that run."""
        return running < self._most or self._clock.now() >= self._until

    def was_given(self) -> None:
        """A job was created."""
        self._refused = 0

    def was_refused(self, running: int, reason: str) -> None:
        """A job was refused beside those that run.

        Raises:
            LaunchRefused: nothing runs, and it was not the first time: waiting does not help.
        """
        self._most = running
        self._until = self._clock.now() + (ROOM_S if running else REFUSED_PAUSE_S)
        self._refused += not running
        if self._refused >= MOST_REFUSED:
            raise LaunchRefused(f"{reason} (nothing could be launched {self._refused} times in a row)")
        self._launcher.wake_at(self._until)
