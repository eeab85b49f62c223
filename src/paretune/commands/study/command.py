"""The command `study`: find the Pareto front of a study within its budget."""

from collections.abc import Mapping

from paretune.commands.command import Command, help_lines, read_file_argument, switches_of
from paretune.core.result import Result
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.rules import StudyTerms

_EXAMPLE = "studies/smoke.yaml"


def _read(texts: Mapping[str, str], faults: list[str]) -> StudyFile:
    return read_file_argument(StudyFile.read, texts, faults, name="study", kind="study", example=_EXAMPLE)


def _run(file: StudyFile) -> Result:
    from paretune.studies.run import run_study_file  # MLflow takes a second to import

    return run_study_file(file)


COMMAND = Command(
    read=_read,
    run=_run,
    parameters={"study": f"the study's file, such as {_EXAMPLE}", **help_lines(StudyTerms)},
    switches=switches_of(StudyTerms),
    takes_jobs=True,
    excluded=("dry_run",),
)
