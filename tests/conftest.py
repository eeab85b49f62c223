"""Fixtures for all tests: a tiny BERT, labeled sentences, a folder with an MLflow store."""

import gc
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support import fork_server
from tests.support.fork_server import quick_starts
from tests.support.quick_aws import quick_aws
from tests.support.quick_databases import PLAIN, quick_databases, read_runs_directly
from tests.support.sentences import BAD, GOOD, OTHER, sentences, write_csv
from tests.support.stores import copy_store, made_once, user_s_own
from tests.support.without_linux import IS_LINUX, VARIABLE, hide

__all__ = ["quick_aws", "quick_databases", "quick_starts"]

pytest.register_assert_rewrite("paretune.testing")  # so that its failures show values, as those of other tests

# The `paretune` of this environment comes first, as in the shell of a user who has activated it. Otherwise all printed
# commands would begin with `PYTHON -m paretune`.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

if "PYTEST_XDIST_WORKER" in os.environ:  # if threads outnumber cores, they busy-wait
    os.environ["OMP_NUM_THREADS"] = "1"

for _name in ("COLUMNS", "LINES"):  # a shell may export them, and readline sets them: tests print to no terminal
    os.environ.pop(_name, None)

if VARIABLE in os.environ:
    hide()

settings.register_profile("the same each time", max_examples=25, deadline=None, derandomize=True, database=None)
settings.load_profile("the same each time")


TRAINS = importlib.util.find_spec("torch") is not None
"""Whether jobs can run on this machine. Without the extra `train`, tests of training are left out."""


def pytest_report_header() -> list[str]:
    """Say how this run differs from what users have, and what it leaves out."""
    training = "without PyTorch: tests/unit/training is ignored, and tests that train are skipped"
    databases = "stores share migrations and statements: PARETUNE_PLAIN_DATABASES=1 leaves them as they are"
    starts = "programs are forked from one that has imported: PARETUNE_PLAIN_PROCESSES=1 starts each of them"
    return [*([] if TRAINS else [training]), *([] if PLAIN else [databases]), *([] if fork_server.PLAIN else [starts])]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that train, or read a data set or a model as the training does, where PyTorch is missing."""
    for item in [] if IS_LINUX else items:
        if item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="needs /proc, CPU affinity or namespaces of Linux"))
    if not TRAINS:
        skip = pytest.mark.skip(reason="needs PyTorch: pip install -e '.[test]'")
        for item in items:
            if item.get_closest_marker("trains") or "tiny_model" in getattr(item, "fixturenames", ()):
                item.add_marker(skip)


def pytest_runtest_setup() -> None:
    """Keep the garbage collector from looking at imported modules again and again, which takes a tenth of all time.

    Many libraries are only imported when a test needs them, and a training ends with everything unfrozen.
    """
    if len(gc.get_objects(generation=2)) > 100_000:  # gc.get_freeze_count() takes a tenth of a second
        gc.collect()
        gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore modules whose tests are all slow or foreign if these are deselected: importing them takes seconds."""
    if not TRAINS and collection_path == Path(__file__).parent / "unit" / "training":
        return True
    if "not slow" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    if "essential" in config.option.markexpr and "@pytest.mark.essential" in text:
        return None
    mark = re.search(r"^pytestmark = (\[\s*)?pytest\.mark\.(slow|foreign)\b", text, re.MULTILINE)
    return True if mark and f"not {mark[2]}" in config.option.markexpr else None


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a random two-layer BERT (hidden size 32) with a word-level vocabulary, as a Hugging Face folder."""
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, *OTHER, *(f"unused{n}" for n in range(50))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    word_pieces = BertWordPieceTokenizer({word: number for number, word in enumerate(words)})._tokenizer
    BertTokenizerFast(tokenizer_object=word_pieces, model_max_length=64).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_causal_model(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """Return a random two-layer GPT-2 (hidden size 32) with the same vocabulary."""
    import torch
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("tiny-gpt2")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=512)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """Return a CSV file with 120 labeled sentences in two balanced classes and the columns text and label."""
    return write_csv(tmp_path / "reviews.csv", sentences(120))


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return an MLflow store without runs, to be copied: making one takes seconds."""
    from mlflow import MlflowClient

    def make(path: Path) -> None:
        MlflowClient(f"sqlite:///{path}").search_experiments()

    with pytest.MonkeyPatch.context() as patch:
        if not PLAIN:
            read_runs_directly(patch)
        yield made_once(tmp_path_factory.getbasetemp(), "empty.db", make)


@pytest.fixture(scope="session")
def empty_storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an Optuna storage without studies, to be copied."""
    from optuna.storages import RDBStorage

    def make(path: Path) -> None:
        RDBStorage(f"sqlite:///{path}").engine.dispose()

    return made_once(tmp_path_factory.getbasetemp(), "empty_storage.db", make)


@pytest.fixture
def workplace(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with an empty MLflow store and paretune home; none of the user's files is touched."""
    workspace = tmp_path / "workplace"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", copy_store(empty_store, workspace))
    for name, text in user_s_own(workspace).items():
        monkeypatch.setenv(name, text)
    for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    return workspace


@pytest.fixture
def database(workplace: Path) -> Path:
    """Return the file of the workplace's MLflow store."""
    return workplace / "mlflow.db"


@pytest.fixture
def client(workplace: Path) -> Any:
    """Return an MlflowClient of the workplace's store."""
    from mlflow import MlflowClient

    return MlflowClient()


@pytest.fixture
def no_settings(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the user's settings for AWS, prices and storage, and keep the cache of prices in the workplace."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "PARETUNE_P", "PARETUNE_S"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(workplace / "cache"))


@pytest.fixture
def next_to_the_studies(workplace: Path, no_settings: None) -> Path:
    """Return a workplace that contains the project's study files, without the user's settings."""
    (workplace / "studies").symlink_to(Path(__file__).parents[1] / "studies")
    return workplace


@pytest.fixture
def no_store(database: Path) -> None:
    """Remove the MLflow store from the workplace."""
    database.unlink()
