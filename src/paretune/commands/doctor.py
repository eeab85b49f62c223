"""The command `doctor`: free checks of this machine, the MLflow store and the AWS account.

With `--paid true`, `doctor` then runs a small real job, which shows whether AWS behaves as expected.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from paretune.commands.command import Command, describe_opened_run
from paretune.core.checks import Finding, Verdict, failed, not_checked, passed, run_check
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, ParetuneError, TrackingUnavailable, collecting, first_line, refuse
from paretune.core.packages import missing, pinned, version_of
from paretune.core.result import CommandOutput
from paretune.core.secrets import printable, without_secrets
from paretune.presentation.text import usd
from paretune.specification.declaration import Parameters, parameter
from paretune.specification.job import JobSpec, parameters_affecting
from paretune.specification.launchers import AUTO, known
from paretune.specification.profile import CHARGED, with_profile

if TYPE_CHECKING:
    from paretune.tracking.store import Tracking

_TORCH_TIMEOUT_S = 120.0
_UNNEEDED = "local and simulated jobs do not need AWS"
_PAID_USD = 0.50
_PAID_JOB: Mapping[str, Any] = {
    "instance_type": "ml.m5.large",
    "max_runtime_minutes": 15,
    "max_cost_usd": _PAID_USD,
    "max_train_samples": 64,
    "max_eval_samples": 32,
    "max_seq_length": 32,
    "per_device_train_batch_size": 8,
    "precision": "fp32",
    "sagemaker.keep_alive_minutes": 0,
}
_OF_THE_PAID_JOB = {*parameters_affecting("ownership", without=("stopping",)), *parameters_affecting("data")}
"""Parameters that the paid job takes from the request."""


class DoctorOptions(Parameters):
    """The command's own options. The other options are parameters of a job, and `doctor` checks what that job needs."""

    paid: bool = parameter(False)
    """after the checks, run a small job in your AWS account, for at most 0.50 USD"""


@dataclass(frozen=True, kw_only=True)
class DoctorRequest:
    """The job to check for, and whether to run the paid job."""

    spec: JobSpec  # the job to check for; on SageMaker unless `is_local`
    paid: bool = False
    is_local: bool = False  # whether the launcher is local or simulated, so that AWS is not checked
    names_instances: bool = False  # whether an instance type was given, so that its quota is looked up
    wants_sagemaker: bool = False
    """Whether the user has chosen SageMaker, an instance type or a setting of the AWS account, or requests a paid job.
    Otherwise, missing credentials are not a fault."""

    @classmethod
    def from_text(cls, texts: Mapping[str, str], environment: Mapping[str, str]) -> "DoctorRequest":
        """Return the request that the options and the profile describe. Raises BadInput with all faults."""
        faults, paid, spec, profile = list[str](), False, JobSpec(), dict[str, Any]()
        with collecting(faults):
            paid = DoctorOptions.read({"paid": texts.get("paid", "")}).paid
        typed = {name: text for name, text in texts.items() if name != "paid" and text.strip()}
        is_local = typed.get("launcher") in {"local", "simulated"} or typed.get("instance_type") == "local"
        if is_local and paid:
            faults.append("paid=true launches a job on SageMaker: leave launcher and instance_type out")
        usual = {} if is_local else {"instance_type": "ml.m5.large"}
        is_known = typed.get("launcher", AUTO) in {AUTO, *known()}  # an unknown one stays, so that JobSpec refuses it
        with collecting(faults):  # the launcher decides which settings of the profile have an effect
            here = {"launcher": "sagemaker"} if is_known and not is_local else {}
            profile = with_profile({**typed, **here}, environment)
        with collecting(faults):
            spec = JobSpec.read(usual | (profile or typed))
        refuse(faults)
        account = {"instance_type", *parameters_affecting("ownership", without=("stopping",))} - set(CHARGED)
        wants = paid or typed.get("launcher") == "sagemaker" or bool(account & {*typed, *profile})
        return cls(
            spec=spec,
            paid=paid,
            is_local=is_local,
            names_instances="instance_type" in typed,
            wants_sagemaker=wants and not is_local,
        )


def run_doctor(request: DoctorRequest) -> CommandOutput:
    """Run all checks, then launch the paid job if it is requested and no check failed.

    A failed check raises nothing, but sets the exit code.
    """
    findings = examine(request, dict(os.environ))
    counts = Counter(finding.verdict for finding in findings)
    wrong = counts[Verdict.FAILED]
    listed = [
        {"subject": item.subject, "verdict": item.verdict.value, "text": item.text, "commands": item.commands}
        for item in findings
    ]
    document: dict[str, object] = {"checks": listed, "wrong": wrong, "paid": None}
    lines = [f"{item.verdict.value:<11}  {item.subject:<11}  {' '.join(item.text.split())}" for item in findings]
    summary = f"{counts[Verdict.PASSED]} ok, {wrong} wrong, {counts[Verdict.NOT_CHECKED]} not checked"
    lines += ["", f"{summary}; these checks cost nothing"]
    if request.paid and not wrong:
        from paretune.jobs.launch import launch_here

        print(printable("\n".join(lines)), flush=True)  # now, because the job takes minutes
        result = launch_here(paid_job(request.spec))
        return CommandOutput(text=str(result), document=document | {"paid": result.to_dict()})
    failures = [f"- {item.subject}: {item.text}" for item in findings if item.verdict is Verdict.FAILED]
    with suppress(ParetuneError):  # one of the checks reports that MLflow does not work
        describe_opened_run("doctor", "\n".join([summary, *failures]))
    if request.paid:
        lines.append("paid=true: no job was launched; fix what is wrong first")
    elif not request.is_local:
        lines.append(f"`paretune doctor --paid true` runs a small job in your account, for at most {usd(_PAID_USD)}")
    return CommandOutput(text="\n".join(lines), document=document, exit_code=BadInput.exit_code if wrong else 0)


def paid_job(request: JobSpec) -> JobSpec:
    """Return a small job with the account, the model and the data of the request."""
    given = {name: value for name, value in request.given().items() if name in _OF_THE_PAID_JOB}
    return JobSpec.read({**given, **_PAID_JOB})


def examine(request: DoctorRequest, environment: Mapping[str, str]) -> list[Finding]:
    """Run all checks, those of this machine first, and return their findings. Raises nothing and costs nothing."""
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "environment": lambda: environment_findings(needs_sagemaker=request.wants_sagemaker),
        "torch": lambda: torch_findings(environment),
        "mlflow": lambda: store_findings(environment),
    }
    if not missing("sagemaker"):  # environment_findings reports missing packages
        checks["aws"] = lambda: cloud_findings(request, environment)
    return [finding for subject, check in checks.items() for finding in run_check(subject, check)]


def environment_findings(*, needs_sagemaker: bool = False) -> Iterator[Finding]:
    """Report the versions of Python and paretune, and whether the packages for SageMaker jobs are installed."""
    yield passed("environment", f"Python {sys.version.split()[0]}, paretune {version('paretune')}")
    if reason := missing("sagemaker"):
        find = failed if needs_sagemaker else passed
        yield find("environment", f"jobs on SageMaker are not possible: {reason}")


def torch_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Report the device that PyTorch sees. PyTorch always runs in its own process."""
    if reason := missing("train"):
        yield passed("torch", f"training on this machine is not possible: {reason}")
        return
    process = subprocess.run(
        [sys.executable, "-m", "paretune.training.device"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TORCH_TIMEOUT_S,
        check=False,
        env={**environment, "PYTHONSAFEPATH": "1"},
    )
    if process.returncode == 0:
        yield passed("torch", process.stdout.strip())
    else:
        reason = (process.stderr.strip().splitlines() or ["no message"])[-1]
        command = f"pip install --force-reinstall {pinned(('torch',))[0]}"
        yield failed("torch", f"PyTorch cannot be imported ({reason}): `{command}`")


def store_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check whether the MLflow store accepts what jobs record. A store that does not exist yet is not created."""
    from paretune.tracking.store import Tracking, is_absent_file, require_answer, tracking_uri

    uri = tracking_uri()
    address = without_secrets(uri)
    if uri.startswith("arn:") and not version_of("sagemaker-mlflow"):
        yield failed("mlflow", "an ARN as tracking server needs sagemaker-mlflow: `pip install sagemaker-mlflow`")
        return
    try:
        require_answer(uri)
        if is_absent_file(uri):
            yield passed("mlflow", f"{address} does not exist yet: the first command creates it")
            return
        tracking = Tracking(environment, SystemClock())
    except TrackingUnavailable as error:
        remedy = "`mlflow server --port 5000` starts a server, `unset MLFLOW_TRACKING_URI` uses a file here"
        if "schema" in str(error):
            remedy = f"make a copy, then `mlflow db upgrade {address}`; if a newer MLflow created it, install that one"
        yield failed("mlflow", f"{error}: {remedy}")
        return
    yield from _probe_findings(tracking, address)


def _probe_findings(tracking: "Tracking", address: str) -> Iterator[Finding]:
    """Check whether the store accepts everything that a job records, with a run that is deleted afterwards."""
    from mlflow import MlflowClient
    from mlflow.entities import Dataset, DatasetInput, LoggedModelOutput, Metric, Param, RunTag

    from paretune.tracking.run_writer import trouble

    allow = "jobs need this permission; a managed server grants it with sagemaker-mlflow:*"
    try:
        run_id = tracking.create("paretune doctor").run_id
    except TrackingUnavailable as error:
        yield failed("mlflow", f"{address} does not accept runs (CreateRun): {error}: {allow}")
        return
    client, models = MlflowClient(), list[str]()
    rows = DatasetInput(Dataset("probe", "0", "local", "{}"))

    def model() -> None:
        experiment = client.get_run(run_id).info.experiment_id
        models.append(client.create_logged_model(experiment, "probe", run_id).model_id)
        client.log_outputs(run_id, [LoggedModelOutput(models[0], step=0)])
        client.finalize_logged_model(models[0], "READY")

    steps: dict[str, Callable[[], object]] = {
        "tags (LogBatch)": lambda: client.log_batch(run_id, tags=[RunTag("probe", "1")]),
        "parameters (LogBatch)": lambda: client.log_batch(run_id, params=[Param("probe", "1")]),
        "metrics (LogBatch)": lambda: client.log_batch(run_id, metrics=[Metric("probe", 1.0, 0, 0)]),
        "data sets (LogInputs)": lambda: client.log_inputs(run_id, [rows]),
        "files (artifacts)": lambda: client.log_text(run_id, "probe", "probe.txt"),
        "models (CreateLoggedModel, LogOutputs, FinalizeLoggedModel)": model,
        "ends of runs (UpdateRun)": lambda: client.set_terminated(run_id),
    }
    refused = False
    for what, step in steps.items():
        try:
            step()
        except trouble() as error:
            refused = True
            yield failed("mlflow", f"{address} does not accept {what}: {first_line(error)}: {allow}")
    if not refused:
        yield passed("mlflow", f"{address} answers, and accepts everything that a job records")
    try:
        for model_id in models:
            client.delete_logged_model(model_id)
        client.delete_run(run_id)
    except trouble() as error:
        yield not_checked("mlflow", f"the run {run_id} of this check could not be deleted: {first_line(error)}")


def cloud_findings(request: DoctorRequest, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check region and credentials and, if these are valid, also role, bucket and permissions.

    Quotas are checked if an instance type was given, a training plan if the job uses one, and the security groups of
    a VPC if the job has several instances.
    """
    if request.is_local:
        yield passed("aws", f"not checked: {_UNNEEDED}")
        return
    from paretune.launchers.sagemaker import account_checks as aws  # imports boto3
    from paretune.launchers.sagemaker.account import Account, has_credentials

    if not request.wants_sagemaker and not has_credentials():
        more = "`paretune doctor --launcher sagemaker` checks more"
        yield passed("aws", f"no credentials were found: {_UNNEEDED}; {more}")
        return
    subject, spec = "region", request.spec
    settings, count = spec.sagemaker, spec.instance_count
    checks: dict[str, Callable[[Account], Iterator[Finding]]] = {
        aws.ROLE: partial(aws.role_findings, spec.role),
        aws.BUCKET: partial(aws.bucket_findings, settings.s3_bucket),
        aws.PERMISSIONS: partial(aws.permission_findings, spec),
    }
    if request.names_instances:
        checks[aws.QUOTAS] = partial(aws.quota_findings, spec)
    if settings.training_plan:
        checks[aws.TRAINING_PLAN] = partial(aws.plan_findings, settings.training_plan, spec.instance_type, count)
    if count > 1 and settings.security_group_ids:
        checks[aws.NETWORK] = partial(aws.network_findings, settings.security_group_ids, count)
    try:
        account = Account(spec.region, environment)
        yield passed("region", account.region)
        subject = "credentials"
        identity = account.identity
    except ParetuneError as error:
        yield failed(subject, f"{error} ({_UNNEEDED})")
        yield from (not_checked(later, f"needs {subject} first") for later in checks)
        return
    yield passed("credentials", f"{identity['Arn']} in account {identity['Account']}")
    for subject, check in checks.items():
        yield from run_check(subject, partial(check, account))


DOCTOR = Command(
    read=lambda texts: DoctorRequest.from_text(texts, os.environ),
    run=run_doctor,
    options=DoctorOptions,
    takes_jobs=True,
)
