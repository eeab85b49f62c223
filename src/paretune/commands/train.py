"""The command `train`: one job. `paretune.jobs` does the work."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from paretune.commands.command import Command, read_with_profile
from paretune.core.errors import refuse
from paretune.core.result import Result
from paretune.specification.inputs import data_faults, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.script_arguments import argument_faults


def _read(values: Mapping[str, Any]) -> JobSpec:
    spec = JobSpec.read(values)
    is_script = spec.entry_script is not None and not spec.is_simulated
    refuse(missing_files(spec.as_text()) or data_faults(spec) or (argument_faults(spec) if is_script else []))
    return spec


def _run(spec: JobSpec) -> Result:
    from paretune.jobs.launch import launch_here

    return launch_here(spec)


TRAIN = Command(read=partial(read_with_profile, _read), run=_run, takes_jobs=True)
