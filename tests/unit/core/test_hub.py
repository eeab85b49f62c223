"""Whether the Hugging Face Hub can be reached."""

import pytest

from paretune.core.hub import accepts_connections


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_the_hub_is_asked_through_any_kind_of_proxy(name: str) -> None:
    nobody = "http://127.0.0.1:1"

    assert not accepts_connections(nobody, {name: ""})
    assert accepts_connections(nobody, {name: "socks5://proxy:1080"})
