"""Masks everything in a text that identifies an account or a machine."""

import getpass
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from paretune.core.errors import ParetuneError
from paretune.launchers.sagemaker.account import Account
from paretune.specification.limits import OF_A_QUEUE
from paretune.specification.parameters import split_list
from paretune.specification.placement import Placement

_PATTERNS = {  # in this order: an ARN holds an account
    r"(?:arn|ARN):aws[\w-]*:[^\s\"'`,;)\]}]*": "<arn>",
    r"(?:AKIA|ASIA|AIDA|AROA)[A-Z0-9]{12,}": "<key>",
    r"s3://[^/\s\"'`,;)\]}]+": "s3://<bucket>",
    r"(?<=://)[^/\s\"'`,;)\]}<]+": "<server>",
    r"\b(?:subnet|sg|vpc|eni|i)-[0-9a-f]{8,}\b": "<network>",
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "<uuid>",
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)": "<address>",
    r"\bip-\d{1,3}(?:-\d{1,3}){3}\b": "<address>",
    r"(?<![\d.])\d{12}(?!\d)|(?<!\d)\d{4}-\d{4}-\d{4}(?!\d)": "<account>",
}
_E_MAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # before any name, which may be the part before the @
_SHORTEST = 2  # characters of a name that is masked wherever it is a word


@dataclass(frozen=True, kw_only=True)
class Mask:
    """Replaces private names, then everything that looks like an account, ARN, key or address."""

    names: Mapping[str, str]  # private text to its replacement

    @classmethod
    def of(cls, cluster: Placement, account: Account | None) -> "Mask":
        """Return the mask of a job's account and of this machine; names that AWS does not answer are left out."""
        names = {str(Path.home()): "~", getpass.getuser(): "<user>", socket.gethostname(): "<host>"}
        private_fields = ("kms_key", "package_index", "user", "budget", "queue", *OF_A_QUEUE[:2])
        private = [getattr(cluster, name) or "" for name in private_fields]
        private += [*split_list(cluster.subnets), *split_list(cluster.security_group_ids)]
        names |= dict.fromkeys((*private, *cluster.tags, *cluster.tags.values()), "<private>")
        names |= _parts(cluster.role or "", "<role>") | {(cluster.bucket or ""): "<bucket>"}
        if account is not None:
            with suppress(ParetuneError):
                names |= {account.identity["Account"]: "<account>"} | _parts(account.identity["Arn"], "<user>")
            with suppress(ParetuneError):
                names |= _parts(account.role_arn, "<role>")
            with suppress(ParetuneError):
                names[account.bucket] = "<bucket>"
        return cls(names={text: mask for text, mask in names.items() if len(text) >= _SHORTEST})

    def __call__(self, text: str) -> str:
        """Return `text` with all of them replaced."""
        text = re.sub(_E_MAIL, "<e-mail>", text)
        for name in sorted(self.names, key=len, reverse=True):
            text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", self.names[name], text)
        for pattern, mask in _PATTERNS.items():
            text = re.sub(pattern, mask, text)
        return text


def _parts(arn: str, mask: str) -> dict[str, str]:
    """Return an ARN or a name, and the names in its path, each with its mask."""
    return {arn: mask, **dict.fromkeys(arn.split("/")[1:], mask)}
