"""The command `train`: one job. `paretune.jobs` does the work."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from paretune.commands.command import Command, read_with_profile
from paretune.core.errors import refuse
from paretune.core.result import CommandOutput, Result
from paretune.specification.declaration import Parameters, parameter
from paretune.specification.inputs import data_faults, missing_files
from paretune.specification.job import JobSpec
from paretune.specification.training_arguments import name_faults
from paretune.user_code.code import script_faults, with_own_options


class TrainOptions(Parameters):
    """The command's own option. The other options are parameters of the job."""

    wait: bool = parameter(True)
    """false: return once the job is created on SageMaker; `paretune sync` completes its record later"""


class TrainRequest(NamedTuple):
    """The job, and whether to wait for its end."""

    spec: JobSpec
    waits: bool


def _read(values: Mapping[str, Any]) -> TrainRequest:
    options, job = ({n: v for n, v in values.items() if (n == "wait") is own} for own in (True, False))
    waits, spec = (
        TrainOptions.read(options).wait,
        JobSpec.read(with_own_options(job, JobSpec.model_fields, listed_by="train")),
    )
    refuse(missing_files(spec.as_text()))
    faults = data_faults(spec)
    if not spec.runs_user_code:
        faults += name_faults(spec.training_arguments, spec.task)
    elif spec.entry_script is not None and not spec.is_simulated:
        faults += script_faults(spec)
    if not waits and not spec.runs_on.files_travel:
        faults.append(
            f"wait=false is for jobs that outlive this command, got launcher={spec.runs_on.name}: leave it out"
        )
    if not waits and spec.register:
        faults.append("register needs the end of the job: leave out wait=false, or register the model later in MLflow")
    refuse(faults)
    return TrainRequest(spec, waits)


def _run(request: TrainRequest) -> CommandOutput | Result:
    from paretune.jobs.launch import launch_here, start_here

    if request.waits or request.spec.dry_run:
        return launch_here(request.spec)
    return start_here(request.spec)


TRAIN = Command(read=partial(read_with_profile, _read), run=_run, options=TrainOptions, takes_jobs=True)
