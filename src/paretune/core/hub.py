"""The address of the Hugging Face Hub, and whether it can be reached."""

from collections.abc import Mapping
from contextlib import suppress

from paretune.core.connection import connect

_TRUE = {"1", "ON", "YES", "TRUE"}  # as huggingface_hub reads it


def hub_address(environment: Mapping[str, str]) -> str:
    """Return the address of the Hugging Face Hub: HF_ENDPOINT, or by default the public Hub."""
    return (environment.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def is_offline(environment: Mapping[str, str]) -> bool:
    """Return whether HF_HUB_OFFLINE forbids access to the Hub."""
    return environment.get("HF_HUB_OFFLINE", "").upper() in _TRUE


def accepts_connections(endpoint: str) -> bool:
    """Return whether the Hub accepts a connection; always True behind a proxy.

    Without this check, the Hub's libraries would retry for 30 s before they fail.
    """
    with suppress(OSError, ValueError):
        connect(endpoint)
        return True
    return False
