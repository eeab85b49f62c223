"""The command `train`: one job. `paretune.jobs` does the work."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from paretune.commands.command import Command, read_with_profile
from paretune.core.errors import refuse
from paretune.core.result import Result
from paretune.specification.inputs import data_faults, missing_files
from paretune.specification.job import JobSpec


def _read(values: Mapping[str, Any]) -> JobSpec:
    spec = JobSpec.read(values)
    refuse(missing_files(spec.as_text()) or data_faults(spec))
    return spec


def _run(spec: JobSpec) -> Result:
    from paretune.jobs.launch import launch_here

    return launch_here(spec)


TRAIN = Command(read=partial(read_with_profile, _read), run=_run, takes_jobs=True)
