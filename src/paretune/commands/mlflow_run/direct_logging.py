"""Whether a job may write to the tracking server itself, instead of having its records copied at its end."""

import ipaddress
import re
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

from mlflow.utils.credentials import get_default_host_creds

from paretune.core.untrusted import without_secrets


def resolve(host: str) -> list[str]:
    """The IP addresses of a host name; empty if it has none."""
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None)]
    except OSError:
        return []


def can_log_directly(tracking_uri: str, addresses: Callable[[str], list[str]] = resolve) -> bool:
    """Whether a job can write to this tracking server without a secret.

    It can write to a SageMaker managed server, with the role of the job, and to a public web address, unless that needs
    a password or a certificate. It cannot write to a file, a database, this machine or a private network.
    """
    if re.match(r"arn:aws[\w-]*:sagemaker:", tracking_uri):
        return True
    url = urlsplit(tracking_uri)
    if url.scheme not in {"http", "https"} or not url.hostname:
        return False
    has_password = url.username or url.password or without_secrets(tracking_uri) != tracking_uri
    if has_password or _needs_secret(tracking_uri):
        return False
    try:
        ips = [ipaddress.ip_address(url.hostname)]
    except ValueError:
        ips = [ipaddress.ip_address(address.partition("%")[0]) for address in addresses(url.hostname)]
    return bool(ips) and all(ip.is_global for ip in ips)


def _needs_secret(tracking_uri: str) -> bool:
    credentials = get_default_host_creds(tracking_uri)  # type: ignore[no-untyped-call]  # MLflow
    secrets = (
        *(credentials.username, credentials.password, credentials.token, credentials.auth),
        *(credentials.client_cert_path, credentials.aws_sigv4),
        *(credentials.ignore_tls_verification, credentials.server_cert_path),
    )
    return any(secrets)
