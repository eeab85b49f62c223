"""The command `train`: one job. `paretune.jobs` does the work."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from paretune.commands.command import Command, names_of, read_with_profile
from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.reading import LARGEST_SETTINGS, is_file, read_text
from paretune.core.result import CommandOutput, Result
from paretune.core.shell import command_line, options
from paretune.estimating.workload import BUNDLED_ROWS
from paretune.specification.container import JobInputs
from paretune.specification.declaration import Parameters, parameter
from paretune.specification.inputs import data_faults, missing_files, model_faults
from paretune.specification.job import JobSpec
from paretune.specification.training_arguments import name_faults
from paretune.user_code.inputs import naming_both, script_faults, with_own_options


class TrainOptions(Parameters):
    """The command's own option. The other options are parameters of the job."""

    wait: bool = parameter(True)
    """false: return once the job is created on SageMaker; `paretune sync` completes its record later"""


class TrainRequest(NamedTuple):
    """The job, and whether to wait for its end."""

    spec: JobSpec
    waits: bool


def _read(values: Mapping[str, Any]) -> TrainRequest:
    if not values and "MLFLOW_RUN_ID" not in os.environ and not _is_clone(Path.cwd()):
        raise BadInput([_untold()])
    # A script's own --wait: ours is true or false.
    idle = {name for name in ("wait",) if str(values.get(name, "true")) not in ("true", "false", "")}
    ours = names_of(JobSpec, TrainOptions)
    job = with_own_options(values, ours, listed_by="train", idle=idle)
    waits = TrainOptions.read({name: job.pop(name) for name in ("wait",) if name in job}).wait
    faults = list[str]()
    with collecting(faults):
        spec = JobSpec.read(job)
    refuse(naming_both(faults, job, ours))
    refuse(missing_files(spec.as_text()))
    faults = list[str]()
    if not spec.runs_user_code:
        faults += data_faults(spec.data_arguments) + name_faults(spec.training_arguments, spec.task)
    elif spec.entry_script is not None and not spec.is_simulated:
        faults += script_faults(spec.code_request)
    if not waits and not spec.runs_on.files_travel:
        faults.append(
            f"wait=false is for jobs that outlive this command, got launcher={spec.runs_on.name}: leave it out"
        )
    if not waits and spec.register:
        faults.append("register needs the end of the job: leave out wait=false, or register the model later in MLflow")
    refuse(faults)
    refuse([] if spec.runs_user_code or spec.is_simulated else model_faults(spec.model))
    return TrainRequest(spec, waits)


def _is_clone(folder: Path) -> bool:
    """Return whether a folder is a clone of paretune."""
    project = folder / "MLproject"
    return is_file(project) and read_text(project, LARGEST_SETTINGS).startswith("name: paretune\n")


def _untold() -> str:
    """Say what a job without any parameter would train, for how long, and what to type."""
    from paretune.estimating.forecast import Forecast

    spec = JobSpec()
    rows, _, _ = BUNDLED_ROWS[spec.dataset]
    estimate = Forecast(None).of(spec, JobInputs(), lambda _: None)
    takes = "" if estimate is None else f", which takes an idle machine {estimate.sentence().partition(';')[0]}"
    what = f"{spec.model} on {rows:,} rows of {spec.dataset}, on this machine{takes}"
    example, own = options(dataset=spec.dataset), options(dataset="reviews.csv")
    return (
        f"train without a parameter would fine-tune {what}: add {example} to do that, {own} for your own rows, or "
        f"{options(model='MODEL')}; a script is named after train, and `{command_line('demo')}` shows a whole study"
    )


def _run(request: TrainRequest) -> CommandOutput | Result:
    from paretune.jobs.launch import launch_here, start_here

    if request.waits or request.spec.dry_run:
        return launch_here(request.spec)
    return start_here(request.spec)


TRAIN = Command(read=partial(read_with_profile, _read), run=_run, options=TrainOptions, takes_jobs=True)
