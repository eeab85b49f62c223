"""Address of the Hugging Face hub, and whether it can be asked."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

_TIMEOUT_S = 5.0
_TRUE = {"1", "ON", "YES", "TRUE"}  # as huggingface_hub reads it


def hub_address(environment: Mapping[str, str]) -> str:
    """The address of the Hugging Face hub."""
    return (environment.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether HF_HUB_OFFLINE forbids to ask the hub."""
    return environment.get("HF_HUB_OFFLINE", "").upper() in _TRUE


def accepts_connections(endpoint: str, environment: Mapping[str, str]) -> bool:
    """Whether a hub can be reached, because its libraries try for half a minute; with a proxy, always."""
    if any(environment.get(name) for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")):
        return True
    address = urlsplit(endpoint)
    port = address.port or (443 if address.scheme == "https" else 80)
    with suppress(OSError):
        socket.create_connection((address.hostname or "", port), timeout=_TIMEOUT_S).close()
        return True
    return False
