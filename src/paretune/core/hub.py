"""The address of the Hugging Face Hub, and whether it can be reached."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

_TIMEOUT_S = 5.0
_TRUE = {"1", "ON", "YES", "TRUE"}  # as huggingface_hub reads it
_PROXIES = ("https_proxy", "http_proxy", "all_proxy")


def hub_address(environment: Mapping[str, str]) -> str:
    """Return the address of the Hugging Face Hub: HF_ENDPOINT, or by default the public Hub."""
    return (environment.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def is_offline(environment: Mapping[str, str]) -> bool:
    """Return whether HF_HUB_OFFLINE forbids access to the Hub."""
    return environment.get("HF_HUB_OFFLINE", "").upper() in _TRUE


def accepts_connections(endpoint: str, environment: Mapping[str, str]) -> bool:
    """Return whether the Hub accepts a connection within 5 s; always True behind a proxy.

    Without this check, the Hub's libraries would retry for 30 s before they fail.
    """
    if any(environment.get(name) or environment.get(name.upper()) for name in _PROXIES):
        return True
    with suppress(OSError, ValueError):  # ValueError: the port is not a number
        address = urlsplit(endpoint)
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), timeout=_TIMEOUT_S).close()
        return True
    return False
