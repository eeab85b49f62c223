"""The command `status`: the jobs that run now, what they cost so far and at worst; see `paretune.jobs.standing`."""

from paretune.commands.command import command_of, open_store
from paretune.core.result import CommandOutput
from paretune.specification.parameters import Parameters


def _run(_: Parameters) -> CommandOutput:
    from paretune.jobs.standing import standing
    from paretune.presentation.text import aligned, duration, plain

    workplaces, tracking = open_store("status")
    jobs = standing(tracking, workplaces.of)
    columns = {
        "run": [job.run_id[:8] for job in jobs],
        "job": [job.title[:50] for job in jobs],
        "on": [job.where for job in jobs],
        "state": [job.state for job in jobs],
        "since": [duration(job.since_s) for job in jobs],
        "USD so far": ["" if job.cost_usd is None else plain(job.cost_usd, 3) for job in jobs],
        "at worst": ["" if job.worst_usd is None else plain(job.worst_usd, 3) for job in jobs],
        "of": [job.owner for job in jobs],
    }
    remarks = [f"{job.run_id[:8]}: {job.remark}" for job in jobs if job.remark]
    text = "\n".join([aligned(columns), *remarks]) if jobs else "no job runs"
    return CommandOutput(text=text, document={"running": [job.row() for job in jobs]})


COMMAND = command_of(Parameters, _run)
