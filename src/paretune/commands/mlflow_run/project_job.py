"""Starts the job of a project, or adopts one that is running. Faults are reported before a run is opened."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from json import dumps
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.projects.utils import fetch_and_validate_project, get_or_create_run, load_project
from mlflow.utils.mlflow_tags import MLFLOW_PROJECT_BACKEND

from paretune.commands.mlflow_run.configuration import Configuration, read_configuration, user_keys
from paretune.commands.mlflow_run.submitted_run import SageMakerSubmittedRun, tell
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput, LostContact, collecting, refuse
from paretune.core.interruption import Interruption
from paretune.core.untrusted import without_secrets
from paretune.jobs.adoption import elsewhere, launching_alone, running_project
from paretune.jobs.record import JobRecord
from paretune.jobs.workplace import Workplace, home_of
from paretune.launchers import archive
from paretune.launchers.base import job_name
from paretune.launchers.sagemaker import images
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.pricing.prices import price_remarks
from paretune.projects.collection import Collector
from paretune.projects.environment import Environment, read_environment
from paretune.projects.project import Command, project_payload, read_command
from paretune.specification.container import JobInputs, ProjectPayload
from paretune.tracking import Run, Tracking, schema

_CLOCK: Clock = SystemClock()


@dataclass(frozen=True, kw_only=True)
class ProjectRequest:
    """The arguments that MLflow passes to a backend; `version` is a commit or branch of a project in git."""

    uri: str
    entry_point: str
    parameters: Mapping[str, str]
    version: str | None
    configuration: Mapping[str, Any]
    tracking_uri: str
    experiment_id: str

    def command(self) -> str:
        """The `mlflow run` line that repeats the request from any folder, without passwords in addresses."""
        path, sign, inside = self.uri.partition("#")
        uri = f"{Path(path).resolve()}{sign}{inside}" if Path(path).exists() else self.uri
        words = ["mlflow", "run", uri] + ([] if self.entry_point == "main" else ["-e", self.entry_point])
        words += ["-v", self.version] if self.version else []
        words += [] if self.experiment_id == "0" else ["--experiment-id", self.experiment_id]
        words += ["--env-manager", "local"] if self.configuration.get("ENV_MANAGER") == "local" else []
        keys = {name: value for name, value in user_keys(self.configuration).items() if name not in {"run_id", "force"}}
        words += ["--backend", "sagemaker", "--backend-config", dumps(keys)]
        words += [word for name, text in self.parameters.items() for word in ("-P", f"{name}={text}")]
        return without_secrets(shlex.join(words))


@dataclass(frozen=True, kw_only=True)
class _ProjectJob:
    """A project and a configuration that have been read without faults."""

    root: Path
    configuration: Configuration
    environment: Environment
    command: Command


def start(
    request: ProjectRequest, client: MlflowClient, environment: Mapping[str, str], downloads: Path
) -> tuple[SageMakerSubmittedRun, Configuration]:
    """Start the job of a project, or adopt the running job of the same command.

    Raises:
        BadInput, BudgetRefused, LaunchRefused: nothing was launched.
        LostContact: a job may have been created, and its run is open.
        Interrupted: nothing runs any more.
        MlflowException: MLflow cannot read the project or reach the tracking server.
    """
    job = _read(request, environment, downloads)
    configuration, interruption = job.configuration, Interruption()
    launcher = _launcher(configuration, environment, interruption)
    workplace = _workplace(launcher, environment, interruption)
    with interruption.listening():  # Ctrl-C and SIGTERM take effect between two calls to AWS
        with launching_alone():
            run_id = configuration.run_id or _running_run(request, configuration, environment)
            is_running = run_id is not None and _has_job(run_id, launcher, Tracking(environment, _CLOCK))
            files = {} if is_running else _check(job, launcher, workplace)
            source = (request.uri, request.experiment_id, str(job.root), request.version, request.entry_point)
            run = get_or_create_run(run_id, *source, request.parameters)  # type: ignore[no-untyped-call]  # MLflow
            record = JobRecord(
                configuration.spec,
                workplace,
                run=Run(client, run.info.run_id, _CLOCK),
                collector=Collector(_CLOCK, client),
            )
            if is_running:
                record.adopt()
            else:
                tags = {schema.LOGGING: "collect", schema.COMMAND: request.command()}
                record.describe_project({MLFLOW_PROJECT_BACKEND: "sagemaker", **tags})

        def inputs() -> JobInputs:
            tell(_announcement(run.info.run_id, configuration, launcher))
            return JobInputs(project=_payload(job, files, client.get_experiment(run.info.experiment_id).name))

        submitted = SageMakerSubmittedRun(record, inputs)
        submitted.start()
    return submitted, configuration


def _read(request: ProjectRequest, environment: Mapping[str, str], downloads: Path) -> _ProjectJob:
    """Read project and configuration; raises BadInput with all their faults."""
    source = (request.uri, request.version, request.entry_point, request.parameters)
    root = Path(fetch_and_validate_project(*source))  # type: ignore[no-untyped-call]  # MLflow
    project = load_project(str(root))  # type: ignore[no-untyped-call]  # MLflow
    faults: list[str] = []
    configuration, needs, command = None, None, None
    with collecting(faults):
        configuration = read_configuration(request.configuration, environment)
    with collecting(faults):
        has_image = configuration is not None and configuration.spec.sagemaker.training_image is not None
        needs = Environment() if has_image and project.docker_env else read_environment(project, root)
    with collecting(faults):
        command = read_command(project, request.entry_point, request.parameters, downloads)
    if configuration is None or needs is None or command is None:
        raise BadInput(faults)
    if not configuration.installs:
        needs = Environment(image_uri=needs.image_uri, variables=needs.variables)
    image = configuration.spec.sagemaker.training_image or needs.image_uri
    configuration = replace(configuration, spec=configuration.spec.replace(**{"sagemaker.training_image": image}))
    return _ProjectJob(root=root, configuration=configuration, environment=needs, command=command)


def _launcher(
    configuration: Configuration, environment: Mapping[str, str], interruption: Interruption
) -> SageMakerLauncher:
    return SageMakerLauncher(configuration.spec, _CLOCK, environment, check=interruption.check)


def _workplace(launcher: SageMakerLauncher, environment: Mapping[str, str], interruption: Interruption) -> Workplace:
    return Workplace(
        launcher=launcher,
        home=home_of(environment),
        clock=_CLOCK,
        environment=environment,
        interruption=interruption,
        open_tracking=lambda: Tracking(environment, _CLOCK),
    )


def _running_run(request: ProjectRequest, configuration: Configuration, environment: Mapping[str, str]) -> str | None:
    """The run of the same command whose job runs; None if there is none, or the user wants another job."""
    run = None if configuration.force else running_project(request.command(), Tracking(environment, _CLOCK))
    if run is None:
        return None
    tell(
        f"{job_name(run.run_id, 1)} of this command is already running; watching it, so that nothing is paid twice "
        '("force": true in the backend configuration starts another)'
    )
    return run.run_id


def _has_job(run_id: str, launcher: SageMakerLauncher, tracking: Tracking) -> bool:
    """Whether a run has a job; raises LostContact if the job is in another account or region."""
    name = job_name(run_id, 1)
    if reason := elsewhere(tracking.run(run_id).tags(), launcher):
        raise LostContact(f'{name} cannot be followed from here: {reason} ("force": true starts another)')
    return launcher.attach(name) is not None


def _check(job: _ProjectJob, launcher: SageMakerLauncher, workplace: Workplace) -> dict[str, Path]:
    """Check as a launch would, raising its errors, print notes about it, and return the files that travel."""
    spec, needs, account = job.configuration.spec, job.environment, launcher.account
    price = launcher.price(spec)
    launcher.worst_case_usd(spec)
    workplace.budgets(spec, workplace.attribution(spec)).check()
    faults: list[str] = []
    files: dict[str, Path] = {}
    with collecting(faults):
        launcher.check(spec)
    with collecting(faults):
        files = archive.project_files(job.root)
        if not files:
            faults.append(f"the project in {job.root} has no files that git would not ignore")
    refuse(faults)
    image = images.choose(spec, account.region).uri
    remarks = price_remarks(price, spec.instance_type, account.region, date.today())
    for note in (*needs.notes, python_note(needs.python, image), *remarks):
        if note is not None:
            tell(note)
    return files


def python_note(version: str | None, image_uri: str) -> str | None:
    """Return a note if the image's Python is not the `version` that the project asks for; else None."""
    if version is None:
        return None
    of_image = re.search(r"-py(\d)(\d+)", image_uri)
    of_project = re.search(r"(\d+)\.(\d+)", version)
    if of_image and of_project and of_image.groups() == of_project.groups():
        return None
    has = f"has Python {of_image[1]}.{of_image[2]}" if of_image else "has its own Python"
    return f"the project asks for Python {version}, but the image {has}, which will be used"


def _payload(job: _ProjectJob, files: Mapping[str, Path], experiment: str) -> ProjectPayload:
    """The payload of the job, whose command records into a store inside the job."""
    return project_payload(
        files,
        job.command,
        job.environment,
        document={"experiment": experiment, "max_silence_minutes": job.configuration.spec.max_silence_minutes},
        variables=dict(job.environment.variables),
    )


def _announcement(run_id: str, configuration: Configuration, launcher: SageMakerLauncher) -> str:
    """The job's cluster, its price and its worst case, in one line."""
    spec, price, cost = configuration.spec, launcher.price(configuration.spec), ""
    if price is not None:
        worst = launcher.worst_case_usd(spec)
        cost = f", each {price.stated}"
        cost += "" if worst is None else f", at most {worst:.4g} USD in all"
    cluster = f"{spec.instance_count} x {spec.instance_type} in {launcher.account.region}"
    return f"{job_name(run_id, 1)} on {cluster}{cost}; run {run_id}"
