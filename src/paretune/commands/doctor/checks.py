"""Checks of this machine, its budgets, the MLflow store and the AWS account; none costs anything."""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import requires, version

from packaging.requirements import Requirement

from paretune.commands.doctor import DoctorRequest
from paretune.core.checks import Finding, failed, not_checked, passed, run_check
from paretune.core.clock import SystemClock
from paretune.core.commands import command_line
from paretune.core.errors import ParetuneError, TrackingUnavailable
from paretune.core.packages import pinned, sagemaker_is_missing, training_is_missing, version_of
from paretune.core.untrusted import without_secrets
from paretune.jobs.workplace import budget_ledger_of
from paretune.launchers.notice import destination, send
from paretune.specification.profile import NOTIFY, OWN_FILE, notify_address

_OLDEST_SERVER = "3.1"  # the oldest server that these commands are tested with
_TORCH_TIMEOUT_S = 120.0
_UNNEEDED = "local and simulated jobs need nothing of AWS"


def environment_findings(*, needs_sagemaker: bool = False) -> Iterator[Finding]:
    """Whether the packages that paretune requires are installed, in versions within its ranges."""
    required = [item for item in map(Requirement, requires("paretune") or []) if item.marker is None]
    installed = {item.name: version_of(item.name) for item in required}
    wrong = [
        item
        for item in required
        if not item.specifier.contains(installed[item.name].partition("+")[0] or "0", prereleases=True)
    ]
    if wrong:
        versions = ", ".join(f"{item.name} is {installed[item.name] or 'absent'}" for item in wrong)
        command = f"pip install {' '.join(shlex.quote(str(item)) for item in wrong)}"
        yield failed("environment", f"packages must have versions that paretune requires, but {versions}: `{command}`")
    else:
        python = f"Python {sys.version.split()[0]}, paretune {version('paretune')}"
        yield passed("environment", f"{python}, {len(required)} packages in versions that it works with")
    if reason := sagemaker_is_missing():
        find = failed if needs_sagemaker else passed
        yield find("environment", f"without jobs on SageMaker: {reason}")


def torch_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """The device that PyTorch sees; PyTorch always runs in a process of its own."""
    if missing := training_is_missing():
        yield passed("torch", f"without what trains on this machine; for that, {missing}")
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
        reason = (process.stderr.strip().splitlines() or ["no reason"])[-1]
        command = f"pip install --force-reinstall {pinned(('torch',))[0]}"
        yield failed("torch", f"PyTorch cannot be imported ({reason}): `{command}`")


def budget_findings(path: str | None, environment: Mapping[str, str], now: float) -> Iterator[Finding]:
    """Yield the real dollars left of each budget this month; nothing if no file of budgets is named.

    Raises:
        BadInput: the file has faults, or its storage does not answer.
        BudgetRefused: another database has the accounts of this month.
    """
    if path is None:
        return
    ledger = budget_ledger_of(path, environment)
    ledger.check_storage(now, "measured")
    for standing in ledger.statuses(now, "measured"):
        balance, name = standing.balance, standing.budget.name
        tags = ", ".join(f"{tag}={text}" for tag, text in standing.budget.tags.items()) or "every job"
        status = f"{standing.sentence()}; {balance.spent_usd:.2f} spent, {balance.committed_usd:.2f} promised; {tags}"
        if standing.left_usd > 0:
            yield passed("budgets", status)
        else:
            more = f"raise usd_per_month of {name} in {path}, or wait for the next month (UTC)"
            no_job = f"no job of it can be launched; `{command_line('sync')}` books what has ended, or {more}"
            yield failed("budgets", f"{status}: {no_job}")


def notice_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Whether a line arrives where `notify` of the user's own file says; nothing if it says nothing."""
    if address := notify_address(environment):
        where = destination(address)
        problem = send("paretune: a test line of `paretune doctor`", environment)
        mend = f"mend {NOTIFY} in {environment.get('PARETUNE_PROFILE') or OWN_FILE}, or take it out"
        if problem:
            yield failed(NOTIFY, f"no line reaches {where}: {problem}; {mend}")
        else:
            yield passed(NOTIFY, f"a test line was sent to {where}")


def store_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the MLflow store can be used; one that is not there yet is not made."""
    from paretune.tracking import Tracking, is_absent_file, require_answer, tracking_uri

    uri = tracking_uri()
    address = without_secrets(uri)
    if uri.startswith("arn:") and not version_of("sagemaker-mlflow"):
        yield failed("mlflow", "an ARN as tracking server needs sagemaker-mlflow: `pip install sagemaker-mlflow`")
        return
    try:
        require_answer(uri)
        if is_absent_file(uri):
            yield passed("mlflow", f"{address} is not there yet: the first command makes it")
            return
        Tracking(environment, SystemClock())
        yield passed("mlflow", f"{address} answers")
    except TrackingUnavailable as error:
        remedy = "`mlflow server --port 5000` starts a server, `unset MLFLOW_TRACKING_URI` uses a file here"
        if "schema" in str(error):
            remedy = f"make a copy, then `mlflow db upgrade {address}`; if a newer MLflow has made it, install that one"
        yield failed("mlflow", f"{error}: {remedy}")
        return
    if uri.startswith(("http", "arn:")):
        yield _server_finding()


def _server_finding() -> Finding:
    """Whether the version of the server is one that the client can talk to."""
    from mlflow import MlflowClient
    from mlflow.utils.rest_utils import http_request
    from packaging.version import InvalidVersion, Version

    here = Version(version("mlflow"))
    credentials = MlflowClient()._tracking_client.store.get_host_creds()  # MLflow has no public way to ask
    answer = http_request(credentials, "/version", "GET")  # type: ignore[no-untyped-call]
    try:
        server = Version(answer.text)
    except InvalidVersion:  # such as one behind a page of HTML
        return not_checked("mlflow", f"the server does not tell its version; the client is {here}")
    if Version(_OLDEST_SERVER) <= server and server.major <= here.major:
        return passed("mlflow", f"server {server}, client {here}")
    must = f"the server must have MLflow {_OLDEST_SERVER} or newer, and no newer major version than the client"
    mend = f"on the server's machine `pip install mlflow=={here}` and `mlflow db upgrade DATABASE`, then start it again"
    return failed("mlflow", f"{must}, got server {server} and client {here}: {mend}")


def cloud_findings(request: DoctorRequest, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Region, identity, and then role, bucket and quotas if the credentials are valid."""
    if request.is_local:
        yield passed("aws", f"not checked: {_UNNEEDED}")
        return
    from paretune.launchers.sagemaker import account as aws  # imports boto3

    if not request.wants_sagemaker and not aws.has_credentials():
        more = "`paretune doctor --launcher sagemaker` checks more"
        yield passed("aws", f"no credentials are found: {_UNNEEDED}; {more}")
        return
    subject, spec = "region", request.spec
    try:
        account = aws.Account(spec, environment)
        yield passed("region", account.region)
        subject = "credentials"
        identity = account.identity
    except ParetuneError as error:
        yield failed(subject, f"{error} ({_UNNEEDED})")
        for later in (aws.ROLE, aws.BUCKET, aws.QUOTAS):
            yield not_checked(later, f"needs {subject} first")
        return
    yield passed("credentials", f"{identity['Arn']} in account {identity['Account']}")
    yield from run_check(aws.ROLE, lambda: aws.role_findings(account))
    yield from run_check(aws.BUCKET, lambda: aws.bucket_findings(account))
    yield from run_check(aws.QUOTAS, lambda: aws.quota_findings(spec, account))
