"""The config.json of a model on the Hugging Face hub, and nothing else of it: some kilobytes instead of its weights."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from paretune.core.errors import BadInput

_HUB = "https://huggingface.co"
_TIMEOUT_S = 10.0
_LARGEST = 5_000_000  # bytes; configurations have some thousands
_TRUE = {"1", "ON", "YES", "TRUE"}  # as huggingface_hub reads it


def hub_config(model: str, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """The configuration of a hub model.

    Args:
        model: hub id.
        environment: HF_ENDPOINT and HF_TOKEN are read from it, as by every Hugging Face tool.

    Raises:
        BadInput: there is no such model, it may not be read, or the hub does not answer.
    """
    remedy = "give a folder that holds its config.json, or a well-known model of the same size"
    if environment.get("HF_HUB_OFFLINE", "").upper() in _TRUE:
        raise BadInput([f"model {model} is not well known, and HF_HUB_OFFLINE forbids to ask the hub: {remedy}"])
    endpoint = (environment.get("HF_ENDPOINT") or _HUB).rstrip("/")
    if not endpoint.startswith(("https://", "http://")):
        raise BadInput([f"HF_ENDPOINT must begin with https:// or http://, got {endpoint!r}"])
    request = urllib.request.Request(f"{endpoint}/{urllib.parse.quote(model)}/resolve/main/config.json")  # noqa: S310  # checked
    if environment.get("HF_TOKEN"):
        request.add_unredirected_header("Authorization", f"Bearer {environment['HF_TOKEN']}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # checked above
            found = json.loads(answer.read(_LARGEST))
    except urllib.error.HTTPError as error:
        error.close()
        why = {
            401: "is not there, or needs a token that may read it (HF_TOKEN)",  # the hub does not tell which
            403: "needs a token that may read it (HF_TOKEN)",
        }.get(error.code, f"is not there ({error.code})")
        raise BadInput([f"model {model}: its config.json {why} on {endpoint}; else {remedy}"]) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BadInput(
            [f"model {model} is not well known and {endpoint} does not answer ({error}): {remedy}"]
        ) from error
    if not isinstance(found, dict):
        raise BadInput([f"model {model}: what {endpoint} sends is no configuration; {remedy}"])
    return found
