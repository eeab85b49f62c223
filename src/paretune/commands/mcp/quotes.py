"""Quotes: the highest cost of a command, signed by this server, valid once and for a limited time."""

import hashlib
import hmac
import json
import math
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from paretune.core.errors import BadInput

VALID_S = 900.0  # validity of a quote in seconds
_LONGEST = 100_000  # characters of a signed quote


@dataclass(frozen=True, kw_only=True)
class Quote:
    """One command and its highest possible cost."""

    command: str  # `main` or `study`
    parameters: Mapping[str, str]  # name to text, as they would be typed
    identity: str  # hash of the job's specification, or of the study as YAML
    worst_case_usd: float  # bound of its bill, USD
    priced_as_of: str  # date of the price that the bound was computed with; empty if none was needed
    expires: float  # seconds since the epoch
    number: str = field(default_factory=lambda: secrets.token_hex(8))  # unique number of the quote


class Quotes:
    """Signs quotes and reads them back; `key` is this server's secret, which no agent sees.

    A quote is `PAYLOAD.SIGNATURE`, both base64: JSON and its HMAC-SHA256 (RFC 2104).
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def signed(self, quote: Quote) -> str:
        """Return the quote as text that only this server can make."""
        if not (math.isfinite(quote.worst_case_usd) and quote.worst_case_usd >= 0):
            raise BadInput([f"the worst case must be a number of dollars, got {quote.worst_case_usd}"])
        payload = urlsafe_b64encode(json.dumps(asdict(quote), sort_keys=True).encode())
        return f"{payload.decode()}.{self._signature(payload)}"

    def read(self, text: str, now: float) -> Quote:
        """Return the signed quote; raises BadInput if this server has not signed it, or it has expired."""
        payload, dot, signature = text[:_LONGEST].strip().rpartition(".")
        is_signed = dot and hmac.compare_digest(self._signature(payload.encode()).encode(), signature.encode())
        if not is_signed:
            raise BadInput(
                ["the quote was not signed by this server, or was changed: ask for another one with `quote`"]
            )
        try:
            quote = Quote(**json.loads(urlsafe_b64decode(payload)))
        except (ValueError, TypeError, NotBase64) as error:  # it was signed, so this is a bug of ours
            raise BadInput([f"the quote cannot be read: {error}"]) from error
        if now >= quote.expires:
            raise BadInput([f"the quote has expired {now - quote.expires:.0f} s ago: ask for another one with `quote`"])
        return quote

    def _signature(self, payload: bytes) -> str:
        return urlsafe_b64encode(hmac.new(self._key, payload, hashlib.sha256).digest()).decode()
