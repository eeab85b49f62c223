"""The command `study`: find the Pareto front of a study within its budget, or run the points of a design."""

from functools import partial

from paretune.commands.command import Command, imported_later, read_study
from paretune.specification.parameters import parameter
from paretune.studies.definition.file import IN_THE_FILE, StudyFile


class StudyOptions(StudyFile):
    """The options of the command: its file, and the keys of a study that can be typed."""

    study: str | None = parameter(None, "the study's file, such as studies/smoke.yaml; a shipped one by its name")


COMMAND = Command(
    read=partial(read_study, StudyFile.read),
    run=imported_later("paretune.studies.run:run_or_preview"),
    options=StudyOptions,
    takes_jobs=True,
    hidden=IN_THE_FILE,
)
