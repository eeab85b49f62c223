"""From a project and a configuration to a running job. What can be refused is refused before a run is opened."""

import ipaddress
import re
import shlex
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from json import dumps
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.projects.utils import fetch_and_validate_project, get_or_create_run, load_project
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.mlflow_tags import MLFLOW_PROJECT_BACKEND

from paretune.commands.mlflow_run.configuration import Configuration, read_configuration, user_keys
from paretune.commands.mlflow_run.submitted_run import SageMakerSubmittedRun, tell
from paretune.core.clock import Clock, SystemClock
from paretune.core.errors import BadInput, LostContact, collecting
from paretune.core.interruption import Interruption
from paretune.jobs.adoption import elsewhere, unwatched_project
from paretune.jobs.record import JobRecord, collect_nothing
from paretune.jobs.workplace import Workplace, home_of
from paretune.launchers.base import job_name
from paretune.launchers.sagemaker import archive, images
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.polling import Poller
from paretune.launchers.sagemaker.queue.launcher import launcher_class
from paretune.launchers.sagemaker.request import tracking_environment
from paretune.pricing.prices import price_remarks
from paretune.projects.collection import Collector
from paretune.projects.environment import Environment, mentions_mlflow, python_note, read_environment
from paretune.projects.payload import project_payload
from paretune.projects.project import Command, read_command
from paretune.specification.container import JobInputs, ProjectPayload
from paretune.tracking import Run, Tracking, schema, without_password

_CLOCK: Clock = SystemClock()
_pollers: dict[tuple[str, ...], Poller] = {}


@dataclass(frozen=True, kw_only=True)
class ProjectRequest:
    """What MLflow hands to a backend.

    Attributes:
        version: commit or branch of a project in git.
    """

    uri: str
    entry_point: str
    parameters: Mapping[str, str]
    version: str | None
    configuration: Mapping[str, Any]
    tracking_uri: str
    experiment_id: str

    def command(self) -> str:
        """The `mlflow run` line that repeats it, from any folder; passwords in addresses left out."""
        path, sign, inside = self.uri.partition("#")
        uri = f"{Path(path).resolve()}{sign}{inside}" if Path(path).exists() else self.uri
        words = ["mlflow", "run", uri] + ([] if self.entry_point == "main" else ["-e", self.entry_point])
        words += ["-v", self.version] if self.version else []
        words += [] if self.experiment_id == "0" else ["--experiment-id", self.experiment_id]
        words += ["--env-manager", "local"] if self.configuration.get("ENV_MANAGER") == "local" else []
        keys = {name: value for name, value in user_keys(self.configuration).items() if name not in {"run_id", "again"}}
        words += ["--backend", "sagemaker", "--backend-config", dumps(keys)]
        words += [word for name, text in self.parameters.items() for word in ("-P", f"{name}={text}")]
        return without_password(shlex.join(words))


@dataclass(frozen=True, kw_only=True)
class _Project:
    """What was asked for and what the project asks for, read and found to make sense."""

    root: Path
    configuration: Configuration
    needs: Environment
    command: Command


def start(
    request: ProjectRequest, client: MlflowClient, environment: Mapping[str, str], downloads: Path
) -> tuple[SageMakerSubmittedRun, Configuration]:
    """Start a project, or take up the job of a run that has been started before.

    Raises:
        BadInput, BudgetRefused, LaunchRefused: nothing was launched.
        LostContact: a job may have been created, and its run is open.
        Interrupted: nothing runs any more.
        MlflowException: MLflow cannot read the project or reach the tracking server.
    """
    project = _read(request, environment, downloads)
    configuration, interruption = project.configuration, Interruption()
    launcher = _launcher(configuration, environment, interruption)
    run_id = configuration.run_id or _former_run(request, configuration, environment)
    is_there = run_id is not None and _is_there(run_id, launcher, Tracking(environment, _CLOCK))
    workplace = Workplace(
        launcher=launcher,
        home=home_of(environment),
        clock=_CLOCK,
        environment=environment,
        interruption=interruption,
        open_tracking=lambda: Tracking(environment, _CLOCK),
    )
    files = {} if is_there else _check(project, launcher, workplace)
    with interruption.listening():  # Ctrl-C and SIGTERM take effect between two calls to AWS
        what = (request.uri, request.experiment_id, str(project.root))
        run = get_or_create_run(  # type: ignore[no-untyped-call]  # MLflow
            run_id, *what, request.version, request.entry_point, request.parameters
        )
        logging = configuration.logging
        direct = may_be_reached(request.tracking_uri) if logging == "auto" else logging == "direct"
        record = JobRecord(
            configuration.spec,
            workplace,
            run=Run(client, run.info.run_id, _CLOCK),
            collect=collect_nothing if direct else Collector(_CLOCK, client),
        )
        tags = {schema.LOGGING: "direct" if direct else "collect", schema.COMMAND: request.command()}
        record.adopt() if is_there else record.describe_project({MLFLOW_PROJECT_BACKEND: "sagemaker", **tags})

        def inputs() -> JobInputs:
            tell(_announcement(run.info.run_id, configuration, launcher))
            info, variables = run.info, None
            if direct:
                variables = tracking_environment(request.tracking_uri, info.run_id, environment)
                variables["MLFLOW_EXPERIMENT_ID"] = info.experiment_id
            experiment = client.get_experiment(info.experiment_id).name
            return JobInputs(project=_payload(project, files, info.run_id, experiment, variables))

        submitted = SageMakerSubmittedRun(record, inputs)
        submitted.start()
    return submitted, configuration


def _is_there(run_id: str, launcher: SageMakerLauncher, tracking: Tracking) -> bool:
    """Whether a run has a job; LostContact where that lies where the launcher does not look."""
    name = job_name(run_id, 1)
    if place := elsewhere(tracking.run(run_id).tags(), launcher):
        raise LostContact(f'{name} cannot be followed from here: {place} ("again": true starts another)')
    return launcher.attach(name) is not None


def _former_run(request: ProjectRequest, configuration: Configuration, environment: Mapping[str, str]) -> str | None:
    """The run of the same command whose job runs unwatched; None where there is none, or another is asked for."""
    former = None if configuration.again else unwatched_project(request.command(), Tracking(environment, _CLOCK))
    if former is None:
        return None
    tell(
        f"{job_name(former.run_id, 1)}: this command has started it before, and nobody watches it; watching it, so "
        'that nothing is paid twice ("again": true in the backend configuration starts another)'
    )
    return former.run_id


def _launcher(
    configuration: Configuration, environment: Mapping[str, str], interruption: Interruption
) -> SageMakerLauncher:
    """The launcher of the account; all runs of this process share a poller for each identity and region."""
    account = Account(configuration.spec, environment)
    names = ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL")
    key = (account.region, *(environment.get(name, "") for name in names))
    poller = _pollers.setdefault(key, Poller(account, _CLOCK))
    return launcher_class(configuration.spec)(
        configuration.spec, _CLOCK, environment, poller=poller, runs_projects=True, check=interruption.check
    )


def _read(request: ProjectRequest, environment: Mapping[str, str], downloads: Path) -> _Project:
    """Project and configuration.

    Raises:
        BadInput: all their faults, at once.
    """
    what = (request.uri, request.version, request.entry_point, request.parameters)
    root = Path(fetch_and_validate_project(*what))  # type: ignore[no-untyped-call]  # MLflow
    project = load_project(str(root))  # type: ignore[no-untyped-call]  # MLflow
    faults: list[str] = []
    configuration, needs, command = None, None, None
    with collecting(faults):
        configuration = read_configuration(request.configuration, environment)
    with collecting(faults):
        given = configuration is not None and configuration.spec.image_uri is not None
        needs = Environment() if given and project.docker_env else read_environment(project, root)
    with collecting(faults):
        command = read_command(project, request.entry_point, request.parameters, downloads)
    if configuration is None or needs is None or command is None:
        raise BadInput(faults)
    if not configuration.installs:
        needs = Environment(image_uri=needs.image_uri, variables=needs.variables)
    image = configuration.spec.image_uri or needs.image_uri
    configuration = replace(configuration, spec=configuration.spec.replace(image_uri=image))
    return _Project(root=root, configuration=configuration, needs=needs, command=command)


def _check(project: _Project, launcher: SageMakerLauncher, workplace: Workplace) -> dict[str, Path]:
    """The files that travel, when nothing stands against the job.

    Raises:
        BadInput, BudgetRefused, LaunchRefused: something does.
    """
    spec, needs, account = project.configuration.spec, project.needs, launcher.account
    price = launcher.price(spec)
    launcher.most_usd(spec)
    workplace.budgets(spec, workplace.attribution(spec)).check()
    faults: list[str] = []
    files: dict[str, Path] = {}
    with collecting(faults):
        launcher.check(spec)
    with collecting(faults):
        files = archive.project_files(project.root)
        if not files:
            faults.append(f"the project in {project.root} has no files that git would not ignore")
    if faults:
        raise BadInput(faults)
    image = images.choose(spec, account.region, direct=False).uri
    remarks = price_remarks(price, spec.instance_type, account.region, date.today())
    for note in (*needs.notes, python_note(needs.python, image), *remarks):
        if note is not None:
            tell(note)
    return files


def _payload(
    project: _Project, files: Mapping[str, Path], run_id: str, experiment: str, direct: Mapping[str, str] | None
) -> ProjectPayload:
    """What travels into the job and runs there.

    `direct` names the tracking server in variables; without them the command records into a store in the job.
    """
    requirements = [*project.needs.requirements]
    on_sagemaker = direct is not None and direct["MLFLOW_TRACKING_URI"].startswith("arn:")
    if on_sagemaker and mentions_mlflow(requirements, files.values()):
        requirements.append("sagemaker-mlflow")  # SageMaker's own tracking server needs this plugin
    return project_payload(
        files,
        project.command,
        replace(project.needs, requirements=tuple(requirements)),
        document={
            "run_id": run_id,
            "experiment": experiment,
            "collect": direct is None,
            "max_silence_minutes": project.configuration.spec.max_silence_minutes,
        },
        variables=dict(project.needs.variables) | dict(direct or {}),
    )


def _announcement(run_id: str, configuration: Configuration, launcher: SageMakerLauncher) -> str:
    spec, price, cost = configuration.spec, launcher.price(configuration.spec), ""
    if price is not None:
        worst = launcher.most_usd(spec)
        cost = f", {price.usd_per_hour:g} USD an hour each"
        cost += "" if worst is None else f", at most {worst:.4g} USD in all"
    where = f"{spec.instance_count} x {spec.instance_type} in {launcher.account.region}"
    return f"{job_name(run_id, 1)} on {where}{cost}; run {run_id}"


def default_addresses(host: str) -> list[str]:
    """The addresses that a host name has here; empty where it has none."""
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None)]
    except OSError:
        return []


def may_be_reached(tracking_uri: str, addresses: Callable[[str], list[str]] = default_addresses) -> bool:
    """Whether a job may write to this tracking server without being told a secret.

    A SageMaker managed one: yes, with the role of the job. A public web address: yes, unless it needs a password or a
    certificate. A file, a database, this machine or a private network: no.
    """
    if re.match(r"arn:aws[\w-]*:sagemaker:", tracking_uri):
        return True
    address = urlsplit(tracking_uri)
    if address.scheme not in {"http", "https"} or not address.hostname:
        return False
    has_password = address.username or address.password or without_password(tracking_uri) != tracking_uri
    if has_password or _needs_a_secret(tracking_uri):
        return False
    try:
        found = [address.hostname] if ipaddress.ip_address(address.hostname) else []
    except ValueError:
        found = addresses(address.hostname)
    return bool(found) and all(ipaddress.ip_address(entry.partition("%")[0]).is_global for entry in found)


def _needs_a_secret(tracking_uri: str) -> bool:
    known = get_default_host_creds(tracking_uri)  # type: ignore[no-untyped-call]  # MLflow
    secrets = (known.username, known.password, known.token, known.auth, known.client_cert_path, known.aws_sigv4)
    return any(secrets) or bool(known.ignore_tls_verification or known.server_cert_path)
