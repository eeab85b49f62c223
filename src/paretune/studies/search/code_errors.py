"""Errors of the code itself, which every further job of a study would repeat."""

import re
from collections.abc import Mapping
from pathlib import Path

from paretune.core.untrusted import exists
from paretune.ledger.trial_entry import TrialEntry, TrialStatus
from paretune.specification.job import JobSpec
from paretune.specification.parameters import Value
from paretune.studies.definition.space import Choices, Search

_ERROR = re.compile(
    r"\b(?:ModuleNotFound|Import|Syntax|Indentation|Name|UnboundLocal|Type|Attribute|Key|Index|Value|FileNotFound|"
    r"NotImplemented|Assertion)Error\b|No module named|package \S+ is missing|No matching distribution found|"
    r"unrecognized arguments|arguments are required|error: argument"
)
"""Python's exceptions of wrong code and missing packages, and argparse's messages."""
_PACKAGE = re.compile(
    r"No module named '?([\w-]+)|package (\S+) is missing|cannot import name .+ from '([\w-]+)|"
    r"No matching distribution found for ([\w.-]+)"
)
_CHANGING = re.compile(r"[0-9a-f]{8,}")  # ids of runs, parts of temporary folders


class CodeErrors:
    """Counts equal errors of the trials of a study, until one has completed."""

    def __init__(self, search: Search, *, has_completed: bool = False) -> None:
        self._search = search
        self._has_completed = has_completed
        self._failed: dict[str, list[tuple[int, Mapping[str, Value]]]] = {}
        self.reason = ""
        """The reason why no further job can complete, and what to change; empty while one may."""

    def add(self, entry: TrialEntry) -> None:
        """Count the end of a trial."""
        end = entry.end
        if end is None or self._has_completed:
            return
        is_error = end.status is TrialStatus.FAILED and not end.retryable and not end.conclusive
        if end.status is TrialStatus.COMPLETED:
            self._has_completed, self.reason = True, ""
        elif is_error and _ERROR.search(end.reason):
            trials = self._failed.setdefault(_CHANGING.sub("#", end.reason), [])
            trials.append((entry.trial, entry.note.point))
            if len(trials) > 1 and not self._shared([point for _, point in trials]):
                numbers = " and ".join(str(number) for number, _ in trials[:2])
                self.reason = (
                    f"trials {numbers} failed with the same error of the code, and no trial has completed, so no more "
                    f"are started: {end.reason}{_remedy(end.reason, JobSpec.read(entry.parameters))}"
                )

    def _shared(self, points: list[Mapping[str, Value]]) -> bool:
        """Whether all failed points have one of several words of a parameter, such as a strategy: others may work."""
        return any(
            isinstance(choices, Choices)
            and len(choices.values) > 1
            and isinstance(choices.values[0], str)
            and name != "instance_type"
            and len({point.get(name) for point in points}) == 1
            for name, choices in self._search.items()
        )


def _remedy(reason: str, spec: JobSpec) -> str:
    match = _PACKAGE.search(reason)
    if match is None:
        return "; correct the code"
    package = next(filter(None, match.groups()))
    if spec.entry_script:
        return f"; add {package} to {Path(spec.entry_script).parent / 'requirements.txt'}"
    if spec.project:
        names = ("python_env.yaml", "conda.yaml", "requirements.txt")
        file = next((name for name in names if exists(Path(spec.project) / name)), names[0])
        return f"; add {package} to {Path(spec.project) / file}"
    return f"; set image_uri to an image with {package}"
