"""From a project and a configuration to a running job. What can be refused is refused before a run is opened."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Experiment
from mlflow.projects.utils import fetch_and_validate_project, get_or_create_run, load_project

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, LaunchRefused
from paretune.jobs.recording import job_name
from paretune.launchers.sagemaker import images
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.aws_errors import AWS_ERRORS, explain
from paretune.launchers.sagemaker.preflight import account_faults
from paretune.launchers.sagemaker.staging import Staging
from paretune.mlflow_backend.command import Command, read_command
from paretune.mlflow_backend.configuration import Configuration, read_configuration
from paretune.mlflow_backend.direct_logging import may_be_reached, tracking_environment
from paretune.mlflow_backend.environment import Environment, mentions_mlflow, python_note, read_environment
from paretune.mlflow_backend.jobs import ProjectJob, shared_poller
from paretune.mlflow_backend.orders import ProjectJobOrder, create, find, image_of, project_files
from paretune.mlflow_backend.recording import ProjectRecord
from paretune.mlflow_backend.submitted import SageMakerSubmittedRun, tell
from paretune.pricing.budget import admit
from paretune.pricing.prices import Price, PriceList, price_remarks


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What MLflow hands to a backend.

    Attributes:
        uri: of the project, as MLflow takes it.
        entry_point: its name.
        parameters: for the entry point.
        version: commit or branch of a project in git.
        configuration: the backend configuration, with MLflow's own keys in it.
        tracking_uri: where the run is recorded.
        experiment_id: where the run belongs.
    """

    uri: str
    entry_point: str
    parameters: Mapping[str, str]
    version: str | None
    configuration: Mapping[str, Any]
    tracking_uri: str
    experiment_id: str


@dataclass(frozen=True, kw_only=True)
class _Read:
    """What was asked for and what the project asks for, read and found to make sense."""

    root: Path
    configuration: Configuration
    needs: Environment
    command: Command


def launch(
    asked: Asked, client: MlflowClient, environment: Mapping[str, str], downloads: Path
) -> tuple[SageMakerSubmittedRun, Configuration]:
    """Start a project, or take up the job of a run that has been started before.

    Args:
        asked: by MLflow.
        client: of the tracking server.
        environment: this process's own.
        downloads: where MLflow puts files that a parameter of type path names elsewhere.

    Raises:
        BadInput, BudgetRefused, LaunchRefused: nothing was launched.
        MlflowException: MLflow cannot read the project or reach the tracking server.
    """
    read = _read(asked, environment, downloads)
    spec, run_id = read.configuration.spec, read.configuration.run_id
    account = Account(spec, environment)
    found = find(job_name(run_id, 1), account) if run_id is not None else None
    price = PriceList.read(environment).price(spec.instance_type, account.region)
    files = _check(read, account, price) if found is None else {}
    run = get_or_create_run(  # type: ignore[no-untyped-call]  # MLflow
        run_id,
        asked.uri,
        asked.experiment_id,
        str(read.root),
        asked.version,
        asked.entry_point,
        asked.parameters,
    )
    clock = SystemClock()
    record = ProjectRecord(run.info.run_id, spec, price, client, clock)
    direct = _is_direct(read.configuration.logging, asked.tracking_uri)
    if found is None:
        experiment = client.get_experiment(run.info.experiment_id)
        order = _order(asked, read, files, run.info.run_id, experiment, environment, direct=direct)
        found = _create(order, record, account, price)
    job = ProjectJob(
        job_name(run.info.run_id, 1),
        account,
        Staging(account.client("s3"), account.bucket),
        shared_poller(account, environment, clock),
        clock,
        found,
    )
    submitted = SageMakerSubmittedRun(job, record, account, client, clock, collects=not direct)
    return submitted, read.configuration


def _read(asked: Asked, environment: Mapping[str, str], downloads: Path) -> _Read:
    """Project and configuration.

    Raises:
        BadInput: all their faults, at once.
    """
    what = (asked.uri, asked.version, asked.entry_point, asked.parameters)
    root = Path(fetch_and_validate_project(*what))  # type: ignore[no-untyped-call]  # MLflow
    project = load_project(str(root))  # type: ignore[no-untyped-call]  # MLflow
    faults: list[str] = []
    configuration, needs, command = None, None, None
    try:
        configuration = read_configuration(asked.configuration, environment)
    except BadInput as error:
        faults += error.faults
    try:
        given = configuration is not None and configuration.spec.image_uri is not None
        needs = Environment() if given and project.docker_env else read_environment(project, root)
    except BadInput as error:
        faults += error.faults
    try:
        command = read_command(project, asked.entry_point, asked.parameters, downloads)
    except BadInput as error:
        faults += error.faults
    if configuration is None or needs is None or command is None:
        raise BadInput(faults)
    if not configuration.installs:
        needs = Environment(image_uri=needs.image_uri, variables=needs.variables)
    return _Read(root=root, configuration=configuration, needs=needs, command=command)


def _check(read: _Read, account: Account, price: Price | None) -> dict[str, Path]:
    """The files that travel, when nothing stands against the job.

    Raises:
        BadInput, BudgetRefused, LaunchRefused: something does.
    """
    spec, needs = read.configuration.spec, read.needs
    admit(spec, price)
    faults = images.faults(spec.replace(image_uri=spec.image_uri or needs.image_uri), account.region)
    faults += account_faults(spec, account)
    files: dict[str, Path] = {}
    try:
        files = project_files(read.root)
    except BadInput as error:
        faults += error.faults
    if faults:
        raise BadInput(faults)
    remarks = price_remarks(price, spec.instance_type, account.region, date.today())
    for note in (*needs.notes, python_note(needs.python, image_of(spec, needs, account.region)), *remarks):
        if note is not None:
            tell(note)
    return files


def _is_direct(logging: str, tracking_uri: str) -> bool:
    return may_be_reached(tracking_uri) if logging == "auto" else logging == "direct"


def _order(
    asked: Asked,
    read: _Read,
    files: Mapping[str, Path],
    run_id: str,
    experiment: Experiment,
    environment: Mapping[str, str],
    *,
    direct: bool,
) -> ProjectJobOrder:
    variables = {}
    if direct:
        variables = tracking_environment(asked.tracking_uri, run_id, experiment.experiment_id, environment)
    return ProjectJobOrder(
        spec=read.configuration.spec,
        files=files,
        command=read.command,
        environment=_with_plugin(read.needs, asked.tracking_uri, files) if direct else read.needs,
        run_id=run_id,
        experiment=experiment.name,
        variables=variables,
        collect=not direct,
    )


def _create(
    order: ProjectJobOrder, record: ProjectRecord, account: Account, price: Price | None
) -> Mapping[str, Any] | None:
    """Create the job; what SageMaker says of it when it was there already.

    Raises:
        BadInput, LaunchRefused: it could not be created, and its run says why.
    """
    record.begin(order.job_name, {"region": account.region, "bucket": account.bucket}, collect=order.collect)
    tell(_announcement(order, account, price))
    try:
        return None if create(order, account) else find(order.job_name, account)
    except AWS_ERRORS as error:
        refusal = LaunchRefused(explain(error, "prepare the training job"))
        record.refuse(str(refusal))
        raise refusal from error
    except BaseException as error:  # Ctrl-C during the upload, too: a run without a job must not stay open
        record.refuse(str(error) or type(error).__name__)
        raise


def _with_plugin(needs: Environment, tracking_uri: str, files: Mapping[str, Path]) -> Environment:
    """With the plugin that SageMaker's own tracking server needs, where the project uses MLflow at all."""
    if not tracking_uri.startswith("arn:") or not mentions_mlflow(needs.requirements, files.values()):
        return needs
    return replace(needs, requirements=(*needs.requirements, "sagemaker-mlflow"))


def _announcement(order: ProjectJobOrder, account: Account, price: Price | None) -> str:
    spec, cost = order.spec, ""
    if price is not None:
        cost = f", {price.usd_per_hour:g} USD an hour each, at most {admit(spec, price):.4g} USD in all"
    where = f"{spec.instance_count} x {spec.instance_type} in {account.region}"
    return f"{order.job_name} on {where}{cost}; run {order.run_id}"
