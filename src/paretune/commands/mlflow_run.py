"""Any MLflow project as a SageMaker training job: `mlflow run URI --backend sagemaker`, the same job as `train` makes.

MLflow loads this module for every backend; so what launches jobs is imported when this backend runs.
"""

import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from mlflow.entities import SourceType
from mlflow.exceptions import ExecutionException
from mlflow.projects.backend.abstract_backend import AbstractBackend
from mlflow.projects.submitted_run import SubmittedRun
from mlflow.utils.mlflow_tags import MLFLOW_PROJECT_ENTRY_POINT, MLFLOW_SOURCE_NAME, MLFLOW_SOURCE_TYPE

from paretune.core.clock import Interruption
from paretune.core.errors import Interrupted, LostContact, ParetuneError, collecting, refuse
from paretune.core.untrusted import printable
from paretune.launchers.base import JobState
from paretune.specification.job import JobSpec
from paretune.specification.profile import with_profile

if TYPE_CHECKING:
    from paretune.jobs.attempts import Attempts
    from paretune.jobs.outcome import JobOutcome

# Keys that MLflow 3.17 itself adds to the user's (mlflow/projects/utils.py).
_ADDED_BY_MLFLOW = {"ENV_MANAGER", "SYNCHRONOUS", "DOCKER_ARGS", "STORAGE_DIR", "build_image", "docker_auth"}
_SET_BY_MLFLOW_RUN = {"launcher", "project", "entry_point", "project_parameters", "dry_run"}


class SageMakerBackend(AbstractBackend):
    """Runs any MLflow project as a SageMaker training job.

    MLflow waits for a plugin's run only from Python (`synchronous`); its command line does not wait. So that
    `mlflow run` ends as it does on a laptop, a run that the command line has started is waited for when MLflow has
    finished with it, unless the configuration says `"wait": false`.
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
    ) -> SubmittedRun:
        """Start a project's entry point and return at once; the arguments are those of `AbstractBackend`.

        Raises:
            ExecutionException: nothing was started; the message has all reasons.
            KeyboardInterrupt: the job was interrupted and has been stopped.
        """
        try:
            spec, waits, run_id = read_request(
                project_uri, entry_point, params or {}, version, backend_config, os.environ
            )
            submitted = start(spec, experiment_id, run_id)
        except Interrupted as error:
            raise KeyboardInterrupt(str(error)) from error
        except ParetuneError as error:
            raise ExecutionException(str(error)) from error
        context = click.get_current_context(silent=True)  # of the command `mlflow run`, if it has called this
        if waits and context and context.params.get("backend") == "sagemaker":
            context.call_on_close(lambda: follow(submitted))
        return submitted


def read_request(
    uri: str,
    entry_point: str,
    parameters: Mapping[str, str],
    version: str | None,
    configuration: Mapping[str, Any],
    environment: Mapping[str, str],
) -> tuple[JobSpec, bool, str | None]:
    """The job, whether `mlflow run` waits for its end, and the run whose job is followed again in place of another.

    `configuration` has job parameters, `wait` and `run_id`; parameters that it leaves open come from `paretune.toml`.
    Raises BadInput with all faults.
    """
    keys = {name: value for name, value in configuration.items() if name not in _ADDED_BY_MLFLOW and value is not None}
    waits, run_id = keys.pop("wait", True), keys.pop("run_id", None)
    faults = []
    if configuration.get("DOCKER_ARGS") or configuration.get("build_image"):
        faults.append(
            "--docker-args and --build-image mean nothing here: give sagemaker.training_image, an image in ECR"
        )
    if version:
        faults.append("--version means nothing here: clone the project at this version and give its folder")
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
    return spec, waits, run_id


def start(spec: JobSpec, experiment_id: str, run_id: str | None) -> "SageMakerSubmittedRun":
    """Start the job, or adopt the running job of the same command.

    Raises:
        BadInput, BudgetRefused, LaunchRefused: nothing was launched.
        LostContact: a job may have been created, and its run is open.
        Interrupted: nothing runs any more.
    """
    from paretune.jobs.launch import begin_job
    from paretune.jobs.workplace import Workplaces

    workplaces = Workplaces.of_process()
    opened = {"MLFLOW_EXPERIMENT_ID": experiment_id} | ({"MLFLOW_RUN_ID": run_id} if run_id else {})
    workplaces = replace(
        workplaces,
        environment={**workplaces.environment, **opened},
        on_events=lambda events: _tell(*(event.message for event in events)),
    )
    with workplaces.interruption.listening():  # Ctrl-C and SIGTERM take effect between two calls to AWS
        job = begin_job(spec, workplaces.of(spec))
    if not job.record.is_adopted:
        job.record.run.set_tags(
            {
                MLFLOW_SOURCE_TYPE: SourceType.to_string(SourceType.PROJECT),
                MLFLOW_SOURCE_NAME: spec.project,
                MLFLOW_PROJECT_ENTRY_POINT: spec.entry_point,
            }
        )
    _tell(f"{job.document.job_name}: run {job.record.run.run_id}")
    job.record.leave()  # nobody watches it until `wait` is called
    return SageMakerSubmittedRun(job)


class SageMakerSubmittedRun(SubmittedRun):
    """A project's job under way. The first call that sees its end fills its run and says how it ended."""

    def __init__(self, job: "Attempts") -> None:
        super().__init__()
        self._job = job
        self._lock = threading.RLock()  # MLflow's runs may be waited for in threads of their own

    @property
    def run_id(self) -> str:
        """Id of the MLflow run."""
        return self._job.record.run.run_id

    @property
    def job_name(self) -> str:
        """Name of the training job."""
        return self._job.document.job_name

    def wait(self) -> bool:
        """Print the job's output until it ends and fill the run; True if it is Completed. Raises ExecutionException."""
        return self.follow(Interruption())  # which never happens

    def follow(self, interruption: Interruption) -> bool:
        """Like `wait`; an interruption stops the job, or leaves it as `on_interrupt` says, and raises Interrupted."""
        from paretune.jobs.attempts import WATCH_INTERVAL_S

        if self._job.end is None:
            self._job.record.watch()
        try:
            while (end := self._poll()) is None:
                interruption.check()
                self._job.record.workplace.clock.sleep(WATCH_INTERVAL_S)
        except Interrupted as error:
            self._abandon(error)
            raise
        return end.state is JobState.COMPLETED

    def cancel(self) -> None:
        """Stop the job with SIGTERM, wait up to two minutes until SageMaker has stopped it, and fill the run."""
        self._abandon(Interrupted("cancelled"))

    def get_status(self) -> str:
        """MLflow's status of the run, such as RUNNING; fills the run if the job has ended."""
        from paretune.jobs.outcome import RUN_STATUS

        end = self._poll()
        return "RUNNING" if end is None else RUN_STATUS[end.state].value

    def _poll(self) -> "JobOutcome | None":
        """The end of the job; None while it runs."""
        with self._lock:
            was_open = self._job.end is None
            try:
                end = self._job.poll()
            except LostContact as error:
                self._job.record.leave()
                raise ExecutionException(str(error)) from error
            if was_open:
                self._report(end)
            return end

    def _abandon(self, error: Interrupted) -> None:
        from paretune.jobs.launch import leave_or_abandon

        with self._lock:
            if self._job.end is not None:
                return
            _tell(f"{error}: stopping {self.job_name}")
            try:
                leave_or_abandon(self._job, error)
            except LostContact as lost:
                raise ExecutionException(str(lost)) from lost
            self._report(self._job.end)

    def _report(self, end: "JobOutcome | None") -> None:
        """Print what the command has printed, and at the end why the job failed, if it did, and remarks."""
        for line in [] if self._job.current is None else self._job.current.printed():
            # A progress bar returns to the beginning of its line: print its last state.
            print(printable(line.rstrip("\r").rpartition("\r")[2]), flush=True)
        if end is not None:
            _tell("" if end.failure is None else str(end.error()), *end.remarks)


def follow(submitted: SageMakerSubmittedRun) -> None:
    """Wait for a run that the command line has started; ends the process with code 1 if it does not succeed."""
    interruption = Interruption()
    try:
        with interruption.listening():
            succeeded = submitted.follow(interruption)
    except Interrupted as error:
        raise KeyboardInterrupt(str(error)) from error  # MLflow's command line ends as after Ctrl-C
    except ExecutionException as error:
        _tell(str(error))
        sys.exit(1)
    _tell(f"run {submitted.run_id} {'succeeded' if succeeded else 'did not succeed'}")
    if not succeeded:
        sys.exit(1)


def _tell(*sentences: str) -> None:
    """Print sentences on standard error, without control characters for a terminal."""
    for sentence in filter(None, sentences):
        print(printable(f"paretune: {sentence}"), file=sys.stderr, flush=True)
