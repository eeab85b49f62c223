"""Texts that share a row are computed as if each were alone in its row."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig

from paretune.specification.job import JobSpec
from paretune.training.model import keeps_texts_apart
from paretune.training.rows.tokenized import Rows, TokenRows, masked, prepare
from paretune.training.tasks import SummedLoss
from tests.support import chats
from tests.support.small_models import SMALL, small

TEXTS = ["in the end", "a", "yes, in a way", "that is not all, and then there is more of it", "so", "the end"]
LENGTH = 16


def joined(folder: Path, texts: list[str], *, joins: bool = True) -> TokenRows:
    rows = {split: Rows(texts=texts) for split in ("train", "validation")}
    spec = JobSpec(task="causal-lm", max_seq_length=LENGTH)
    prepared = prepare(spec, rows, (), chats.tokenizer(), folder, joins=joins)
    return TokenRows(prepared.folder / "train", pad_id=0)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "mistral"])
def test_the_loss_of_joined_texts_is_that_of_each_text_alone(kind: str, attention: str, tmp_path: Path) -> None:
    more = {} if kind != "mistral" else {"sliding_window": 4}
    model = small(kind, "causal-lm", attention, vocab_size=300, use_cache=False, **more).eval()
    rows = joined(tmp_path, TEXTS)

    assert rows.has_joined_texts
    batch = masked(rows.batch(range(len(rows))))
    labels = batch.pop("labels")
    with torch.no_grad():
        logits = model(**batch).logits

    words, loss = chats.tokenizer(), SummedLoss(task="causal-lm")
    total, count, at = torch.zeros(()), 0, 0
    for text in words(TEXTS)["input_ids"]:
        rest = [*text, words.eos_token_id]
        while rest and at < LENGTH * len(rows):  # a text that does not fit in its row goes on in the next one, alone
            number, begin = divmod(at, LENGTH)
            part, rest = rest[: LENGTH - begin], rest[LENGTH - begin :]
            tokens = torch.tensor([part])
            with torch.no_grad():
                alone = model(input_ids=tokens).logits
            torch.testing.assert_close(logits[number, begin : begin + len(part)], alone[0], rtol=0, atol=1e-5)
            total += loss.of_logits(alone, tokens)
            count, at = count + len(part) - 1, at + len(part)
    assert int(rows.label_counts.sum()) == count > 40
    torch.testing.assert_close(loss.of_logits(logits, labels), total, rtol=1e-5, atol=0)


def test_rows_of_one_text_need_no_positions(tmp_path: Path) -> None:
    rows = joined(tmp_path, ["in the end " * 40])

    assert not rows.has_joined_texts
    assert set(rows.batch([0, 1])) == {"input_ids", "attention_mask", "labels"}


def test_padding_of_joined_texts_changes_nothing(tmp_path: Path) -> None:
    model, rows = small("llama", "causal-lm", vocab_size=300, use_cache=False).eval(), joined(tmp_path, ["in", "a"])
    narrow = masked(rows.batch([0]))
    padding = {name: torch.nn.functional.pad(item, (0, 3)) for name, item in narrow.items() if name != "labels"}
    padding["position_ids"][:, -3:] = torch.arange(3)

    assert rows.has_joined_texts
    with torch.no_grad():
        logits = model(input_ids=narrow["input_ids"], position_ids=narrow["position_ids"]).logits
        torch.testing.assert_close(model(**padding).logits[:, : logits.shape[1]], logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "is_apart"),
    [("llama", True), ("gpt2", True), ("gemma3_text", True), ("phi", True), ("opt", False), ("mamba", False)],
)
def test_models_that_cannot_keep_texts_apart_are_found(kind: str, is_apart: bool) -> None:
    more: dict[str, Any] = {"word_embed_proj_dim": 32, "ffn_dim": 48} if kind == "opt" else {}
    values = {name: value for name, value in SMALL.items() if name not in {"num_hidden_layers", "num_labels"}}

    assert keeps_texts_apart(AutoConfig.for_model(kind, **{**values, **more})) is is_apart


def test_models_that_cannot_keep_texts_apart_get_one_text_per_row(tmp_path: Path) -> None:
    rows = joined(tmp_path, TEXTS, joins=False)

    lengths = [len(ids) + 1 for ids in chats.tokenizer()(TEXTS)["input_ids"]]
    expected = [min(LENGTH, length - start) for length in lengths for start in range(0, length, LENGTH)]
    assert rows.lengths.tolist() == expected
    assert rows.label_counts.tolist() == [length - 1 for length in expected]
    assert np.all(rows.batch([1])["attention_mask"].numpy() == 1)
