"""The experimental command `recur`: tonight's run of a recurring training."""

from collections.abc import Mapping

from paretune.commands.command import Command, read_file_argument
from paretune.commands.recur.file import RecurFile, recur_help
from paretune.core.errors import JobFailed
from paretune.core.result import CommandOutput

_EXAMPLE = "examples/nightly.yaml"


def _read(texts: Mapping[str, str], faults: list[str]) -> RecurFile:
    return read_file_argument(RecurFile.read, texts, faults, name="file", kind="recurring training", example=_EXAMPLE)


def _run(file: RecurFile) -> CommandOutput:
    """Run the night; the exit code is that of a failed job if no model of the night meets the floor."""
    from paretune.commands.recur.night import run_night  # MLflow takes a second to import

    night = run_night(file)
    return CommandOutput(
        text=str(night), document=night.to_dict(), exit_code=0 if night.is_met else JobFailed.exit_code
    )


COMMAND = Command(
    read=_read,
    run=_run,
    parameters={"file": f"the recurring training's file, such as {_EXAMPLE}", **recur_help()},
    takes_jobs=True,
    excluded=("dry_run",),
)
