"""Results of checks on the machine, the account and the server: passed, failed, or not possible."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial

from paretune.core.errors import BadInput, ParetuneError, first_line


class Verdict(Enum):
    """The outcome of a check."""

    PASSED = "ok"
    FAILED = "wrong"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """The result of one check: its subject, and a sentence with the values and, if the check failed, the next step."""

    verdict: Verdict
    subject: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands that repair a failed check: the parts of the text between backticks."""
        return re.findall("`([^`]+)`", self.text) if self.verdict is Verdict.FAILED else []


passed, failed, not_checked = (partial(Finding, verdict) for verdict in Verdict)
"""Each makes a finding from a subject and a text.

The text of `passed` has the values, that of `failed` says what is wrong and how to fix it, and that of `not_checked`
says why it was not checked.
"""


def faults_of(findings: Iterable[Finding]) -> list[str]:
    """Return the texts of the failed checks."""
    return [finding.text for finding in findings if finding.verdict is Verdict.FAILED]


def run_check(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Run `check` and yield its findings. An exception also becomes a finding, so that later checks still run."""
    try:
        yield from check()
    except BadInput as error:
        yield from (failed(subject, fault) for fault in error.faults)
    except ParetuneError as error:
        yield failed(subject, str(error))
    except Exception as error:  # a bug of ours or a broken library: report it and continue
        yield not_checked(subject, f"{type(error).__name__}: {first_line(error)}")
