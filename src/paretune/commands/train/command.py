"""The command `train`: one job."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from paretune.commands.command import Command, imported_later, read_with_profile
from paretune.core.errors import refuse
from paretune.specification.inputs import data_faults, missing_files
from paretune.specification.job import JobSpec


def _read(values: Mapping[str, Any]) -> JobSpec:
    """The job, its files looked at before anything heavy is imported."""
    spec = JobSpec.read(values)
    refuse(missing_files(spec.as_text()) or data_faults(spec))
    return spec


COMMAND = Command(
    read=partial(read_with_profile, _read), run=imported_later("paretune.jobs.launch:launch_here"), takes_jobs=True
)
