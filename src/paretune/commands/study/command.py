"""The command `study`: find the Pareto front of a study within its budget."""

from collections.abc import Mapping

from paretune.commands.command import Command, help_lines, imported_later, read_file_argument, switches_of
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.rules import StudyTerms

_EXAMPLE = "studies/smoke.yaml"


def _read(texts: Mapping[str, str], faults: list[str]) -> StudyFile:
    return read_file_argument(StudyFile.read, texts, faults, name="study", kind="study", example=_EXAMPLE)


COMMAND = Command(
    read=_read,
    run=imported_later("paretune.studies.run:run_study_file"),
    parameters={"study": f"the study's file, such as {_EXAMPLE}", **help_lines(StudyTerms)},
    switches=switches_of(StudyTerms),
    takes_jobs=True,
    excluded=("dry_run",),
)
