"""The command `recur`: tonight's run of a recurring training."""

from paretune.commands.recur.file import RecurFile
from paretune.commands.recur.night import run_night
from paretune.core.errors import JobFailed
from paretune.core.result import CommandOutput


def run(file: RecurFile) -> CommandOutput:
    """The night's result; the exit code is that of a failed job where no model of the night meets the floor."""
    found = run_night(file)
    return CommandOutput(
        text=str(found), document=found.to_dict(), exit_code=0 if found.is_met else JobFailed.exit_code
    )
