"""What a command gives back: the text for a person, and the document for a program."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from paretune.core.errors import BadInput, JobFailed, ParetuneError
from paretune.core.untrusted import printable_json


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a command that the Python API does not have; nothing is printed where the text is empty.

    `exit_code` is that of the command: an answer may say that something is wrong.
    """

    text: str = ""
    document: Mapping[str, object] = field(default_factory=dict)
    exit_code: int = 0

    def __str__(self) -> str:
        """The text."""
        return self.text

    def to_dict(self) -> dict[str, object]:
        """The document."""
        return dict(self.document)


def error_document(error: BaseException, message: str, exit_code: int) -> dict[str, object]:
    """What `--json` prints when a command fails: `{"error": {class, message, faults, exit_code}}`.

    A failed job's error also has `job_name`, `reason`, `log_tail` and `where` (its whole log).
    """
    about: dict[str, object] = {
        "class": type(error).__name__ if isinstance(error, (ParetuneError, OSError)) else "Interrupted",
        "message": message,
        "faults": list(error.faults) if isinstance(error, BadInput) else [],
        "exit_code": exit_code,
    }
    if isinstance(error, JobFailed):
        about |= {"job_name": error.job_name, "reason": error.reason}
        about |= {"log_tail": list(error.log_tail), "where": error.where}
    return {"error": about}


def as_document(value: Mapping[str, object]) -> str:
    """One JSON document; a number that JSON has no word for is a bug, and raises ValueError."""
    return printable_json(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
