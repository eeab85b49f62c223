"""A model's config.json from a hub: some kilobytes, and clear words when it is not to be had."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

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
def hub(running: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """That hub, as if nobody had asked it yet."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    running.requests.clear()
    return running


def refusal(model: str, environment: dict[str, str]) -> str:
    with pytest.raises(BadInput) as refused:
        hub_config(model, environment)
    return str(refused.value)


def test_a_configuration_is_read_and_no_weights_are(hub: Hub) -> None:
    assert hub_config("good/bert", {"HF_ENDPOINT": hub.url}) == CONFIG
    assert {path for _, path, _ in hub.requests} == {"/good/bert/resolve/main/config.json"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nobody/knows", "404"),
        ("odd/empty", "404"),
        ("gated/bert", "needs HF_TOKEN"),
        ("odd/list", "holds no JSON object"),
        ("odd/text", "is no JSON"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_to_do(hub: Hub, model: str, message: str) -> None:
    assert message in refusal(model, {"HF_ENDPOINT": hub.url})


def test_a_hub_that_does_not_answer_is_named_without_the_token() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # nobody listens
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        text = refusal("good/bert", {"HF_ENDPOINT": address, "HF_TOKEN": "hf_secret"})

        near = refusal("distilbert/distilbert-base-uncasd", {"HF_ENDPOINT": address})

    assert "is not well known (did you mean distilbert-base-uncased?), and its config.json" in near
    assert "did you mean" not in text
    assert f"{address} gives none" in text
    assert "hf_secret" not in text
