"""The command `logs`: what the job of a run prints, while it runs and after its end; see `paretune.jobs.standing`."""

from paretune.commands.command import RunOptions, command_of, open_store
from paretune.core.result import CommandOutput
from paretune.core.untrusted import printable
from paretune.specification.parameters import parameter


class LogsOptions(RunOptions):
    """The options of the command."""

    follow: bool = parameter(False)
    """print new lines until the job has ended; Ctrl-C leaves the job alone"""
    lines: int = parameter(50, ge=1, le=1000)
    """the last lines that are printed"""


def _run(options: LogsOptions) -> CommandOutput:
    from paretune.jobs.standing import find_run, followed, lines_of

    workplaces, tracking = open_store("logs")
    run = find_run(tracking, options.run.strip())
    if options.follow:
        with workplaces.interruption.listening():
            for line in followed(run, workplaces.of, workplaces.interruption, options.lines):
                print(printable(line), flush=True)
        return CommandOutput(text="", document={"run_id": run.run_id})
    lines, location = lines_of(run, workplaces.of, options.lines)
    text = "\n".join(lines) or f"it has printed nothing yet; its log is at {location}"
    return CommandOutput(text=text, document={"run_id": run.run_id, "lines": lines, "log_location": location})


COMMAND = command_of(LogsOptions, _run)
