"""Prepared data: made once, found again by its content, and read as batches."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from paretune.specification.container import PreparedDataset
from paretune.specification.inputs import DataArguments
from paretune.specification.job import JobSpec
from paretune.specification.metrics import TRUNCATED_SHARE
from paretune.training.rows import tokenized
from paretune.training.rows.tokenized import Rows, TokenRows, _write_split, padded_tokens, prepare, tokenize_words

PAD = 9
DATA = JobSpec(max_seq_length=8).data_arguments
TOKEN_CLASSIFICATION = {"[UNK]": 0, "[END]": 1, "a": 2, "b": 3, "c": 4, "d": 5, "e": 6}
LABELS = ("bad", "good")


def padded(rows: list[list[int]], multiple: int, fill: int) -> list[list[int]]:
    """Return the batch, padded in the slow and obvious way."""
    width = max(1, *(len(row) for row in rows)) if rows else 1
    while width % multiple:
        width += 1
    return [row + [fill] * (width - len(row)) for row in rows]


def word_tokenizer(**arguments: Any) -> PreTrainedTokenizerFast:
    """Return a tokenizer of seven words that adds nothing to a text."""
    words = Tokenizer(WordLevel(TOKEN_CLASSIFICATION, unk_token="[UNK]"))  # noqa: S106
    words.pre_tokenizer = Whitespace()
    named = {"unk_token": "[UNK]", "eos_token": "[END]", "pad_token": "[END]"} | arguments
    return PreTrainedTokenizerFast(tokenizer_object=words, **named)


def some_rows(**changed: Rows) -> dict[str, Rows]:
    rows = {
        "train": Rows(texts=["a b c", "d", "a b c d e a b c d e"], labels=np.array([0, 1, 0])),
        "validation": Rows(texts=["e e", "c"], labels=np.array([1, 0])),
    }
    return rows | changed


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of classes for which baselines were computed."""
    calls: list[int] = []
    monkeypatch.setattr(tokenized, "_baselines", lambda _data, _rows, names: calls.append(len(names)) or {})
    return calls


def prepare_words(
    cache: Path, data: DataArguments = DATA, rows: Mapping[str, Rows] | None = None, **arguments: Any
) -> PreparedDataset:
    return prepare(data, some_rows() if rows is None else rows, LABELS, word_tokenizer(**arguments), cache)


def tokens_of(prepared: PreparedDataset, split: str) -> list[list[int]]:
    rows = TokenRows(prepared.folder / split, pad_id=0)
    return [rows.batch([number])["input_ids"][0].tolist() for number in range(len(rows))]


# --- reading


@pytest.mark.parametrize(("multiple", "with_labels", "longest_first"), [(1, True, False), (8, False, True)])
def test_a_batch_is_what_padding_by_hand_gives(
    tmp_path: Path, multiple: int, with_labels: bool, longest_first: bool
) -> None:
    source = np.random.default_rng(0)
    rows = [source.integers(10, 99, size=size).tolist() for size in (3, 1, 7, 16, 2, 8, 5)]
    labels = [0, 1, 2, 0, 1, 2, 0]
    _write_split(tmp_path / "train", rows, np.array(labels) if with_labels else None)
    split = TokenRows(tmp_path / "train", pad_id=PAD, multiple=multiple, longest_first=longest_first)
    order = sorted(range(7), key=lambda row: -len(rows[row])) if longest_first else list(range(7))

    for index in ([0], [4, 0, 2], [6, 5, 4, 3, 2, 1, 0], [1, 1]):
        batch = split.batch(index)
        chosen = [rows[order[row]] for row in index]
        assert batch["input_ids"].tolist() == padded(chosen, multiple, PAD)
        assert batch["attention_mask"].tolist() == padded([[1] * len(row) for row in chosen], multiple, 0)
        expected = [labels[order[row]] for row in index] if with_labels else padded(chosen, multiple, -100)
        assert batch["labels"].tolist() == expected
        assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    assert len(split) == 7
    assert split.lengths.tolist() == [len(rows[row]) for row in order]


def test_a_batch_is_never_longer_than_the_longest_row(tmp_path: Path) -> None:
    _write_split(tmp_path / "train", [[1] * 100, [1] * 20], np.array([0, 1]))
    split = TokenRows(tmp_path / "train", pad_id=PAD, has_few_lengths=True)

    assert split.batch([0, 1])["input_ids"].shape == (2, 100)
    assert split.batch([1])["input_ids"].shape == (1, 32)


def test_short_texts_next_to_a_long_one_are_padded_to_a_multiple_of_8_and_not_to_an_eighth_of_the_longest(
    tmp_path: Path,
) -> None:
    lengths = np.random.default_rng(1).integers(10, 45, size=4_000)
    lengths[7] = 512
    _write_split(tmp_path / "train", [[1] * length for length in lengths], np.zeros(4_000, dtype=np.int64))
    split = TokenRows(tmp_path / "train", pad_id=PAD, multiple=8)
    shapes = [split.batch(list(rows))["input_ids"].shape for rows in np.argsort(lengths).reshape(-1, 16)]

    assert sum(rows * width for rows, width in shapes) < 1.3 * lengths.sum()  # an eighth of 512 made it 2.6 times
    assert padded_tokens(lengths) < 1.3 * lengths.sum()


# --- preparing


def test_texts_are_cut_at_the_limit_and_the_share_of_cut_ones_is_reported(tmp_path: Path) -> None:
    prepared = prepare_words(tmp_path, replace(DATA, max_seq_length=4))

    assert tokens_of(prepared, "train") == [[2, 3, 4], [5], [2, 3, 4, 5]]
    assert prepared.facts[TRUNCATED_SHARE] == pytest.approx(1 / 3)
    assert prepared.facts["train_rows"] == 3
    assert prepared.facts["train_tokens"] == 8
    assert prepared.facts["validation_tokens"] == 3
    assert prepared.labels == LABELS


class CountingTokenizer:
    """Passes texts to a tokenizer, and counts their characters."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.characters = tokenizer, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, texts: list[str], **options: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self._tokenizer(texts, **options)


def test_of_a_very_long_text_only_a_part_is_tokenized_and_the_length_of_all_is_extrapolated(
    tmp_path: Path,
) -> None:
    long, blank = "a b c " * 100_000, " " * 200_000 + "d e " * 4
    rows = {
        "train": Rows(texts=[long, blank, "c"], labels=np.array([0, 1, 0])),
        "validation": Rows(texts=[long], labels=np.array([1])),
    }
    tokenizer = CountingTokenizer(word_tokenizer())
    prepared = prepare(DATA, rows, LABELS, tokenizer, tmp_path)

    assert tokens_of(prepared, "train") == [[2, 3, 4, 2, 3, 4, 2, 3], [5, 6] * 4, [4]]
    uncut = np.load(prepared.folder / "train" / "uncut.npy")
    assert uncut[0] == pytest.approx(300_000, rel=0.001)
    assert uncut[1:].tolist() == [8, 1]
    assert tokenizer.characters < len(long) + len(blank)  # of two long texts, and all of a blank one
    left = word_tokenizer(truncation_side="left")
    assert tokens_of(prepare(DATA, rows, LABELS, left, tmp_path), "train")[0] == [3, 4, 2, 3, 4, 2, 3, 4]


def test_equal_rows_are_found_and_neither_tokenized_nor_measured_again(tmp_path: Path, measured: list[int]) -> None:
    first = prepare_words(tmp_path)
    made = {path: path.stat().st_mtime_ns for path in first.folder.iterdir()}

    again = prepare_words(tmp_path)

    assert again == first
    assert measured == [2]
    assert {path: path.stat().st_mtime_ns for path in again.folder.iterdir()} == made


def test_two_processes_may_prepare_the_same_rows_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faster, rename = prepare_words(tmp_path / "other"), Path.rename

    def rename_too_late(path: Path, target: Path) -> Path:
        if path.name == faster.key:
            shutil.copytree(faster.folder, target)
            (target / "of the faster process").touch()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_too_late)
    prepared = prepare_words(tmp_path / "cache")

    assert (prepared.folder / "of the faster process").exists(), "it may be reading this folder"
    assert tokens_of(prepared, "train") == tokens_of(faster, "train")


def test_an_incomplete_folder_is_replaced(tmp_path: Path) -> None:
    prepared = prepare_words(tmp_path)
    (prepared.folder / "dataset.json").unlink()

    assert prepare_words(tmp_path) == prepared


def test_a_change_of_anything_that_matters_gives_another_key(tmp_path: Path) -> None:
    train = some_rows()["train"]
    assert train.labels is not None
    without_labels = {split: replace(part, labels=None) for split, part in some_rows().items()}
    variants = [
        prepare_words(tmp_path, rows=without_labels),
        prepare_words(tmp_path),
        prepare_words(tmp_path, replace(DATA, max_seq_length=9)),
        prepare_words(tmp_path, replace(DATA, task="causal-lm"), without_labels),
        prepare_words(tmp_path, rows=some_rows(train=replace(train, texts=["a b", "cd", "a b c d e a b c d e"]))),
        prepare_words(tmp_path, rows=some_rows(train=replace(train, labels=1 - train.labels))),
        prepare_words(tmp_path, rows=some_rows(test=train)),
        prepare_words(tmp_path, truncation_side="left"),
        prepare_words(tmp_path, eos_token="e"),  # noqa: S106
        prepare(DATA, some_rows(), ("good", "bad"), word_tokenizer(), tmp_path),
    ]
    other_words = word_tokenizer()
    other_words.add_tokens(["f"])
    variants.append(prepare(DATA, some_rows(), LABELS, other_words, tmp_path))

    assert len({prepared.key for prepared in variants}) == len(variants)
    assert all(prepared.folder == tmp_path / prepared.key for prepared in variants)


def test_causal_text_is_joined_with_an_end_after_each_and_cut_into_equal_blocks(tmp_path: Path) -> None:
    data = replace(DATA, task="causal-lm", max_seq_length=4)
    rows = {"train": Rows(texts=["a b c", "d", "", "a b c d e"]), "validation": Rows(texts=["a b"])}

    messages: list[str] = []
    prepared = prepare(data, rows, (), word_tokenizer(), tmp_path, messages.append)

    stream = [2, 3, 4, 1, 5, 1, 1, 2, 3, 4, 5, 6, 1]
    assert tokens_of(prepared, "train") == [stream[0:4], stream[4:8], stream[8:12]]
    assert tokens_of(prepared, "validation") == [[2, 3, 1]]  # shorter than one block: kept whole
    assert {name: prepared.facts[f"{name}_dropped_tokens"] for name in rows} == {"train": 1, "validation": 0}
    assert [message for message in messages if "left out" in message] == [
        "1 train tokens after the last whole row are left out (7.7%)"
    ]
    assert TRUNCATED_SHARE not in prepared.facts


def test_the_first_token_of_each_word_has_its_label(tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    text = "the unbelievable film"
    whole = tokenize_words([text], [[5, 6, 7]], tokenizer, 64)
    (labels,) = whole.labels
    starts = [start for start, _ in tokenizer(text, return_offsets_mapping=True)["offset_mapping"]]

    assert [(starts[place], label) for place, label in enumerate(labels) if label >= 0] == [(0, 5), (4, 6), (17, 7)]
    assert whole.uncut == [len(labels)]
    short = tokenize_words([text], [[5, 6, 7]], tokenizer, 3)
    assert (len(short.ids[0]), short.labels, short.uncut) == (3, [[-100, 5, -100]], whole.uncut)
    last_without_tokens = tokenize_words(["the film \x01"], [[5, 6, 7]], tokenizer, 64)
    assert last_without_tokens.facts(64)[TRUNCATED_SHARE] == 0
