"""Whether a job may write to the tracking server itself, and with which settings. No secret travels."""

import ipaddress
import re
import socket
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from mlflow.utils.credentials import get_default_host_creds

from paretune.tracking import without_password


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

    Args:
        tracking_uri: as MLflow has it.
        addresses: host name to its addresses.
    """
    if re.match(r"arn:aws[\w-]*:sagemaker:", tracking_uri):
        return True
    address = urlsplit(tracking_uri)
    if (
        address.scheme not in {"http", "https"}
        or not address.hostname
        or without_password(tracking_uri) != tracking_uri
    ):
        return False
    if address.username or address.password or _needs_a_secret(tracking_uri):
        return False
    try:
        found = [address.hostname] if ipaddress.ip_address(address.hostname) else []
    except ValueError:
        found = addresses(address.hostname)
    return bool(found) and all(ipaddress.ip_address(entry.partition("%")[0]).is_global for entry in found)


def tracking_environment(tracking_uri: str, run_id: str, experiment_id: str, here: Mapping[str, str]) -> dict[str, str]:
    """Environment of a job that writes to the tracking server itself."""
    variables = {
        "MLFLOW_TRACKING_URI": tracking_uri,
        "MLFLOW_RUN_ID": run_id,
        "MLFLOW_EXPERIMENT_ID": experiment_id,
    }
    endpoint = here.get("SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT")
    return variables | ({"SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": endpoint} if endpoint else {})


def _needs_a_secret(tracking_uri: str) -> bool:
    """Whether MLflow needs more than the address here: a password, a token, a signature, a certificate of its own."""
    known = get_default_host_creds(tracking_uri)  # type: ignore[no-untyped-call]  # MLflow
    secrets = (known.username, known.password, known.token, known.auth, known.client_cert_path, known.aws_sigv4)
    return any(secrets) or bool(known.ignore_tls_verification or known.server_cert_path)
