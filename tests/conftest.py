"""Small real things every test may use: a tiny BERT, a few labelled sentences, a store of its own."""

import fcntl
import gc
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionMap
from hypothesis import settings
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from sqlalchemy.util import LRUCache

from tests.support.sentences import BAD, GOOD, OTHER, sentences, write_csv
from tests.support.stores import copy_store, user_s_own

if "PYTEST_XDIST_WORKER" in os.environ:  # beside another: more threads than cores wait actively for each other
    os.environ["OMP_NUM_THREADS"] = "1"

settings.register_profile("the same each time", max_examples=25, deadline=None, derandomize=True, database=None)
settings.load_profile("the same each time")

_script_directories: Any = ScriptDirectory  # of any type, for its methods are replaced
_make_script_directory = _script_directories.__init__
_revisions: dict[str, RevisionMap] = {}  # by folder


def _make_with_shared_revisions(scripts: ScriptDirectory, folder: Any, *words: Any, **options: Any) -> None:
    """Optuna and MLflow read all migrations anew for each store that is opened, in a tenth of these tests' time."""
    _make_script_directory(scripts, folder, *words, **options)
    scripts.revision_map = _revisions.setdefault(str(folder), scripts.revision_map)


_script_directories.__init__ = _make_with_shared_revisions


_engines: Any = sa.Engine
_dialects: Any = SQLiteDialect
_make_engine = _engines.__init__
_statements: Any = LRUCache(5000)


def _make_with_shared_statements(engine: sa.Engine, pool: Any, dialect: Any, *words: Any, **options: Any) -> None:
    """Statements are compiled once for all SQLite files, not once for each; they would take a tenth of the time."""
    _make_engine(engine, pool, dialect, *words, **options)
    if isinstance(dialect, SQLiteDialect):
        engine._compiled_cache = _statements


_engines.__init__ = _make_with_shared_statements
_dialects.__eq__ = lambda dialect, other: type(dialect) is type(other)
_dialects.__hash__ = lambda dialect: hash(type(dialect))


@sa.event.listens_for(sa.Engine, "connect")
def _without_waiting_for_the_disk(connection: Any, _: Any) -> None:
    """SQLite need not survive a power cut here; as much is saved. Processes of their own wait as they always do."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


gc.disable()  # until all is imported


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules that are slow as a whole alone where slow tests are not wanted: their imports take seconds."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    is_slow = re.search(r"^pytestmark = (\[\s*)?pytest\.mark\.slow\b", collection_path.read_text(), re.MULTILINE)
    return True if is_slow else None


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over all that is imported by now.

    It would take a fifth of these tests' time: it looks at what stores and pictures leave a hundred times more seldom.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    gc.enable()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer BERT (hidden size 32) with a word-level vocabulary, as a Hugging Face folder."""
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
    """A random two-layer GPT-2 (hidden size 32) over the same vocabulary."""
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
    """A CSV file with 120 labelled sentences, two balanced classes, columns text and label."""
    return write_csv(tmp_path / "reviews.csv", sentences(120))


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow store without runs, to be copied: making one takes seconds."""
    from mlflow import MlflowClient

    base = tmp_path_factory.getbasetemp()
    path = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "empty.db"
    with path.with_suffix(".lock").open("a") as lock:  # one for all workers
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX)
        if not path.exists():
            draft = path.with_suffix(".draft")
            MlflowClient(f"sqlite:///{draft}").search_experiments()
            draft.rename(path)
    return path


@pytest.fixture
def workplace(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with an empty MLflow store and a paretune home of its own; nothing of the user's is touched."""
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
    """The file of the workplace's MLflow store."""
    return workplace / "mlflow.db"


@pytest.fixture
def client(workplace: Path) -> Any:
    """An MlflowClient of the workplace's store."""
    from mlflow import MlflowClient

    return MlflowClient()


@pytest.fixture
def no_settings(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's settings for AWS, prices and storage, and a cache of prices in the workplace."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "PARETUNE_P", "PARETUNE_S"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(workplace / "cache"))


@pytest.fixture
def beside_the_studies(workplace: Path, no_settings: None) -> Path:
    """A workplace with the project's study files, and nothing of the user's settings."""
    (workplace / "studies").symlink_to(Path(__file__).parents[1] / "studies")
    return workplace


@pytest.fixture
def no_store(database: Path) -> None:
    """No MLflow store in the workplace yet."""
    database.unlink()
