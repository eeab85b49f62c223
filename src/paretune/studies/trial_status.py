"""The status of a trial: how its job ended, and whether its point (the searched values) is tried again.

`ESTIMATED`, `PROBED` and `TRAINED` say what a configuration is known from.

    COMPLETED                         the point has a result
    OUT_OF_MEMORY, DIVERGED, STOPPED  the point has no result, and is not tried again
    FAILED, CUT_OFF                   the point is tried once more if the search asks for it
    INTERRUPTED, REFUSED              the point was not at fault, so it is tried again; n_trials excludes the trial

`TRIES` says how often a point is tried, and `is_final` whether it is over. `studies/search/ended_trials.py` decides
after what pause it is tried again.
"""

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from paretune.specification.ending import Cause, Ending

ESTIMATED, PROBED, TRAINED = "estimated", "probed", "trained"
"""What a configuration is known from: nothing that ran, a job with the same cluster and batch, or its own training."""


class TrialStatus(Enum):
    """The state of a trial, or how it ended."""

    RUNNING = "Running"
    COMPLETED = "Completed"
    OUT_OF_MEMORY = "OutOfMemory"
    DIVERGED = "Diverged"
    CUT_OFF = "CutOff"  # at its maximum runtime: retried if the search asks for it
    FAILED = "Failed"  # by itself: retried if the search asks for it
    STOPPED = "Stopped"  # on request
    INTERRUPTED = "Interrupted"  # its job died with its driver, so the point was not at fault: retried
    REFUSED = "Refused"  # no capacity, quota or dollars: retried after a pause

    @classmethod
    def of_end(cls, ending: Ending, *, is_lost: bool) -> "TrialStatus":
        """Return the status of a job that ended without a result.

        If the job `is_lost`, because it died with the process that had started it, a failure is no fault of its point.
        """
        status = cls.STOPPED if ending.cause is None else _OF_CAUSES[ending.cause]
        return cls.INTERRUPTED if is_lost and status is cls.FAILED else status

    @property
    def is_retried_on_request(self) -> bool:
        """Whether the point is tried once more if the search asks for it, because it may have failed by chance."""
        return self in (TrialStatus.FAILED, TrialStatus.CUT_OFF)

    @property
    def is_retryable(self) -> bool:
        """Whether the trial's point was not at fault, so that it is tried again."""
        return self in (TrialStatus.INTERRUPTED, TrialStatus.REFUSED)

    @property
    def in_words(self) -> str:
        """The status in words, such as out of memory."""
        return re.sub(r"\B([A-Z])", r" \1", self.value).lower()


_OF_CAUSES = {
    Cause.OUT_OF_MEMORY: TrialStatus.OUT_OF_MEMORY,
    Cause.DIVERGED: TrialStatus.DIVERGED,
    Cause.CAPACITY: TrialStatus.REFUSED,
    Cause.TIME_LIMIT: TrialStatus.CUT_OFF,
    **dict.fromkeys(
        (Cause.BAD_INPUT, Cause.CODE, Cause.DISK_FULL, Cause.INTERNAL, Cause.SILENT, Cause.ERROR), TrialStatus.FAILED
    ),
}
"""The cause of a job's end to the status of its trial."""


class Tries(NamedTuple):
    """Limits on how often a study runs the same job or configuration.

    Attributes:
        failed: starts of a job that fails or reaches its time limit.
        refused: retries of a job that is refused (capacity, quota) or interrupted; each further one counts as failed.
        repeated: runs of a configuration, including those that failed or collapsed, after which it is not repeated.
    """

    failed: int
    refused: int
    repeated: int


TRIES = Tries(failed=2, refused=4, repeated=4)


def is_final(ends: Iterable[TrialStatus], refusals: int = 0) -> bool:
    """Return whether a job with these trials is not started again, because one has a result or too many failed.

    A running trial counts as one with a result. `refusals` is the number of times that the job was refused or
    interrupted; trials that did not count as a try are left out of it.
    """
    statuses = [status for status in ends if not status.is_retryable]
    failures = sum(status.is_retried_on_request for status in statuses)
    return failures < len(statuses) or failures + max(0, refusals - TRIES.refused) >= TRIES.failed
