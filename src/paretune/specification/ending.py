"""How a job ends, as a value: its state, the cause if it has no result, and a sentence that only people read.

A cause is decided once, where the fact is at hand: the exception in the job, the answer of the service, the limit that
a launcher enforces. No other code looks for it in the sentence.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from paretune.core.code_errors import prints_error_in_code
from paretune.core.errors import last_words

_OF_ONE_JOB = re.compile(r"[0-9a-f]{8,}")  # ids of runs, names of temporary folders, addresses of objects


class JobState(Enum):
    """The state of a job. A job never leaves a terminal state."""

    RUNNING = "Running"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in {JobState.COMPLETED, JobState.FAILED, JobState.STOPPED}


class Cause(Enum):
    """Why a job has no result. The cause decides whether and how the job, or its point in a study, is tried again.

    The values are written into the failure files of jobs, into tags of runs and into the tables of studies.
    """

    OUT_OF_MEMORY = "out_of_memory"  # retry with a smaller per-device batch
    BAD_INPUT = "bad_input"  # only a different request helps
    CODE = "code"  # an error in the code, or a package that is missing: each job with this code fails in the same way
    DISK_FULL = "disk_full"  # free space, or ask for a larger volume
    DIVERGED = "diverged"  # loss or gradients are NaN or infinite: lower the learning rate; a retry would diverge again
    CAPACITY = "capacity"  # the service had no instance: retry later or with another instance type
    INTERNAL = "internal"  # a fault inside the service: retry from the last checkpoint
    TIME_LIMIT = "time_limit"  # it reached its maximum runtime: allow more time, or train less
    SILENT = "silent"  # its program ended with an exit code, and gave no reason
    ERROR = "error"  # anything else; see the log

    @property
    def is_of_a_service(self) -> bool:
        """Whether only a service can know it, so that a job that names it is not believed."""
        return self in {Cause.CAPACITY, Cause.INTERNAL}


@dataclass(frozen=True)
class Ending:
    """The end of a job.

    Attributes:
        state: COMPLETED, FAILED or STOPPED.
        cause: why a job failed, or why a job was stopped that nobody asked to stop; None for any other end.
        sentence: the cause in words. Only people read it.
    """

    state: JobState
    cause: Cause | None = None
    sentence: str = ""

    def __post_init__(self) -> None:
        if not self.state.is_terminal:
            raise ValueError(f"a job that is {self.state.value} has not ended")
        if (self.cause is None) != (self.state is JobState.COMPLETED) and self.state is not JobState.STOPPED:
            rule = "a failed job has a cause, and a completed one has none"
            raise ValueError(f"{rule}, got {self.cause} for {self.state.value}")

    @property
    def has_completed(self) -> bool:
        """Whether the job has a result."""
        return self.state is JobState.COMPLETED

    def explained(self, log: Sequence[str]) -> "Ending":
        """Return the ending with the last words of the job's log, if its cause is SILENT and the log has words."""
        if self.cause is not Cause.SILENT or not (words := last_words(log)):
            return self
        cause = Cause.CODE if prints_error_in_code(words) else Cause.ERROR
        return Ending(self.state, cause, f"{self.sentence}: {words}")

    def as_json(self) -> dict[str, Any]:
        """Return the ending as JSON values."""
        return {
            "state": self.state.value,
            "cause": None if self.cause is None else self.cause.value,
            "sentence": self.sentence,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "Ending":
        """Create an ending from the result of `as_json`."""
        cause = raw["cause"]
        return cls(JobState(raw["state"]), None if cause is None else Cause(cause), raw["sentence"])


COMPLETED = Ending(JobState.COMPLETED)
STOPPED = Ending(JobState.STOPPED)
"""The end of a job that was asked to stop."""


def failed(cause: Cause, sentence: str) -> Ending:
    """Return the ending of a job that failed."""
    return Ending(JobState.FAILED, cause, sentence)


def cut_off(sentence: str) -> Ending:
    """Return the ending of a job that reached its maximum runtime."""
    return Ending(JobState.STOPPED, Cause.TIME_LIMIT, sentence)


def without_ids(sentence: str) -> str:
    """Return a sentence without the parts that differ from job to job, so that two sentences can be compared."""
    return _OF_ONE_JOB.sub("#", sentence)
