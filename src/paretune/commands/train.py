"""The command `train`: one job. `paretune.jobs` does the work."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from paretune.commands.command import Command, read_with_profile
from paretune.core.errors import refuse
from paretune.core.result import Result
from paretune.specification.inputs import data_faults, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.training_arguments import name_faults
from paretune.user_code.inputs import script_faults


def _read(values: Mapping[str, Any]) -> JobSpec:
    spec = JobSpec.read(values)
    refuse(missing_files(spec.as_text()))
    faults = data_faults(spec)
    if not spec.runs_user_code:
        faults += name_faults(spec)
    elif spec.entry_script is not None and not spec.is_simulated:
        faults += script_faults(spec)
    refuse(faults)
    return spec


def _run(spec: JobSpec) -> Result:
    from paretune.jobs.launch import launch_here

    return launch_here(spec)


TRAIN = Command(read=partial(read_with_profile, _read), run=_run, takes_jobs=True)
