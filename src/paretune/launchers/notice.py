"""One line to the user when a job or study ends, fails or waits for capacity, by `notify` of their own paretune.toml.

The address of a webhook is a secret: no message and no record has it.
"""

import html
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from threading import Thread
from urllib.parse import urlsplit

from paretune.core.untrusted import printable
from paretune.specification.profile import notify_address

_TIMEOUT_S = 10.0
_LONGEST = 1000  # characters of a line


def send(line: str, environment: Mapping[str, str]) -> str:
    """Send one line, if the user's own file has an address for it; returns "" or why it did not arrive.

    Never raises: a notice that fails must not hurt the job that it is about.
    """
    problems = list[str]()
    # A thread, because the timeout of urllib starts anew with each byte that a slow server sends.
    sending = Thread(target=lambda: problems.append(_problem(line, environment)), daemon=True)
    sending.start()
    sending.join(_TIMEOUT_S)
    return problems[0] if problems else f"no answer within {_TIMEOUT_S:g} s"


def _problem(line: str, environment: Mapping[str, str]) -> str:
    try:
        if address := notify_address(environment):
            _send(address, " ".join(printable(line).split())[:_LONGEST])
    except urllib.error.HTTPError as error:
        return f"the webhook answered {error.code}"
    except Exception as error:  # of the network, of boto3, or that boto3 is not installed
        reason = getattr(error, "reason", error)  # that of a URLError, which no address is part of
        named = "" if isinstance(error, ValueError) else f": {printable(str(reason))}"
        return f"{type(error).__name__}{named}"
    return ""


def destination(address: str) -> str:
    """Where notices go, without the secret part of a webhook."""
    return address if address.startswith("arn:") else f"the webhook at {urlsplit(address).hostname}"


def _send(address: str, line: str) -> None:
    if address.startswith("arn:"):
        import boto3  # an extra, and half a second to import
        from botocore.config import Config

        config = Config(connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"total_max_attempts": 2})
        topics = boto3.client("sns", region_name=address.split(":")[3], config=config)
        topics.publish(TopicArn=address, Subject="paretune", Message=line)
        return
    # As Slack, Teams, Mattermost and Google Chat read it; escaped, no text calls a channel or hides an address.
    body = json.dumps({"text": html.escape(line, quote=False)}).encode()
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})  # noqa: S310
    urllib.request.build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_S).close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: the user has named one address, and no other one gets the line."""

    def redirect_request(self, *_: object) -> None:
        """None, for no further request."""
