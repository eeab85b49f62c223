"""`mlflow run PROJECT --backend sagemaker`: runs an MLflow project as the same SageMaker job that `train` launches.

MLflow finds `SageMakerBackend` by its entry point `sagemaker` in the group `mlflow.project_backend`.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from mlflow.exceptions import ExecutionException
from mlflow.projects.backend.abstract_backend import AbstractBackend
from mlflow.projects.submitted_run import SubmittedRun
from mlflow.utils.mlflow_tags import MLFLOW_PROJECT_ENTRY_POINT, MLFLOW_SOURCE_NAME, MLFLOW_SOURCE_TYPE

from paretune.core.errors import BadInput, Interrupted, JobFailed, ParetuneError, refuse
from paretune.jobs.attempts import Attempts
from paretune.jobs.launch import begin_job, finish_job
from paretune.jobs.outcome import RUN_STATUS
from paretune.jobs.terminal import ProgressPrinter, say_on_stderr
from paretune.jobs.workplace import Workplaces
from paretune.specification.job import JobSpec
from paretune.specification.profile import with_profile
from paretune.user_code.project import read_project

_NAME = "sagemaker"
_OF_MLFLOW = {"ENV_MANAGER", "SYNCHRONOUS", "DOCKER_ARGS", "STORAGE_DIR", "build_image", "docker_auth"}
"""Keys that MLflow adds to the configuration (mlflow/projects/utils.py, 3.17)."""
_SET_BY_MLFLOW_RUN = ("project", "entry_point", "training_arguments", "launcher")
_OUR_PROJECT, _OUR_TRAINING = "paretune", ("main", "train")


class SageMakerBackend(AbstractBackend):
    """Runs MLflow projects as SageMaker training jobs.

    MLflow's command line does not wait for the runs of a plug-in. So `run` registers `end_command`, which waits for the
    job when MLflow's command is about to exit. `mlflow run` then ends when the job has ended, as with local projects.
    """

    def run(
        self,
        project_uri: str,
        entry_point: str,
        params: Mapping[str, str] | None,
        version: str | None,
        backend_config: Mapping[str, Any],
        tracking_uri: str,
        experiment_id: str,
    ) -> "SubmittedJob":
        """Start the job of an entry point, or follow an identical job; the arguments are those of `AbstractBackend`.

        `backend_config` has parameters of the job, such as instance_type. Raises ExecutionException if the job is
        refused; the message says why.
        """
        with _errors_of_mlflow():
            spec = job_of(project_uri, entry_point, params or {}, version, backend_config)
            # The job gets its own run, even if this process was itself started by `mlflow run`.
            environment = {name: text for name, text in os.environ.items() if name != "MLFLOW_RUN_ID"}
            environment |= {"MLFLOW_EXPERIMENT_ID": experiment_id}
            workplaces = replace(Workplaces.of_process(), environment=environment, on_events=ProgressPrinter())
            with workplaces.interruption.listening():
                job = begin_job(spec, workplaces.of(spec))
        tags = {MLFLOW_SOURCE_NAME: project_uri, MLFLOW_SOURCE_TYPE: "PROJECT", MLFLOW_PROJECT_ENTRY_POINT: entry_point}
        job.record.run.set_tags(tags)
        submitted = SubmittedJob(job)
        command = click.get_current_context(silent=True)
        if command is not None and command.params.get("backend") == _NAME:
            command.call_on_close(submitted.end_command)
        return submitted


def job_of(
    uri: str, entry_point: str, parameters: Mapping[str, str], version: str | None, configuration: Mapping[str, Any]
) -> JobSpec:
    """Return the specification of the job that `mlflow run` asks for. Raises BadInput.

    For paretune's own project, the job is the same as that of `paretune train`: the project's parameters are parameters
    of the job.
    """
    given = {name: value for name, value in configuration.items() if name not in _OF_MLFLOW}
    faults = [f"{name} is set by `mlflow run`: leave it out" for name in _SET_BY_MLFLOW_RUN if name in given]
    if version:
        faults.append("--version has no effect here: clone the project at this version and give its folder")
    if configuration.get("DOCKER_ARGS") or configuration.get("build_image"):
        faults.append("--docker-args and --build-image have no effect here: set sagemaker.training_image")
    refuse(faults)
    path, sign, inside = uri.partition("#")
    uri = f"{Path(path).resolve()}{sign}{inside}" if Path(path).exists() else uri
    job = {"project": uri, "entry_point": entry_point, "training_arguments": dict(parameters)}
    if read_project(uri)[0].name == _OUR_PROJECT:
        if entry_point not in _OUR_TRAINING:
            raise BadInput([f"{entry_point} does not launch a training job: run it without --backend"])
        job = dict(parameters)
    spec = JobSpec.read(with_profile({**given, **job, "launcher": _NAME}, os.environ))
    if spec.dry_run:
        raise BadInput([f"`mlflow run` has no dry run: use `{spec.command()}`"])
    return spec


class SubmittedJob(SubmittedRun):
    """The running job of an MLflow project."""

    def __init__(self, job: Attempts) -> None:
        super().__init__()
        self._job = job

    @property
    def run_id(self) -> str:
        """Id of the MLflow run."""
        return self._job.record.run.run_id

    def wait(self) -> bool:
        """Follow the job to its end, complete its run, and return whether there is a result.

        Ctrl-C stops the job, unless another process also watches it.
        """
        workplace = self._job.record.workplace
        with _errors_of_mlflow(), workplace.interruption.listening():
            try:
                say_on_stderr(str(finish_job(self._job)))
            except JobFailed as error:
                say_on_stderr(f"paretune: {error}")
                return False
            return True

    def get_status(self) -> str:
        """Return MLflow's status of the run, such as RUNNING. If the job has ended, complete the run first."""
        with _errors_of_mlflow():
            end = self._job.poll()
        return "RUNNING" if end is None else RUN_STATUS[end.state]

    def cancel(self) -> None:
        """Stop the job, wait until it has stopped, and complete its run.

        If another process also watches the job, the job continues, and KeyboardInterrupt is raised.
        """
        with _errors_of_mlflow():
            if self._job.outcome is None:
                self._job.leave(Interrupted("cancelled"))

    def end_command(self) -> None:
        """Wait for the job, and exit with code 1 if the job has no result."""
        try:
            succeeded = self.wait()
        except ExecutionException as error:
            say_on_stderr(f"paretune: {error}")
            succeeded = False
        if not succeeded:
            sys.exit(1)


@contextmanager
def _errors_of_mlflow() -> Iterator[None]:
    """Raise paretune's errors as the exceptions that MLflow expects."""
    try:
        yield
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from error
    except ParetuneError as error:
        raise ExecutionException(str(error)) from error
