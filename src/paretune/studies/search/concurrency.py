"""The number of jobs that SageMaker lets run at a time, learnt from its refusals."""

import math
from collections.abc import Iterable

from paretune.core.clock import Clock
from paretune.core.errors import LaunchRefused
from paretune.launchers.base import Launcher
from paretune.ledger.trial_entry import TrialEnd

REFUSED_PAUSE_S = 60.0  # seconds until SageMaker is asked again after it has refused the only job
LIMIT_RETRY_S = 1800.0  # seconds until SageMaker is asked again for more jobs at a time than it has let run
MOST_REFUSED = 3  # times in a row that SageMaker refuses the only job, before the study ends


class ConcurrencyLimit:
    """The number of jobs that SageMaker lets run at a time, as far as it is known."""

    def __init__(self, clock: Clock, launcher: Launcher) -> None:
        self._clock = clock
        self._launcher = launcher
        self._most = math.inf
        self._until = 0.0
        self._refused = 0

    def has_free_slot(self, running: int) -> bool:
        """Whether a job may be started beside those that run."""
        return running < self._most or self._clock.now() >= self._until

    def job_created(self) -> None:
        """Learn that a job was created."""
        self._refused = 0

    def recall(self, ends: Iterable[TrialEnd]) -> None:
        """Learn what earlier drivers have learnt, from the ends of trials in the order of booking."""
        for end in ends:
            if end.refused_beside is not None:
                self._learn(end.refused_beside, end.at)
            elif end.cost_usd:  # its job was created
                self._refused = 0

    def job_refused(self, running: int, reason: str) -> None:
        """Learn that a job was refused beside `running` others; raises LaunchRefused after MOST_REFUSED in a row."""
        self._learn(running, self._clock.now())
        if self._refused >= MOST_REFUSED:
            raise LaunchRefused(f"{reason} (nothing could be launched {self._refused} times in a row)")
        if (virtual_clock := self._launcher.virtual_clock) is not None:
            virtual_clock.wake_at(self._until)

    def _learn(self, running: int, at: float) -> None:
        self._most = running
        self._until = at + (LIMIT_RETRY_S if running else REFUSED_PAUSE_S)
        self._refused += not running
