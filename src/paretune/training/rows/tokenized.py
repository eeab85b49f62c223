"""Tokenizes data sets into arrays of token ids, and makes batches of them.

<key>/train/, validation/, test/    tokens.npy: the tokens of all rows, int32
                                    lengths.npy: the number of tokens in each row, (N,)
                                    labels.npy, except for causal-lm: (N,) int64 classes, (N, C) float32 flags, or one
                                    label for each token, int32
<key>/dataset.json                  PreparedDataset; written last, so that it marks a complete folder

`key` is a hash of rows, labels, tokenizer, task and max_seq_length. All jobs with the same key memory-map the same
folder.
"""

import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paretune.core.errors import BadInput
from paretune.specification.container import PreparedDataset
from paretune.specification.job import JobSpec
from paretune.specification.metrics import CAUSAL_LM, TOKEN_CLASSIFICATION, TRUNCATED_SHARE
from paretune.specification.parallelism import BatchPlan
from paretune.training.tasks import text_baselines, word_baselines

_FORMAT = 5
_SHOWN_DIGEST = 16  # MLflow shows this many hexadecimal digits of the digest of a split's rows
_BATCH = 1000  # texts given to the tokenizer at once
MOST_LENGTHS = 8  # maximum number of distinct batch lengths of a compiled model, so that few shapes are compiled
OF_TENSOR_CORES = 8  # on a GPU, batch lengths are multiples of this
_COUNTED_BATCH = 16  # rows of the batches for which the padding of a data set is counted, the default of a job
POOL_STEPS = 50  # number of steps whose rows are sorted by length together, as in transformers' LengthGroupedSampler


@dataclass(frozen=True, kw_only=True)
class Rows:
    """N texts of one split with their labels: N class ids, (N, C) flags, or N lists with a class id for each word.

    If words have classes, there is exactly one space between two words.
    """

    texts: Sequence[str]
    labels: np.ndarray | None = None
    dropped: "DroppedRows | None" = None  # rows that missing_rows=drop has left out
    is_limited: bool = False  # whether max_train_samples or max_eval_samples, or its default, has left rows out

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True, kw_only=True)
class DroppedRows:
    """The rows that were left out, because they lack a text or label, or have more fields than the header."""

    rows: int
    sentence: str  # says how many rows of which file were left out and why, with the numbers of the first ones


class TokenRows:
    """Reads one split of N rows, and makes batches. `lengths` (N,) holds each row's number of tokens.

    `label_counts` (N,) holds how many labels of each row count in the loss. A batch is as long as its longest row,
    rounded up to a `multiple` of tokens, or to one of a few lengths if `has_few_lengths`. With `longest_first`, rows
    are sorted by descending length, so that batches need little padding.
    """

    def __init__(
        self,
        folder: Path,
        *,
        pad_id: int,
        multiple: int = 1,
        has_few_lengths: bool = False,
        longest_first: bool = False,
    ) -> None:
        self._tokens = np.asarray(np.load(folder / "tokens.npy", mmap_mode="r"))
        lengths = np.load(folder / "lengths.npy")
        self._pad_id, self._longest = pad_id, int(lengths.max(initial=1))
        self._multiple = multiple_for_few_lengths(self._longest) if has_few_lengths else multiple
        order = np.argsort(-lengths, kind="stable") if longest_first else np.arange(len(lengths))
        self.lengths: np.ndarray = lengths[order]
        self._start = (np.cumsum(lengths) - lengths)[order]
        path = folder / "labels.npy"
        self._labels = np.asarray(np.load(path, mmap_mode="r")) if path.exists() else None
        self.label_counts: np.ndarray
        if self._labels is None:  # for causal-lm, the label of each token but the last is the next token
            self.label_counts = np.maximum(self.lengths - 1, 0)
        elif self._labels.dtype == np.int32:  # one label for each token of all rows
            counted = np.concatenate([[0], np.cumsum(self._labels != -100)])
            self.label_counts = counted[self._start + self.lengths] - counted[self._start]
        else:
            self._labels = self._labels[order]
            self.label_counts = np.full(len(self), math.prod(self._labels.shape[1:]))

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, index: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return the batch of the rows `index`: input_ids and attention_mask (B, T) int64, and labels.

        B is len(index), and T is the length of the longest row, or more. Labels are int64 (B,) for classes, float32
        (B, C) for flags, and int64 (B, T) for words. For causal-lm, labels are the tokens, int64 (B, T).
        """
        rows = np.asarray(index)
        length = max(1, int(self.lengths[rows].max()))  # texts may be empty; a batch has at least one column
        width = padded_length(length, self._longest, self._multiple)
        inside = np.arange(width) < self.lengths[rows][:, None]
        positions = np.where(inside, self._start[rows][:, None] + np.arange(width), 0)
        tokens = np.where(inside, self._tokens[positions], self._pad_id).astype(np.int64)
        if self._labels is None:
            labels = np.where(inside, tokens, -100)
        elif self._labels.dtype == np.int32:
            labels = np.where(inside, self._labels[positions], -100).astype(np.int64)
        else:
            labels = self._labels[rows]
        return {
            "input_ids": torch.from_numpy(tokens),
            "attention_mask": torch.from_numpy(inside.astype(np.int64)),
            "labels": torch.from_numpy(labels),
        }


class GlobalBatchSampler:
    """Chooses the rows of each optimizer step, and this rank's share of them.

    The rows of a step depend only on the data set, the global batch size and the seed, and not on the cluster. So one
    process with batch 64, two with 32, and one with 16 and four accumulation steps train on the same rows in each step.
    Without dropout, their results differ only by rounding.

    In each epoch, the rows are shuffled and divided into pools of up to 50 steps (at least four pools if there are
    enough rows). The rows of a pool are sorted by length and cut into steps, and then all steps are shuffled. Only the
    last step of an epoch may be smaller, and its rows are distributed evenly over the devices. In the first epoch, the
    step with the longest row comes first, so that a job that does not fit in memory fails in its first step.
    `lengths` holds each row's number of tokens, and `rank` is the index of this process's share of the rows.
    """

    def __init__(self, lengths: np.ndarray, plan: BatchPlan, *, rank: int, seed: int) -> None:
        self._lengths = lengths
        self.plan = plan
        self._rank = rank
        self._seed = seed
        self._cached: tuple[int, list[np.ndarray]] | None = None  # an epoch and its steps

    @property
    def steps(self) -> int:
        """Number of optimizer steps per epoch."""
        return -(-len(self._lengths) // self.plan.global_batch_size)

    def rows(self, step: int) -> np.ndarray:
        """Return the rows of all devices in the optimizer step `step`, counted from 0."""
        epoch, index = divmod(step, self.steps)
        return self.epoch_steps(epoch)[index]

    def micro_batches(self, step: int) -> list[tuple[list[int], bool]]:
        """Return the rows of this rank in each micro-batch of a step, and whether they count.

        Rows are sorted by length and go to the devices in turn, so each device gets rows of similar length. Because the
        devices wait for each other, a device without a row repeats another device's row, which is not counted again.
        """
        rows = self.rows(step)
        parts = np.array_split(rows, -(-len(rows) // (self.plan.per_device_train_batch_size * self.plan.devices)))
        own = [part[self._rank :: self.plan.devices].tolist() for part in parts]
        return [(mine, True) if mine else (part[:1].tolist(), False) for mine, part in zip(own, parts, strict=True)]

    def epoch_steps(self, epoch: int) -> list[np.ndarray]:
        """Return the rows of all devices in each optimizer step of `epoch`. In a step, the longest row comes first."""
        if self._cached is None or self._cached[0] != epoch:
            self._cached = epoch, self._make_steps(epoch)
        return self._cached[1]

    def _make_steps(self, epoch: int) -> list[np.ndarray]:
        size, rows = self.plan.global_batch_size, len(self._lengths)
        random = np.random.default_rng((self._seed, epoch))
        order = random.permutation(rows)
        if epoch == 0:  # keep the longest row out of the smaller last step
            longest = int(np.argmax(self._lengths[order]))
            order[[0, longest]] = order[[longest, 0]]
        whole, rest = np.split(order, [rows - rows % size])
        pool = size * max(1, min(POOL_STEPS, rows // (4 * size)))
        pools = [self._by_length(whole[start : start + pool]) for start in range(0, len(whole), pool)]
        steps = [part[start : start + size] for part in pools for start in range(0, len(part), size)]
        steps = [steps[index] for index in random.permutation(len(steps))]
        if epoch == 0 and steps:
            first = max(range(len(steps)), key=lambda index: self._lengths[steps[index][0]])
            steps.insert(0, steps.pop(first))
        return steps + ([self._by_length(rest)] if len(rest) else [])

    def _by_length(self, rows: np.ndarray) -> np.ndarray:
        return rows[np.argsort(-self._lengths[rows], kind="stable")]


def padded_length(length: int, longest: int, multiple: int) -> int:
    """Return `length` rounded up to a multiple, but not above `longest`, the length of the longest row.

    The model may have no more positions than that.
    """
    return max(length, min(-(-length // multiple) * multiple, longest))


def multiple_for_few_lengths(longest: int) -> int:
    """Return a multiple with which rows of up to `longest` tokens make batches of at most MOST_LENGTHS lengths."""
    return OF_TENSOR_CORES * -(-longest // (OF_TENSOR_CORES * MOST_LENGTHS))


def padded_tokens(lengths: np.ndarray) -> int:
    """Return the tokens that a GPU computes in an epoch, with padding, if rows have these lengths (N,).

    Batches have 16 rows. Larger ones need a little more padding.
    """
    if not len(lengths):
        return 0
    plan = BatchPlan(
        devices=1, per_device_train_batch_size=_COUNTED_BATCH, gradient_accumulation_steps=1, learning_rate=1.0
    )
    longest, steps = int(lengths.max()), GlobalBatchSampler(lengths, plan, rank=0, seed=0).epoch_steps(0)
    return sum(len(rows) * padded_length(int(lengths[rows[0]]), longest, OF_TENSOR_CORES) for rows in steps)


def masked(batch: dict[str, torch.Tensor], form: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """Give a `TokenRows` batch the mask that needs the fewest kernels: none if no row is padded.

    If a row is padded and there is a dtype `form`, the mask (B, 1, 1, T) is added to the attention scores of all
    layers. It is 0 for tokens, and the lowest number for padding. Without `form`, the mask stays as it is.
    """
    mask = batch["attention_mask"]
    if mask.numpy().all():
        del batch["attention_mask"]
    elif form is not None:
        batch["attention_mask"] = (1 - mask[:, None, None, :]).to(form) * torch.finfo(form).min
    return batch


def prepare(
    spec: JobSpec,
    rows: Mapping[str, Rows],
    labels: tuple[str, ...],
    tokenizer: Any,
    cache: Path,
    say: Callable[[str], None] = lambda _: None,
) -> PreparedDataset:
    """Tokenize `rows`, or reuse them from `cache` if they were prepared with the same tokenizer, task and length.

    The facts of the result are row and token counts, the share of truncated rows, dropped tokens, and baselines. `say`
    is called with messages about progress.
    """
    digests = {split: _digest(part) for split, part in sorted(rows.items())}
    key = _key(spec, digests, labels, tokenizer)
    folder = cache / key
    if not (folder / "dataset.json").exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=cache) as draft:
            made = Path(draft) / key
            made.mkdir()
            facts = _write_splits(spec, rows, tokenizer, made, say)
            say("computing baselines to compare with")
            facts |= _baselines(spec, rows, labels)
            short = {split: digest[:_SHOWN_DIGEST] for split, digest in digests.items()}
            PreparedDataset(key=key, folder=made, labels=labels, facts=facts, digests=short).write()
            try:
                made.rename(folder)
            except OSError:  # the folder exists
                if not (folder / "dataset.json").exists():  # otherwise, another process was faster
                    shutil.rmtree(folder, ignore_errors=True)  # incomplete, because copying it was interrupted
                    made.rename(folder)
    return PreparedDataset.read(folder)


def _baselines(spec: JobSpec, rows: Mapping[str, Rows], labels: tuple[str, ...]) -> dict[str, float]:
    pairs = [(part.texts, part.labels) for part in (rows["train"], rows["validation"]) if part.labels is not None]
    if not pairs:
        return {}
    train, validation = pairs
    if spec.task == TOKEN_CLASSIFICATION:
        return word_baselines(train, validation, labels)
    return text_baselines(train, validation)


def _key(spec: JobSpec, digests: Mapping[str, str], labels: tuple[str, ...], tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        rules: Any = [type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())]
    else:  # without truncation and padding, which the last call has set
        rules = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    rules = [rules, tokenizer.truncation_side, tokenizer.eos_token_id, sorted(tokenizer.all_special_ids)]
    header = [_FORMAT, spec.task, spec.max_seq_length, rules, labels, digests]
    return hashlib.sha256(json.dumps(header).encode()).hexdigest()[:32]


def _digest(rows: Rows) -> str:
    digest = hashlib.sha256()
    for text in rows.texts:
        digest.update(json.dumps(text).encode())
    digest.update(b"" if rows.labels is None else json.dumps(rows.labels.tolist()).encode())
    return digest.hexdigest()


def _write_splits(
    spec: JobSpec, rows: Mapping[str, Rows], tokenizer: Any, folder: Path, say: Callable[[str], None]
) -> dict[str, float]:
    facts: dict[str, float] = {}
    for split, part in rows.items():
        say(f"tokenizing {len(part):,} {split} rows")
        labels: Any = part.labels
        truncated: int | None = None
        if spec.task == CAUSAL_LM:
            tokens, dropped = _blocks(part.texts, tokenizer, spec.max_seq_length)
            facts[f"{split}_dropped_tokens"] = dropped
            if dropped:
                share = dropped / (dropped + sum(map(len, tokens)))
                say(f"{dropped:,} {split} tokens after the last whole row are left out ({share:.1%})")
        elif spec.task == TOKEN_CLASSIFICATION and part.labels is not None:
            tokens, labels, truncated = tokenize_words(part.texts, part.labels, tokenizer, spec.max_seq_length)
        else:
            tokens, truncated = _tokenize(part.texts, tokenizer, spec.max_seq_length)
        if split == "train" and truncated is not None:
            facts[TRUNCATED_SHARE] = truncated / len(tokens)
        _write_split(folder / split, tokens, labels)
        facts |= {f"{split}_rows": len(tokens), f"{split}_tokens": sum(map(len, tokens))}
        if split == "train":
            facts["train_padded_tokens"] = padded_tokens(np.array([len(row) for row in tokens], dtype=np.int64))
    return facts


def _tokenize(texts: Sequence[str], tokenizer: Any, limit: int) -> tuple[list[list[int]], int]:
    """Return at most `limit` token ids of each text, and how many texts were cut: always 0 for a slow tokenizer."""
    tokens, truncated = list[list[int]](), 0
    for start in range(0, len(texts), _BATCH):
        batch = list(texts[start : start + _BATCH])
        encoded = tokenizer(batch, truncation=True, max_length=limit, return_attention_mask=False)
        tokens += encoded["input_ids"]
        truncated += sum(bool(row.overflowing) for row in encoded.encodings or ())  # a slow tokenizer has none
    return tokens, truncated


def tokenize_words(
    texts: Sequence[str], labels: Iterable[Sequence[int]], tokenizer: Any, limit: int
) -> tuple[list[list[int]], list[list[int]], int]:
    """Tokenize rows of words to at most `limit` ids each. Also return a label for each id.

    The third value is the number of rows that were cut. Words have one space between them. The first token of a word
    gets the word's label, and all other tokens get -100. Some words, such as control characters, may have no tokens.
    """
    if not tokenizer.is_fast:  # a slow one does not return the position of a token in the text
        name = type(tokenizer).__name__
        raise BadInput([f"task {TOKEN_CLASSIFICATION} needs a fast tokenizer, got {name}: choose another model"])
    tokens, targets, truncated = [], [], 0
    for text, of_words in zip(texts, labels, strict=True):
        encoded = tokenizer(text, return_offsets_mapping=True, truncation=True, max_length=limit)
        word_of_character = np.cumsum([character == " " for character in text])
        target, last = [-100] * len(encoded["input_ids"]), -1
        for token, (start, end) in enumerate(encoded["offset_mapping"]):
            # The end of a token is inside its word; its beginning may be the space before the word.
            if end > start and text[end - 1] != " " and (word := int(word_of_character[end - 1])) > last:
                target[token], last = of_words[word], word
        tokens.append(encoded["input_ids"])
        targets.append(target)
        truncated += bool(encoded.encodings[0].overflowing)
    return tokens, targets, truncated


def _blocks(texts: Sequence[str], tokenizer: Any, length: int) -> tuple[list[list[int]], int]:
    """Join all texts, each followed by the end-of-text token, and return them cut into blocks of `length` tokens.

    The tokens after the last whole block are dropped, and their number is returned as well. If all texts together are
    shorter than a block, they become one short block.
    """
    stream: list[int] = []
    for start in range(0, len(texts), _BATCH):
        for ids in tokenizer(list(texts[start : start + _BATCH]), return_attention_mask=False)["input_ids"]:
            stream += ids
            if tokenizer.eos_token_id is not None and (not ids or ids[-1] != tokenizer.eos_token_id):
                stream.append(tokenizer.eos_token_id)
    length = min(length, len(stream))
    if not length:
        return [], 0
    whole = len(stream) - len(stream) % length
    return [stream[start : start + length] for start in range(0, whole, length)], len(stream) - whole


def _write_split(folder: Path, tokens: Sequence[Sequence[int]], labels: Any) -> None:
    folder.mkdir()
    np.save(folder / "tokens.npy", np.fromiter(chain.from_iterable(tokens), np.int32))
    np.save(folder / "lengths.npy", np.array([len(row) for row in tokens], np.int64))
    if isinstance(labels, list):
        labels = np.fromiter(chain.from_iterable(labels), np.int32)
    if labels is not None:
        np.save(folder / "labels.npy", labels)
