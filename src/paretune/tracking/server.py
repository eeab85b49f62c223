"""The version of MLflow on the tracking server, and what an older server has no place for.

A server before MLflow 3.0 has runs, artifacts and the model registry, but no LoggedModels. AWS does not upgrade managed
servers, so that versions from 2.13 on stay in use.
"""

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.rest_store import RestStore
from mlflow.utils.rest_utils import http_request
from packaging.version import InvalidVersion, Version

OLDEST = Version("2.13")
"""The oldest server that these commands are tested with."""
LOGGED_MODELS = Version("3.0")
"""The first version that has LoggedModels."""


def server_version(client: MlflowClient) -> Version | None:
    """The version of MLflow on the server, or None if the server does not tell.

    A database or folder has no server, and then it is the version of this process.

    Raises:
        MlflowException: the server does not answer.
    """
    store = client._tracking_client.store
    if not isinstance(store, RestStore):
        return Version(mlflow.__version__)
    answer = http_request(store.get_host_creds(), "/version", "GET")  # type: ignore[no-untyped-call]
    try:
        return Version(answer.text) if answer.status_code == 200 else None
    except InvalidVersion:  # such as a page of HTML
        return None


def missing_on_server(client: MlflowClient, experiment_id: str) -> str:
    """A sentence that names the features that the server lacks; empty if it has all of them.

    Raises:
        MlflowException: the server does not answer.
    """
    version = server_version(client)
    has_models = _finds_models(client, experiment_id) if version is None else version >= LOGGED_MODELS
    return "" if has_models else missing_in(version)


def missing_in(version: Version | None) -> str:
    """The sentence on a server before MLflow 3.0, whose version need not be known."""
    server = "the tracking server" if version is None else f"the tracking server's MLflow {version}"
    return f"{server} keeps no LoggedModels, which need MLflow 3.0: a model is an artifact of its run"


def _finds_models(client: MlflowClient, experiment_id: str) -> bool:
    """Whether the server knows the search for LoggedModels."""
    try:
        client.search_logged_models([experiment_id], max_results=1)
    except MlflowException as error:
        if error.get_http_status_code() != 404:  # type: ignore[no-untyped-call]
            raise
        return False
    return True
