"""Whether the Hugging Face Hub can be reached."""

import pytest

from paretune.core.hub import accepts_connections


@pytest.mark.parametrize(
    ("name", "scheme"),
    [("HTTPS_PROXY", "https"), ("http_proxy", "http"), ("ALL_PROXY", "https"), ("all_proxy", "http")],
)
def test_the_hub_is_asked_through_any_kind_of_proxy(name: str, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = f"{scheme}://127.0.0.1:1"
    for proxy in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
        monkeypatch.delenv(proxy.lower(), raising=False)

    assert not accepts_connections(nobody)
    monkeypatch.setenv(name, "socks5://proxy:1080")
    assert accepts_connections(nobody)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert not accepts_connections(nobody)
