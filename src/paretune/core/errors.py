"""The errors that paretune raises for its users, as a tree:

    ParetuneError              exit code  what the caller should do
    ├── BadInput                   2      change the request: nothing was launched
    ├── TrackingUnavailable        2      start or repair the tracking server, then try again
    ├── LaunchRefused              2      do what AWS asks for (permission, quota), then try again
    │   └── NoAccount              2      sign in to AWS, and set a region
    ├── JobFailed                  3      read the reason: the job ran and did not finish
    │   └── OutOfMemory            3      use a smaller batch or a larger instance
    ├── LostContact                3      restore access, then `paretune sync`: jobs continue meanwhile
    ├── BudgetRefused              4      raise the budget or lower the worst case
    ├── CallAgain                 75      run the same command again later: the study has not ended yet
    └── Interrupted              130      nothing: the jobs of this command were stopped, or left running as requested

Any other exception that reaches a user is a bug in paretune, except the OSError of a full disk.
"""

import difflib
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from paretune.core.code_errors import ERRORS_IN_CODE

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception|Interrupt)\b")  # beginning of the last line of a traceback


class ParetuneError(Exception):
    """Root of the tree. `exit_code` is the exit code of the command."""

    exit_code = 3


class BadInput(ParetuneError):
    """The request cannot be carried out as written; nothing was launched.

    `faults` has one sentence per fault: the rule, the value, what is allowed, the next step.
    """

    exit_code = 2

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        lines = [f"{len(self.faults)} faults:", *(f"  - {fault}" for fault in self.faults)]
        super().__init__(self.faults[0] if len(self.faults) == 1 else "\n".join(lines))


class TrackingUnavailable(ParetuneError):
    """The MLflow tracking server or store does not answer; nothing was launched."""

    exit_code = 2


class LaunchRefused(ParetuneError):
    """AWS refused to create the job, or either AWS or the budgets' database does not answer; nothing was launched."""

    exit_code = 2


class NoAccount(LaunchRefused):
    """AWS cannot be called, because usable credentials, a region or a usable endpoint is missing."""


class JobFailed(ParetuneError):
    """A job ended without a result.

    Attributes:
        reason: why, and what to do, for people.
        log_tail: the last lines of its log.
        where: the location of the log.
        cause: why, for programs: a value of `specification.ending.Cause`; "" for a job that was stopped on request.
    """

    def __init__(
        self, job_name: str, reason: str, log_tail: Sequence[str] = (), where: str = "", *, cause: str = ""
    ) -> None:
        self.job_name, self.cause = job_name, cause
        self.reason = reason
        self.log_tail = tuple(log_tail)
        self.where = where
        lines = ["last lines of its log:", *(f"    {line}" for line in log_tail)] if log_tail else []
        lines += [f"whole log: {where}"] if where else []
        super().__init__("\n".join([f"job {job_name} failed: {reason}", *lines]))


class OutOfMemory(JobFailed):
    """The job ran out of memory, and no smaller per-device batch with the same global batch size is tried."""


class LostContact(ParetuneError):
    """A running job, or the storage of a study, cannot be reached.

    Jobs continue meanwhile. As soon as contact is possible again, `sync` collects the results of jobs, and the command
    that started a study continues it.
    """


class BudgetRefused(ParetuneError):
    """A job's worst case exceeds max_cost_usd or what a budget has left, or cannot be checked; nothing was launched."""

    exit_code = 4


class CallAgain(ParetuneError):
    """`study --once` has done all it can for now, or another process is working on the study.

    The same command continues the study later. The exit code is EX_TEMPFAIL of sysexits.h.
    """

    exit_code = 75


class Interrupted(ParetuneError):
    """The command received Ctrl-C or SIGTERM, or the process that started it has ended."""

    exit_code = 130


def refuse(faults: Sequence[str]) -> None:
    """Raise `BadInput` with the faults, if there are any."""
    if faults:
        raise BadInput(faults)


@contextmanager
def collecting(faults: list[str]) -> Iterator[None]:
    """Catch a `BadInput` that the block raises, append its faults to `faults`, and continue after the block."""
    try:
        yield
    except BadInput as error:
        faults += error.faults


def did_you_mean(
    name: str, names: Collection[str], *, lead: str = "", most: int = 3, cutoff: float = 0.6, or_longer: bool = False
) -> str:
    """Return `lead` and a question that suggests up to `most` similar `names`, or an empty string if none is similar.

    `cutoff` is the lowest similarity that counts, from 0 to 1, as difflib measures it. If no name is similar and
    `or_longer` is true, the question suggests names that contain `name`.
    """
    similar = difflib.get_close_matches(name[:200], names, n=most, cutoff=cutoff)
    if or_longer and name and not similar:
        similar = [other for other in names if name in other][:most]
    return f"{lead}did you mean {' or '.join(similar)}?" if similar else ""


def causes(error: BaseException) -> list[BaseException]:
    """Return the error, its cause, the cause of that cause, and so on.

    If an error was raised without `from`, its cause is the error that was being handled at that time, if any.
    """
    chain = [error]
    while before := chain[-1].__cause__ or (None if chain[-1].__suppress_context__ else chain[-1].__context__):
        chain.append(before)
    return chain


def is_error_in_code(error: BaseException) -> bool:
    """Return whether an exception, or the one that it came from, shows that the code is wrong or a package missing."""
    chain = causes(error)
    return any(isinstance(link, ERRORS_IN_CODE) for link in (chain[0], chain[-1]))


def last_words(lines: Sequence[str]) -> str:
    """Return the last line that has words, or an empty string if none has.

    If that line is in a box drawn by Typer or rich, return the text of the whole box as one line. If it only says that
    a child process failed, return the last line above it that names an exception: the child's.
    """
    plain = [_COLOR.sub("", line).strip() for line in lines]
    while plain and (
        not re.search(r"\w", plain[-1]) or plain[-1].startswith("paretune: ")
    ):  # our own line says no cause
        plain.pop()
    if plain and plain[-1].startswith("subprocess.CalledProcessError"):
        plain = [line for line in plain[:-1] if _EXCEPTION.match(line)] or plain
    in_box = list(itertools.takewhile(lambda line: line.startswith("│"), reversed(plain)))
    return " ".join(line.strip("│ ") for line in reversed(in_box or plain[-1:]))


def first_line(error: BaseException) -> str:
    """Return the first line of the error's text, or the name of its class if it has no text.

    If a database's driver has raised the error, return what the driver says: SQLAlchemy and MLflow write advice first.
    """
    text = str(error).strip()
    found = _OF_DRIVER.search(text)
    return found[1].strip() if found else (text.splitlines() or [type(error).__name__])[0]


_OF_DRIVER = re.compile(r"\((?:sqlite3|psycopg2?|pymysql|MySQLdb)\.(?:errors\.)?\w+\)[ \t]*([^\n]+)")
