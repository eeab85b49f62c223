"""From the arguments of `mlflow run --backend sagemaker` to a job with the parameter `project`, started or adopted."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlflow.entities import SourceType
from mlflow.utils.mlflow_tags import MLFLOW_PROJECT_ENTRY_POINT, MLFLOW_SOURCE_NAME, MLFLOW_SOURCE_TYPE

from paretune.commands.mlflow_run.submitted_run import SageMakerSubmittedRun, show, tell
from paretune.core.errors import collecting, refuse
from paretune.jobs.launch import begin_job
from paretune.jobs.workplace import Workplaces
from paretune.specification.job import JobSpec
from paretune.specification.profile import with_profile

# Keys that MLflow 3.17 itself adds to the user's (mlflow/projects/utils.py).
_ADDED_BY_MLFLOW = {"ENV_MANAGER", "SYNCHRONOUS", "DOCKER_ARGS", "STORAGE_DIR", "build_image", "docker_auth"}
_SET_BY_MLFLOW_RUN = {"launcher", "project", "entry_point", "project_parameters", "dry_run"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments that MLflow passes to a backend, checked."""

    spec: JobSpec
    waits: bool  # whether `mlflow run` waits for the end; from Python, `synchronous` decides
    run_id: str | None  # a run whose job is followed again instead of starting one


def read_request(
    uri: str,
    entry_point: str,
    parameters: Mapping[str, str],
    version: str | None,
    configuration: Mapping[str, Any],
    environment: Mapping[str, str],
) -> Request:
    """The request for a job; `configuration` has job parameters, `wait` and `run_id`. Raises BadInput with all faults.

    Parameters that it leaves open come from `paretune.toml`.
    """
    keys = {name: value for name, value in configuration.items() if name not in _ADDED_BY_MLFLOW and value is not None}
    waits, run_id = keys.pop("wait", True), keys.pop("run_id", None)
    faults = [
        f"{option} means nothing on SageMaker: {instead}"
        for option, is_given, instead in (
            ("--docker-args", configuration.get("DOCKER_ARGS"), "give an image in ECR as sagemaker.training_image"),
            ("--build-image", configuration.get("build_image"), "give an image in ECR as sagemaker.training_image"),
            ("--version", version, "clone the project at this version and give its folder"),
        )
        if is_given
    ]
    faults += [f"{name} is set by `mlflow run`: leave it out" for name in keys if name in _SET_BY_MLFLOW_RUN]
    if not isinstance(waits, bool):
        faults.append(f"wait must be true or false, got {waits!r}")
    if not isinstance(run_id, str | None):
        faults.append(f"run_id must be a text, got {run_id!r}")
    path, sign, inside = uri.partition("#")
    values = {
        **keys,
        "launcher": "sagemaker",
        "project": f"{Path(path).resolve()}{sign}{inside}" if Path(path).exists() else uri,
        "entry_point": entry_point,
        "project_parameters": dict(parameters),
    }
    with collecting(faults):
        spec = JobSpec.read(with_profile(values, environment))
    refuse(faults)
    return Request(spec=spec, waits=waits, run_id=run_id)


def start(request: Request, experiment_id: str) -> SageMakerSubmittedRun:
    """Start the job of a request, or adopt the running job of the same command.

    Raises:
        BadInput, BudgetRefused, LaunchRefused: nothing was launched.
        LostContact: a job may have been created, and its run is open.
        Interrupted: nothing runs any more.
    """
    workplaces = Workplaces.of_process()
    opened = {"MLFLOW_EXPERIMENT_ID": experiment_id} | ({"MLFLOW_RUN_ID": request.run_id} if request.run_id else {})
    workplaces = replace(workplaces, environment={**workplaces.environment, **opened})
    with workplaces.interruption.listening():  # Ctrl-C and SIGTERM take effect between two calls to AWS
        job = begin_job(request.spec, workplaces.of(request.spec), show)
    if not job.record.is_adopted:
        job.record.run.set_tags(
            {
                MLFLOW_SOURCE_TYPE: SourceType.to_string(SourceType.PROJECT),
                MLFLOW_SOURCE_NAME: request.spec.project,
                MLFLOW_PROJECT_ENTRY_POINT: request.spec.entry_point,
            }
        )
    tell(f"{job.document.job_name}: run {job.record.run.run_id}")
    job.record.leave()  # nobody watches it until `wait` is called
    return SageMakerSubmittedRun(job)
