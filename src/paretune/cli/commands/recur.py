"""The command `recur`: tonight's run of a recurring training."""

from paretune.cli.output.answer import Answer
from paretune.core.errors import JobFailed
from paretune.studies.recurring.file import RecurFile
from paretune.studies.recurring.night import run_night


def run(file: RecurFile) -> Answer:
    """The night's result; the exit code is that of a failed job where no model of the night meets the floor."""
    found = run_night(file)
    return Answer(text=str(found), document=found.to_dict(), exit_code=0 if found.is_met else JobFailed.exit_code)
