"""A model's config.json from a hub: some kilobytes, and clear words when it is not to be had."""

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from paretune.core.errors import BadInput
from paretune.estimating.architecture import hub_config
from tests.stand_ins.hub import Hub

CONFIG = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with one good model, one that holds no object, one without a configuration, and one behind terms."""
    root = tmp_path_factory.mktemp("hub")
    for name, text in {
        "good/bert": json.dumps(CONFIG),
        "odd/list": "[1]",
        "odd/text": "no json",
        "gated/bert": json.dumps(CONFIG),
    }.items():
        folder = root / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(text)
    (root / "models" / "odd" / "empty").mkdir()
    (root / "models" / "odd" / "empty" / "README.md").write_text("nothing")
    with Hub(root, gated=("gated/bert",), moved={"old/bert": "good/bert"}) as server:
        yield server


@pytest.fixture
def hub(running: Hub) -> Hub:
    """That hub, as if nobody had asked it yet."""
    running.requests.clear()
    return running


def refusal(model: str, environment: dict[str, str]) -> str:
    with pytest.raises(BadInput) as refused:
        hub_config(model, environment)
    return str(refused.value)


def test_a_configuration_is_read_and_no_weights_are(hub: Hub) -> None:
    assert hub_config("good/bert", {"HF_ENDPOINT": f"{hub.url}/"}) == CONFIG
    assert hub.requests == [("GET", "/good/bert/resolve/main/config.json", 200)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nobody/knows", "404"),
        ("odd/empty", "404"),
        ("gated/bert", "needs HF_TOKEN"),
        ("odd/list", "it is no JSON object"),
        ("odd/text", "gives no config.json"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_to_do(hub: Hub, model: str, message: str) -> None:
    text = refusal(model, {"HF_ENDPOINT": hub.url})

    assert f"model {model}" in text
    assert message in text
    assert "give a folder that holds its config.json" in text


@pytest.mark.parametrize("switch", ["1", "true", "YES", "on"])
def test_offline_asks_nobody(hub: Hub, switch: str) -> None:
    assert "HF_HUB_OFFLINE" in refusal("good/bert", {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": switch})
    assert hub.requests == []


def test_an_endpoint_that_is_no_address_is_refused() -> None:
    assert "HF_ENDPOINT must begin with https://" in refusal("good/bert", {"HF_ENDPOINT": "file:///etc"})


def test_a_hub_that_does_not_answer_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # nobody listens
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"

        assert f"{address} gives no config.json" in refusal("good/bert", {"HF_ENDPOINT": address})


@pytest.mark.parametrize("answer", [b"what?\r\n\r\n", b"HTTP/1.0 401 no\r\n\r\n"])
def test_a_server_of_another_kind_is_no_traceback_and_gets_the_token_once(answer: bytes) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(65_536))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        text = refusal("good/bert", {"HF_ENDPOINT": address, "HF_TOKEN": "hf_secret"})
        thread.join()

    assert "gives no config.json" in text
    assert b"Authorization: Bearer hf_secret" in heard[0]
    assert "hf_secret" not in text
