"""The command `study`: the Pareto front of a study within its budget, or the points of a design.

`paretune.studies` does the work.
"""

import os
import sys
from collections.abc import Mapping

from paretune.commands.command import Command
from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.result import CommandOutput, Result
from paretune.specification.parameters import parameter
from paretune.specification.profile import CHARGED, FILE, read_profile
from paretune.studies.definition.file import IN_THE_FILE, StudyFile


class StudyOptions(StudyFile):
    """The options of the command: its file, and the keys of a study that can be typed."""

    study: str | None = parameter(None)
    """the study's file, such as studies/smoke.yaml; a shipped one by its name"""


def _read(texts: Mapping[str, str]) -> StudyFile:
    """The study of a file with the typed texts; says what the profile sets and a study does not take from it."""
    path, faults = texts.get("study", "").strip(), list[str]()
    if not path:
        raise BadInput(["study must name the file of a study, such as studies/smoke.yaml"])
    with collecting(faults):
        if ignored := sorted(read_profile(os.environ).keys() - set(CHARGED)):
            print(f"{FILE}: {', '.join(ignored)} without effect on a study: write them into its job", file=sys.stderr)
    refuse(faults)
    return StudyFile.read(path, {key: text for key, text in texts.items() if key != "study"})


def _run(study: StudyFile) -> CommandOutput | Result:
    from paretune.studies.run import run_or_preview

    return run_or_preview(study)


STUDY = Command(read=_read, run=_run, options=StudyOptions, takes_jobs=True, excluded=IN_THE_FILE)
