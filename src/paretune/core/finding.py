"""What was found out about one thing that jobs need: in order, wrong, or not to be asked."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from paretune.core.errors import BadInput, ParetuneError, first_line


class Verdict(Enum):
    """How a check ended."""

    OK = "ok"
    WRONG = "wrong"
    NOT_ASKED = "could not be asked"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check: what it was about, how it ended, and a sentence with the values; where wrong, with the next step."""

    subject: str
    verdict: Verdict
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands, between backticks in the text, that mend what is wrong; none where nothing is."""
        return re.findall("`([^`]+)`", self.text) if self.verdict is Verdict.WRONG else []


def fine(subject: str, text: str) -> Finding:
    """The finding that a subject is in order."""
    return Finding(subject=subject, verdict=Verdict.OK, text=text)


def wrong(subject: str, text: str) -> Finding:
    """The finding that something must be mended."""
    return Finding(subject=subject, verdict=Verdict.WRONG, text=text)


def not_asked(subject: str, text: str) -> Finding:
    """The finding that a subject is not known, with the reason."""
    return Finding(subject=subject, verdict=Verdict.NOT_ASKED, text=text)


def faults_of(findings: Iterable[Finding]) -> list[str]:
    """The texts of what is wrong."""
    return [one.text for one in findings if one.verdict is Verdict.WRONG]


def guarded(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of `check`; what it raises is a finding too, so that the checks after it are made."""
    try:
        yield from check()
    except BadInput as error:
        yield from (wrong(subject, fault) for fault in error.faults)
    except ParetuneError as error:
        yield wrong(subject, str(error))
    except Exception as error:  # a bug, or a library that has broken: said, and no reason to stop looking
        yield not_asked(subject, f"{type(error).__name__}: {first_line(error)}")
