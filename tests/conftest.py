"""Small real things every test may use: a tiny BERT, a few labelled sentences, a store of its own."""

import random
from pathlib import Path

import pytest

GOOD = tuple("great warm funny clever moving fresh lovely bright tender bold".split())  # noqa: SIM905
BAD = tuple("dull cold stale clumsy boring tired ugly flat hollow weak".split())  # noqa: SIM905
OTHER = tuple("the a film story actor scene music plot is was and with very quite rather it this".split())  # noqa: SIM905


def sentences(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """`count` sentences with a class that their words give away."""
    source = random.Random(seed)
    rows = []
    for number in range(count):
        label = ("positive", "negative")[number % 2]
        words = source.choices(OTHER, k=source.randint(3, 14)) + source.choices(GOOD if number % 2 == 0 else BAD, k=2)
        source.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


def write_csv(path: Path, rows: list[tuple[str, str]], header: str = "text,label") -> Path:
    """Write rows as CSV with a header line."""
    path.write_text("\n".join([header, *(f"{text},{label}" for text, label in rows)]) + "\n")
    return path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer BERT (hidden size 32) with a word-level vocabulary, as a Hugging Face folder."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    folder = tmp_path_factory.mktemp("tiny-bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *GOOD, *BAD, *OTHER, *(f"unused{n}" for n in range(50))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizerFast(vocab={word: number for number, word in enumerate(words)}, model_max_length=64).save_pretrained(
        folder
    )
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
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=64)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """A CSV file with 120 labelled sentences, two balanced classes, columns text and label."""
    return write_csv(tmp_path / "reviews.csv", sentences(120))


@pytest.fixture(scope="session")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow store without runs: making one takes seconds, copying it does not."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("new") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with its own MLflow store and paretune home; nothing of the user's is touched."""
    place = tmp_path / "workplace"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("PARETUNE_HOME", str(place / ".paretune"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place / 'mlflow.db'}")
    monkeypatch.setenv("HF_HOME", str(place / "huggingface"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    return place
