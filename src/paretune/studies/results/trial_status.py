"""The status of a trial: how its job ended, and whether its point (the searched values) is tried again.

    COMPLETED                         the point has a result
    OUT_OF_MEMORY, DIVERGED, STOPPED  the point has no result, and is not tried again
    FAILED, CUT_OFF                   the point is tried once more if the search asks for it
    INTERRUPTED, REFUSED              the point was not at fault, so it is tried again; n_trials excludes the trial

`studies/search/ended_trials.py` decides how often and after what pause a point is tried again.
"""

import re
from enum import Enum

from paretune.specification.container import FailureKind

_AT_ITS_LIMIT = "MaxRuntimeExceeded"  # SageMaker's word, which the other launchers also use
_OF_FAILURES = {
    FailureKind.OUT_OF_MEMORY: "OutOfMemory",
    FailureKind.DIVERGED: "Diverged",
    FailureKind.CAPACITY: "Refused",
}
"""Kind of failure to the value of its status. The other kinds count as failures of the job itself."""


class TrialStatus(Enum):
    """The state of a trial, or how it ended."""

    RUNNING = "Running"
    COMPLETED = "Completed"
    OUT_OF_MEMORY = "OutOfMemory"
    DIVERGED = "Diverged"
    CUT_OFF = "CutOff"  # at its maximum runtime: retried once if the search asks for it
    FAILED = "Failed"  # by itself: retried once if the search asks for it
    STOPPED = "Stopped"  # on request
    INTERRUPTED = "Interrupted"  # its job died with its driver, so the point was not at fault: retried
    REFUSED = "Refused"  # no capacity, quota or dollars: retried after a pause

    @classmethod
    def of_end(cls, failure: FailureKind | None, reason: str, *, is_stopped: bool, is_lost: bool) -> "TrialStatus":
        """Return the status of a job that ended without a result.

        Args:
            failure: why it failed, if the launcher knows.
            reason: the same in the launcher's words.
            is_stopped: whether it was stopped on request.
            is_lost: whether it died with the process that had started it.
        """
        if _AT_ITS_LIMIT in reason:
            return cls.CUT_OFF
        if failure in _OF_FAILURES:
            return cls(_OF_FAILURES[failure])
        if is_stopped and failure is None:
            return cls.STOPPED
        return cls.INTERRUPTED if is_lost else cls.FAILED

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
