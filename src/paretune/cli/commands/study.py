"""The command `study`: find the front for the fewest dollars, within the budget."""

from paretune.studies.definition.file import StudyFile
from paretune.studies.results.answer import StudyResult
from paretune.studies.run import run_study_file


def run(file: StudyFile) -> StudyResult:
    """Run the study, or go on with it; several processes may, on one storage."""
    return run_study_file(file)
