"""Whether the MLflow server or store can be used, without changing anything in it."""

import os
import sqlite3
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import mlflow
from mlflow import MlflowClient
from mlflow.store.db.utils import (  # MLflow has no public way to ask
    _get_latest_schema_revision,
    _get_schema_version,
    create_sqlalchemy_engine,
)
from mlflow.utils.rest_utils import http_request
from packaging.version import InvalidVersion, Version

from paretune.core.checks import Finding, failed, not_checked, passed
from paretune.core.errors import TrackingUnavailable, first_line
from paretune.core.untrusted import without_secrets
from paretune.storage.address import file_fault
from paretune.tracking.run import TROUBLE
from paretune.tracking.store import give_up_early, require_answer, silence_arn_warnings, sqlite_file, tracking_uri

MLFLOW = "mlflow"
_LOCK_TIMEOUT_S = 5.0
_OLDEST = Version("3.1")  # the oldest server that these commands are tested with
_PLUGIN = "sagemaker-mlflow"  # speaks to SageMaker managed MLflow, whose address is an ARN
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


def store_findings() -> list[Finding]:
    """Whether the store that MLflow's settings name can be reached, has this version's tables, and can be written."""
    give_up_early()
    silence_arn_warnings()
    uri = tracking_uri()
    try:
        if uri.startswith(_DATABASES):
            return list(_database_findings(uri))
        if uri.startswith("arn:"):
            return list(_managed_findings(uri))
        require_answer(uri)
        if not uri.startswith("http"):  # a folder of files, the default of MLflow 3.1, has no server
            return [_answer(uri)]
        return [*_version_findings(), _answer(uri)]
    except TrackingUnavailable as error:
        return [
            failed(
                MLFLOW,
                f"{error}: `mlflow server --port 5000` starts one, `unset MLFLOW_TRACKING_URI` uses a file here",
            )
        ]
    except TROUBLE as error:
        reason = without_secrets(first_line(error))  # MLflow's text may contain the password of the address
        return [
            failed(
                MLFLOW,
                f"the MLflow store at {without_secrets(uri)} cannot be used ({reason}): check MLFLOW_TRACKING_URI and "
                "its credentials, or `unset MLFLOW_TRACKING_URI` for a store in this folder",
            )
        ]


def _answer(uri: str) -> Finding:
    """The finding of asking the store one question."""
    MlflowClient().search_experiments(max_results=1)
    return passed(MLFLOW, f"{without_secrets(uri)} answers")


def _managed_findings(uri: str) -> Iterator[Finding]:
    try:
        plugin = version(_PLUGIN)
    except PackageNotFoundError:
        yield failed(MLFLOW, f"an ARN as tracking server needs {_PLUGIN}: `pip install {_PLUGIN}`")
        return
    yield _answer(uri)
    yield passed(MLFLOW, f"SageMaker managed, with {_PLUGIN} {plugin}: jobs write their curves to it themselves")
    yield from _version_findings()


def _version_findings() -> Iterator[Finding]:
    """Whether client and server understand each other."""
    server, here = _server_version(), Version(mlflow.__version__)
    if server is None:
        yield not_checked(MLFLOW, f"the server does not tell its version; the client is {here}")
    elif server < _OLDEST or server.major > here.major:
        yield failed(
            MLFLOW,
            f"the server must have MLflow {_OLDEST} or newer, and no newer major version than the client, got server "
            f"{server} and client {here}: on the server's machine `pip install mlflow=={here}` and `mlflow db upgrade "
            "DATABASE`, then start it again",
        )
    else:
        yield passed(MLFLOW, f"server {server}, client {here}")


def _server_version() -> Version | None:
    """The version of MLflow on the server; None if it does not tell, such as one behind a page of HTML."""
    credentials = MlflowClient()._tracking_client.store.get_host_creds()
    answer = http_request(credentials, "/version", "GET")  # type: ignore[no-untyped-call]
    try:
        return Version(answer.text) if answer.status_code == 200 else None
    except InvalidVersion:
        return None


def _database_findings(uri: str) -> Iterator[Finding]:
    """Whether a database has the tables of this version of MLflow, and whether a SQLite file can be written."""
    address = without_secrets(uri)
    if uri.startswith("sqlite"):
        path = sqlite_file(uri) or Path()
        fault = _write_fault(path)
        if fault:
            yield failed(MLFLOW, fault)
            return
        if not path.exists():
            yield passed(MLFLOW, f"{address} is not there yet: the first command creates it")
            return
    engine = create_sqlalchemy_engine(uri)  # type: ignore[no-untyped-call]
    try:
        current, latest = _get_schema_version(engine), _get_latest_schema_revision()  # type: ignore[no-untyped-call]
    finally:
        engine.dispose()
    if current is None:
        yield passed(MLFLOW, f"{address} has no tables of MLflow yet: the first command creates them")
    elif current != latest:
        yield failed(
            MLFLOW,
            f"tables of {address} must have version {latest} for MLflow {mlflow.__version__}, got {current}: make a "
            f"copy, then `mlflow db upgrade {address}`; if a newer MLflow has made them, install that one",
        )
    else:
        yield passed(MLFLOW, f"{address} can be used: tables of MLflow {mlflow.__version__}")


def _write_fault(path: Path) -> str:
    """The reason why a SQLite file cannot be written, or not be made; empty where it can."""
    folder = path.parent
    if not path.exists():
        if path.is_symlink():
            return f"{file_fault(path)}: `unlink {path}`" if file_fault(path) else ""
        if folder.is_dir() and os.access(folder, os.W_OK):
            return ""
        return f"{folder} must be a folder that can be written to, for {path.name}: `mkdir -p {folder}`"
    if not path.is_file():
        return f"{file_fault(path)}: `unset MLFLOW_TRACKING_URI` uses a file here"
    try:
        connection = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        finally:
            connection.close()
    except sqlite3.Error as error:
        if "locked" in str(error):
            return f"{path} has been locked for {_LOCK_TIMEOUT_S:g} s: `fuser {path}` shows which process writes to it"
        return f"{path} must be a SQLite file that can be written to ({error}): `chmod u+w {path}`, or move it away"
    return ""
