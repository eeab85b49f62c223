"""The address of the Hugging Face Hub, whether it can be reached, and why it does not have a model or data set."""

import os
from collections.abc import Mapping
from contextlib import suppress

from paretune.core.connection import connect
from paretune.core.errors import causes, first_line

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


def hub_fault(name: str) -> str:
    """Return why the Hub does not provide a model, and no cache here has it; "" if one of them does.

    This takes less than a second of CPU time, where the libraries that load the model need ten.
    """
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        return ""
    file, endpoint = "config.json", hub_address(os.environ)
    with suppress(Exception):  # several libraries raise here
        hf_hub_download(name, file, endpoint=endpoint, local_files_only=True)
        return ""
    try:
        hf_hub_download(
            name,
            file,
            endpoint=endpoint,
            token=os.environ.get("HF_TOKEN"),
            local_files_only=is_offline(os.environ) or not accepts_connections(endpoint),
        )
    except Exception as error:
        return explain("model", name, error)
    return ""


def explain(kind: str, name: str, error: BaseException) -> str:
    """Return a sentence that explains why the model or dataset (`kind`) `name` could not be loaded."""
    names = {type(link).__name__ for link in causes(error)}
    address, offline = hub_address(os.environ), is_offline(os.environ)
    if "GatedRepoError" in names:
        return f"{kind} {name} needs an access token whose owner has accepted the terms: log in with `hf auth login`"
    if names & {"RepositoryNotFoundError", "DatasetNotFoundError"} and not offline:
        return f"{kind} {name} is neither a local path nor on the hub at {address}: check the spelling"
    no_answer = {"ConnectionError", "ConnectError", "ConnectTimeout", "ReadTimeout"}
    if offline or names & (no_answer | {"LocalEntryNotFoundError", "OfflineModeIsEnabled"}):
        reached = f"is not in the local cache and the hub at {address} cannot be reached"
        return f"{kind} {name} {reached}: check the connection and HF_ENDPOINT, or give a local path"
    return f"{kind} {name} cannot be loaded: {first_line(causes(error)[-1])}"
