"""The command `sync`: collect jobs that have ended, follow jobs that still run. `paretune.jobs` does the work."""

from dataclasses import replace

from paretune.commands.command import command_of, open_store
from paretune.core.result import CommandOutput
from paretune.specification.parameters import Parameters


def _run(_: Parameters) -> CommandOutput:
    from paretune.jobs.progress import watched
    from paretune.jobs.sync import Sync

    workplaces, tracking = open_store("sync")
    with watched(workplaces.interruption) as on_events:
        of = replace(workplaces, on_events=on_events).of
        jobs = Sync(workplace_of=of, tracking=tracking, interruption=workplaces.interruption).run()
    lines = [str(job.result) for job in jobs if job.result is not None]
    lines += [f"run {job.run_id}: {job.remark}" for job in jobs if job.remark]
    runs = [
        {"run_id": job.run_id, "remark": job.remark or None, "result": job.result and job.result.to_dict()}
        for job in jobs
    ]
    return CommandOutput(text="\n".join(lines) or "nothing to do: no run is unfinished", document={"runs": runs})


COMMAND = command_of(Parameters, _run)
