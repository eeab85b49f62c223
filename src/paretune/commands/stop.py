"""The command `stop`: ends the job of a run, with everything booked; see `paretune.jobs.standing`."""

from dataclasses import replace

from paretune.commands.command import RunOptions, command_of, open_store
from paretune.core.result import CommandOutput


def _run(options: RunOptions) -> CommandOutput:
    from paretune.jobs.progress import watched
    from paretune.jobs.standing import find_run, stop

    workplaces, tracking = open_store("stop")
    run = find_run(tracking, options.run.strip())
    with watched(workplaces.interruption) as on_events:
        end = stop(run, replace(workplaces, on_events=on_events).of)
    return CommandOutput(text=f"run {run.run_id}: {end.in_one_line()}", document=end.to_dict())


COMMAND = command_of(RunOptions, _run)
