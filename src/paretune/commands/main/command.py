"""The command `main`: one job."""

from functools import partial

from paretune.commands.command import Command, imported_later, read_with_profile
from paretune.specification.job import JobSpec

COMMAND = Command(
    read=partial(read_with_profile, JobSpec.read),
    run=imported_later("paretune.jobs.launch:launch_here"),
    takes_jobs=True,
)
