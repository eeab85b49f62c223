"""The command `main`: one job."""

from functools import partial

from paretune.commands.command import Command, read_with_profile
from paretune.core.result import Result
from paretune.specification.job import JobSpec


def _run(spec: JobSpec) -> Result:
    from paretune.jobs.launch import launch_here  # MLflow takes a second to import

    return launch_here(spec)


COMMAND = Command(read=partial(read_with_profile, JobSpec.from_text), run=_run, takes_jobs=True)
