"""Quotes: only what this server has signed is read back."""

import base64
import json
from dataclasses import replace

import pytest

from paretune.commands.mcp.quotes import Quote, Quotes
from paretune.core.errors import BadInput

QUOTE = Quote(
    command="main", parameters={"seed": "1"}, identity="a1", worst_case_usd=0.5, priced_as_of="2026-09", expires=1000.0
)


def test_a_signed_quote_is_read_back() -> None:
    quotes = Quotes()

    assert quotes.read(quotes.signed(QUOTE), now=999.0) == QUOTE


def test_a_quote_of_another_server_is_refused() -> None:
    with pytest.raises(BadInput, match="was not signed by this server"):
        Quotes().read(Quotes().signed(QUOTE), now=0.0)


def test_a_quote_expires() -> None:
    quotes = Quotes()

    with pytest.raises(BadInput, match="has expired 0 s ago"):
        quotes.read(quotes.signed(QUOTE), now=1000.0)


def test_a_quote_made_cheaper_by_hand_is_refused() -> None:
    quotes = Quotes()
    payload, _, signature = quotes.signed(QUOTE).partition(".")
    cheaper = json.loads(base64.urlsafe_b64decode(payload)) | {"worst_case_usd": 0.0}
    forged = base64.urlsafe_b64encode(json.dumps(cheaper).encode()).decode()

    with pytest.raises(BadInput, match="was not signed"):
        quotes.read(f"{forged}.{signature}", now=0.0)


@pytest.mark.parametrize("text", ["", ".", "..", "a.b", "é.é", "\x00", "." * 200_000])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="was not signed"):
        Quotes().read(text, now=0.0)


@pytest.mark.parametrize("usd", [float("nan"), float("inf"), -1.0])
def test_what_is_no_bound_is_not_signed(usd: float) -> None:
    with pytest.raises(BadInput, match="number of dollars"):
        Quotes().signed(replace(QUOTE, worst_case_usd=usd))
