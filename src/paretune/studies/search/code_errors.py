"""Errors of the code itself, which every further job of a study would repeat."""

import re
from collections.abc import Mapping, Sequence

from paretune.specification.parameters import Value
from paretune.studies.definition.space import Choices, Search
from paretune.studies.results.trials import Next, Trial, TrialStatus

_ERROR = re.compile(
    r"\b(?:ModuleNotFound|Import|Syntax|Indentation|Name|UnboundLocal|Type|Attribute|Key|Index|Value|FileNotFound|"
    r"NotImplemented|Assertion)Error\b|No module named|package \S+ is missing|No matching distribution found|"
    r"unrecognized arguments|arguments are required|error: argument"
)
"""Python's exceptions of wrong code and missing packages, and argparse's messages."""
_CHANGING = re.compile(r"[0-9a-f]{8,}")  # ids of runs, parts of temporary folders


def code_error(trials: Sequence[Trial], search: Search) -> str:
    """The reason why no further job can complete, and what to change; empty while one may.

    Two of these trials have failed with the same error of the code; none of the study has completed.
    """
    failed: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.status is TrialStatus.FAILED and trial.follows is Next.INSIST and _ERROR.search(trial.reason):
            alike = failed.setdefault(_CHANGING.sub("#", trial.reason), [])
            alike.append(trial)
    for alike in failed.values():
        if len(alike) > 1 and not _share_a_word([trial.point for trial in alike], search):
            numbers, last = " and ".join(str(trial.number) for trial in alike[:2]), alike[-1]
            return (
                f"trials {numbers} failed with the same error of the code, and no trial has completed, so no more "
                f"are started: {last.reason}; correct the code, or add the missing package to its requirements.txt"
            )
    return ""


def _share_a_word(points: list[Mapping[str, Value]], search: Search) -> bool:
    """Whether all failed points have one of several words of a parameter, such as a strategy: others may work."""
    return any(
        isinstance(choices, Choices)
        and len(choices.values) > 1
        and isinstance(choices.values[0], str)
        and name != "instance_type"
        and len({point.get(name) for point in points}) == 1
        for name, choices in search.items()
    )
