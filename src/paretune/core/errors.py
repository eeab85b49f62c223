"""The errors that paretune raises for its users, one tree:

    ParetuneError              exit code  what the caller should do
    ├── BadInput                   2      change the request: nothing was launched
    ├── TrackingUnavailable        2      start or repair the tracking server, then try again
    ├── LaunchRefused              2      do what AWS asks for (credentials, permission, quota), then try again
    ├── JobFailed                  3      read the reason; the job ran and did not finish
    │   └── OutOfMemory            3      ask for a smaller batch or a larger instance
    ├── LostContact                3      sign in again, then `paretune sync`: the job continues meanwhile
    ├── BudgetRefused              4      raise the budget or lower the worst case
    ├── Interrupted              130      nothing: the jobs of this command were stopped, or left running as requested
    └── CallAgain                 75      call the same command again later: a study in rounds has not ended yet

Any other exception that reaches a user is a bug of paretune.
"""

import difflib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

_LONGEST_NAME = 200  # that may be a typing error; difflib takes minutes for some that are no names


class ParetuneError(Exception):
    """Root of the tree. ``exit_code`` is the exit code of the command."""

    exit_code = 3


class BadInput(ParetuneError):
    """The request cannot be carried out as written; nothing was launched.

    ``faults`` holds one sentence per fault: the rule, the value, what is allowed, the next step.
    """

    exit_code = 2

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        listed = [f"{len(self.faults)} faults:", *(f"  - {fault}" for fault in self.faults)]
        super().__init__(self.faults[0] if len(self.faults) == 1 else "\n".join(listed))


def refuse(faults: Sequence[str]) -> None:
    """Raise `BadInput` with all the faults; no effect where there are none."""
    if faults:
        raise BadInput(faults)


@contextmanager
def collecting(faults: list[str]) -> Iterator[None]:
    """Add the faults of a `BadInput` that the block raises to `faults`; the block ends there."""
    try:
        yield
    except BadInput as error:
        faults += error.faults


def did_you_mean(
    name: str, known: Collection[str], *, lead: str = "", most: int = 3, cutoff: float = 0.6, or_longer: bool = False
) -> str:
    """`lead` and the question whether one of at most `most` similar names was meant; empty where none is similar.

    `cutoff` is difflib's least similarity, 0 to 1; with `or_longer`, names that contain `name` count as a last resort.
    """
    if len(name) > _LONGEST_NAME:
        return ""
    near = difflib.get_close_matches(name, known, n=most, cutoff=cutoff)
    if or_longer and name and not near:
        near = [other for other in known if name in other][:most]
    return f"{lead}did you mean {' or '.join(near)}?" if near else ""


def first_line(error: BaseException) -> str:
    """First line of the error's text; the name of its class where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class TrackingUnavailable(ParetuneError):
    """The MLflow tracking server or store does not answer; nothing was launched."""

    exit_code = 2


class LaunchRefused(ParetuneError):
    """AWS refused to create the job, or does not answer; nothing was launched."""

    exit_code = 2


class JobFailed(ParetuneError):
    """A job ended without a result. `where` is the path or address of its whole log, `log_tail` its last lines."""

    def __init__(self, job_name: str, reason: str, log_tail: Sequence[str] = (), where: str = "") -> None:
        self.job_name = job_name
        self.reason = reason
        self.log_tail = tuple(log_tail)
        self.where = where
        lines = [f"job {job_name} failed: {reason}"]
        if self.log_tail:
            lines += ["last lines of its log:", *(f"    {line}" for line in self.log_tail)]
        if where:
            lines.append(f"whole log: {where}")
        super().__init__("\n".join(lines))


class OutOfMemory(JobFailed):
    """The job ran out of memory even at the smallest per-device batch that keeps the global batch size."""


class LostContact(ParetuneError):
    """AWS no longer answers questions about a running job. The job continues, and `sync` collects its results."""


class BudgetRefused(ParetuneError):
    """The job's worst-case cost exceeds the budget; nothing was launched."""

    exit_code = 4


class Interrupted(ParetuneError):
    """Ctrl-C, SIGTERM, or the end of the process that started this command."""

    exit_code = 130


class CallAgain(ParetuneError):
    """A round of a study has done what can be done now; jobs go on, and a later round goes on with the study.

    The exit code is EX_TEMPFAIL of sysexits.h: the same command is to be tried again later.
    """

    exit_code = 75
