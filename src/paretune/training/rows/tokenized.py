"""Tokenizes data sets into arrays of token ids, and makes batches of them.

<key>/train/, validation/, test/    tokens.npy: the tokens of all rows, int32
                                    lengths.npy: the number of tokens in each row, (N,)
                                    labels.npy: (N,) int64 classes, (N, C) float32 flags, or one label for each token,
                                    int32; absent if a language model learns every token that follows another one
                                    documents.npy, for texts that are joined: where in tokens.npy each text begins
<key>/train/uncut.npy               the length that each row has without max_seq_length, (N,); absent for joined texts
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
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paretune.core.errors import BadInput
from paretune.specification.chats import Chat, Completion, Document, first_of
from paretune.specification.container import PreparedDataset
from paretune.specification.inputs import DataArguments
from paretune.specification.metrics import (
    CAUSAL_LM,
    KEPT_SHARE,
    LEARNED_SHARE,
    TOKEN_CLASSIFICATION,
    TRUNCATED_SHARE,
    UNLEARNED_ROWS,
)
from paretune.specification.parallelism import BatchPlan
from paretune.training.rows import chats
from paretune.training.tasks import text_baselines, word_baselines

_FORMAT = 6
_SHOWN_DIGEST = 16  # MLflow shows this many hexadecimal digits of the digest of a split's rows
_BATCH = 1000  # texts given to the tokenizer at once
MOST_LENGTHS = 8  # maximum number of distinct batch lengths of a compiled model, so that few shapes are compiled
OF_TENSOR_CORES = 8  # on a GPU, batch lengths are multiples of this
_CHARACTERS_PER_TOKEN = 64  # of a long text, so many times max_seq_length are read, at least _LEAST_CHARACTERS
_LEAST_CHARACTERS = 50_000
_COUNTED_BATCH = 16  # rows of the batches for which the padding of a data set is counted, the default of a job
POOL_STEPS = 50  # number of steps whose rows are sorted by length together, as in transformers' LengthGroupedSampler


@dataclass(frozen=True, kw_only=True)
class Rows:
    """N texts of one split with their labels: N class ids, (N, C) flags, or N lists with a class id for each word.

    If words have classes, there is exactly one space between two words. For causal-lm, there are no labels, and instead
    of texts, there may be N conversations, or N prompts with completions.
    """

    texts: Sequence[str] = ()
    chats: Sequence[Chat | Completion] = ()
    labels: np.ndarray | None = None
    source: str = ""  # the file or data set, for messages
    numbers: Sequence[int] = ()  # the number of each row in its source, counted from 1, for messages
    dropped: "DroppedRows | None" = None  # rows that missing_rows=drop has left out
    is_limited: bool = False  # whether max_train_samples or max_eval_samples, or its default, has left rows out

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def documents(self) -> Sequence[Document]:
        """The texts, or what there is instead of them."""
        return self.chats or self.texts


@dataclass(frozen=True, kw_only=True)
class DroppedRows:
    """The rows that were left out, because they lack a text or label, or have more fields than the header."""

    rows: int
    sentence: str  # says how many rows of which file were left out and why, with the numbers of the first ones
    kept: np.ndarray  # the numbers of the other rows, counted from 1


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
        path = folder / "documents.npy"
        self._documents = np.load(path) if path.exists() else None
        counts = np.ones(len(self.lengths), np.int64)  # of texts in each row
        if self._documents is not None:
            ends = np.searchsorted(self._documents, self._start + self.lengths)
            counts += ends - np.searchsorted(self._documents, self._start, side="right")
        self._is_joined = counts > 1
        self.label_counts: np.ndarray
        if self._labels is None:  # for causal-lm, the label of each token but a text's last is the next token
            self.label_counts = np.maximum(self.lengths - counts, 0)
        elif self._labels.dtype == np.int32:  # one label for each token of all rows
            counted = np.concatenate([[0], np.cumsum(self._labels != -100)])
            self.label_counts = counted[self._start + self.lengths] - counted[self._start]
        else:
            self._labels = self._labels[order]
            self.label_counts = np.full(len(self), math.prod(self._labels.shape[1:]))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def has_joined_texts(self) -> bool:
        """Whether any row has tokens of several texts, which must not attend to one another."""
        return bool(self._is_joined.any())

    def batch(self, index: Sequence[int]) -> dict[str, torch.Tensor]:
        """Return the batch of the rows `index`: input_ids and attention_mask (B, T) int64, and labels.

        B is len(index), and T is the length of the longest row, or more. Labels are int64 (B,) for classes, float32
        (B, C) for flags, and int64 (B, T) for words. For causal-lm, labels are the tokens, int64 (B, T); tokens that
        are not learned have the label -100, such as the first one of a text. If a row has several texts, the batch has
        position_ids (B, T) int64 instead of a mask, which start from 0 in each text: from them, transformers makes
        masks with which a token attends to earlier tokens of its text only. Padding is a text of its own.
        """
        rows = np.asarray(index)
        length = max(1, int(self.lengths[rows].max()))  # texts may be empty; a batch has at least one column
        width = padded_length(length, self._longest, self._multiple)
        inside = np.arange(width) < self.lengths[rows][:, None]
        positions = np.where(inside, self._start[rows][:, None] + np.arange(width), 0)
        tokens = np.where(inside, self._tokens[positions], self._pad_id).astype(np.int64)
        mask = {"attention_mask": torch.from_numpy(inside.astype(np.int64))}
        if self._documents is not None:
            begins = self._documents[np.searchsorted(self._documents, positions, side="right") - 1]
            places = positions - np.maximum(begins, self._start[rows][:, None])  # in the part of a text in this row
            labels = np.where(inside & (places > 0), tokens, -100)
            if self._is_joined[rows].any():
                places = np.where(inside, places, np.arange(width) - self.lengths[rows][:, None])
                mask = {"position_ids": torch.from_numpy(places)}
        elif self._labels is None:
            labels = np.where(inside, tokens, -100)
        elif self._labels.dtype == np.int32:
            labels = np.where(inside, self._labels[positions], -100).astype(np.int64)
        else:
            labels = self._labels[rows]
        return {"input_ids": torch.from_numpy(tokens), **mask, "labels": torch.from_numpy(labels)}


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
    layers. It is 0 for tokens, and the lowest number for padding. Without `form`, the mask stays as it is. A batch with
    position_ids has no mask.
    """
    mask = batch.get("attention_mask")
    if mask is None:
        return batch
    if mask.numpy().all():
        del batch["attention_mask"]
    elif form is not None:
        batch["attention_mask"] = (1 - mask[:, None, None, :]).to(form) * torch.finfo(form).min
    return batch


def prepare(
    data: DataArguments,
    rows: Mapping[str, Rows],
    labels: tuple[str, ...],
    tokenizer: Any,
    cache: Path,
    say: Callable[[str], None] = lambda _: None,
    *,
    joins: bool = True,
) -> PreparedDataset:
    """Tokenize `rows`, or reuse them from `cache` if they were prepared with the same tokenizer, task and length.

    The facts of the result are row and token counts, the shares of truncated rows and of kept tokens, dropped
    tokens, and baselines.
    `say` is called with messages about progress. `joins` says whether a language model's texts share rows; otherwise,
    each text is a row, or several if it is long. Raises BadInput if conversations cannot be written as text.
    """
    digests = {split: _digest(part) for split, part in sorted(rows.items())}
    key = _key(data, digests, labels, tokenizer, joins=joins)
    folder = cache / key
    if not (folder / "dataset.json").exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=cache) as draft:
            made = Path(draft) / key
            made.mkdir()
            facts = _write_splits(data, rows, tokenizer, made, say, joins=joins)
            say("computing baselines to compare with")
            facts |= _baselines(data, rows, labels)
            short = {split: digest[:_SHOWN_DIGEST] for split, digest in digests.items()}
            PreparedDataset(key=key, folder=made, labels=labels, facts=facts, digests=short).write()
            try:
                made.rename(folder)
            except OSError:  # the folder exists
                if not (folder / "dataset.json").exists():  # otherwise, another process was faster
                    shutil.rmtree(folder, ignore_errors=True)  # incomplete, because copying it was interrupted
                    made.rename(folder)
    return PreparedDataset.read(folder)


def _baselines(data: DataArguments, rows: Mapping[str, Rows], labels: tuple[str, ...]) -> dict[str, float]:
    pairs = [(part.texts, part.labels) for part in (rows["train"], rows["validation"]) if part.labels is not None]
    if not pairs:
        return {}
    train, validation = pairs
    if data.task == TOKEN_CLASSIFICATION:
        return word_baselines(train, validation, labels)
    train, validation = (
        ([_part(text, data.max_seq_length, "right") for text in texts], classes) for texts, classes in pairs
    )
    return text_baselines(train, validation)


def _key(
    data: DataArguments, digests: Mapping[str, str], labels: tuple[str, ...], tokenizer: Any, *, joins: bool
) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        rules: Any = [type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())]
    else:  # without truncation and padding, which the last call has set
        rules = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    rules = [rules, tokenizer.truncation_side, tokenizer.eos_token_id, sorted(tokenizer.all_special_ids)]
    if data.task == CAUSAL_LM:
        rules += [tokenizer.chat_template, joins]
    header = [_FORMAT, data.task, data.max_seq_length, rules, labels, digests]
    return hashlib.sha256(json.dumps(header).encode()).hexdigest()[:32]


def _digest(rows: Rows) -> str:
    digest = hashlib.sha256()
    for document in rows.documents:
        digest.update(json.dumps(document).encode())
    digest.update(b"" if rows.labels is None else json.dumps(rows.labels.tolist()).encode())
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Tokens:
    """The token ids of N rows; labels for each id, for each row, or none; and lengths before rows were cut (`uncut`).

    Joined texts have no such lengths, but the places in all ids where each text begins (`documents`).
    """

    ids: list[list[int]]
    labels: Any = None
    uncut: list[int] | None = None
    documents: list[int] | None = None
    dropped: int | None = None  # tokens of joined texts after the last whole row
    unlearned: int = 0  # conversations that have lengths but no ids, because nothing to learn is left after the cut

    def facts(self, limit: int) -> dict[str, float]:
        """Return the share of rows that were cut, and the share of tokens that were kept; none for joined texts."""
        if self.uncut is None:
            return {}
        cut = sum(length > limit for length in self.uncut)
        kept = sum(map(len, self.ids)) / max(1, sum(self.uncut))
        return {TRUNCATED_SHARE: cut / max(1, len(self.uncut)), KEPT_SHARE: kept}


def _write_splits(
    data: DataArguments,
    rows: Mapping[str, Rows],
    tokenizer: Any,
    folder: Path,
    say: Callable[[str], None],
    *,
    joins: bool,
) -> dict[str, float]:
    facts: dict[str, float] = {}
    for split, part in rows.items():
        say(f"tokenizing {len(part):,} {split} rows")
        if data.task == CAUSAL_LM:
            tokens = _of_language_model(split, part, tokenizer, data.max_seq_length, joins=joins)
            if tokens.dropped is not None:
                facts[f"{split}_dropped_tokens"] = tokens.dropped
            if tokens.dropped:
                share = tokens.dropped / (tokens.dropped + sum(map(len, tokens.ids)))
                say(f"{tokens.dropped:,} {split} tokens after the last whole row are left out ({share:.1%})")
        elif data.task == TOKEN_CLASSIFICATION and part.labels is not None:
            tokens = tokenize_words(part.texts, part.labels, tokenizer, data.max_seq_length)
        else:
            tokens = replace(_tokenize(part.texts, tokenizer, data.max_seq_length), labels=part.labels)
        _write_split(folder / split, tokens.ids, tokens.labels, documents=tokens.documents)
        facts |= {f"{split}_rows": len(tokens.ids), f"{split}_tokens": sum(map(len, tokens.ids))}
        if split != "train":
            continue
        facts |= tokens.facts(data.max_seq_length)
        facts["train_padded_tokens"] = padded_tokens(np.array([len(row) for row in tokens.ids], dtype=np.int64))
        if tokens.uncut is not None:
            np.save(folder / split / "uncut.npy", np.array(tokens.uncut, np.int64))
        if data.task == CAUSAL_LM and tokens.labels is not None:
            learned = sum(label != -100 for row in tokens.labels for label in row)
            facts[LEARNED_SHARE] = learned / max(1, facts["train_tokens"])
            facts[UNLEARNED_ROWS] = tokens.unlearned
    return facts


def _tokenize(texts: Sequence[str], tokenizer: Any, limit: int) -> _Tokens:
    """Return at most `limit` token ids of each text.

    Of a very long text, only the part that is kept and some more is tokenized, and the length of all is extrapolated.
    """
    ids, uncut = list[list[int]](), list[int]()
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        parts = [_part(text, limit, tokenizer.truncation_side) for text in batch]
        tokens = _tokenize_whole(parts, tokenizer, limit)
        for text, part, row, length in zip(batch, parts, *tokens, strict=True):
            if len(part) < len(text) and length < 2 * limit:  # nearly all of the part has no tokens
                ((row,), (length,)) = _tokenize_whole([text], tokenizer, limit)
                part = text
            ids.append(row)
            uncut.append(length if part is text else round(length * len(text) / len(part)))
    return _Tokens(ids=ids, uncut=uncut)


def _part(text: str, limit: int, cut_side: str) -> str:
    """Return a text without what lies far beyond `limit` tokens on the side that is cut, up to a space."""
    most = max(_LEAST_CHARACTERS, _CHARACTERS_PER_TOKEN * limit)
    if len(text) <= most:
        return text
    if cut_side == "left":
        start = text.find(" ", len(text) - most)
        return text[start if start >= 0 else len(text) - most :]
    end = text.rfind(" ", 0, most)
    return text[: end if end > 0 else most]


def _tokenize_whole(texts: Sequence[str], tokenizer: Any, limit: int) -> tuple[list[list[int]], list[int]]:
    """Return at most `limit` token ids of each text, and the number of all its tokens."""
    encoded = tokenizer(list(texts), truncation=True, max_length=limit, return_attention_mask=False)
    if encoded.encodings is None:  # a slow tokenizer does not keep what it cuts
        return encoded["input_ids"], [*map(len, tokenizer(list(texts), return_attention_mask=False)["input_ids"])]
    added = tokenizer.num_special_tokens_to_add()  # each part that was cut off has special tokens of its own
    uncut = (len(row) + sum(len(part) - added for part in row.overflowing) for row in encoded.encodings)
    return encoded["input_ids"], [*uncut]


def tokenize_words(texts: Sequence[str], labels: Iterable[Sequence[int]], tokenizer: Any, limit: int) -> _Tokens:
    """Tokenize rows of words to at most `limit` ids each, with a label for each id.

    Words have one space between them. The first token of a word
    gets the word's label, and all other tokens get -100. Some words, such as control characters, may have no tokens.
    """
    if not tokenizer.is_fast:  # a slow one does not return the position of a token in the text
        name = type(tokenizer).__name__
        raise BadInput([f"task {TOKEN_CLASSIFICATION} needs a fast tokenizer, got {name}: choose another model"])
    tokens, targets, uncut, added = [], [], [], tokenizer.num_special_tokens_to_add()
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
        cut_off = encoded.encodings[0].overflowing
        uncut.append(len(encoded["input_ids"]) + sum(len(part) - added for part in cut_off))
    return _Tokens(ids=tokens, labels=targets, uncut=uncut)


def _of_language_model(split: str, rows: Rows, tokenizer: Any, limit: int, *, joins: bool) -> _Tokens:
    """Return the rows of a language model, of at most `limit` tokens: joined texts, single texts, or conversations."""
    if rows.chats:
        return _tokenize_chats(split, rows, tokenizer, limit)
    whole = _with_ends(rows.texts, tokenizer)
    if joins:
        return _blocks(whole, limit)
    return _Tokens(ids=[text[start : start + limit] for text in whole for start in range(0, len(text), limit)])


def _tokenize_chats(split: str, rows: Rows, tokenizer: Any, limit: int) -> _Tokens:
    """Return the first `limit` tokens of each conversation. Labels are the tokens that are learned, and -100.

    Conversations without a token to learn among them are left out.
    """
    ids, labels, uncut, wrong, unlearned = [], [], [], list[str](), 0
    for number, chat in zip(rows.numbers or range(1, len(rows) + 1), rows.chats, strict=True):
        try:
            encoded = chats.encode(tokenizer, chat)
        except chats.UnlearnableChat as error:
            wrong.append(f"row {number}: {error}")
            continue
        uncut.append(len(encoded.ids))
        kept = encoded.ids[:limit]
        # The first token is never learned: no token comes before it.
        pairs = zip(kept[1:], encoded.is_learned[1:], strict=False)
        learned = [-100, *(token if marked else -100 for token, marked in pairs)]
        if all(label == -100 for label in learned):
            unlearned += 1
            continue
        ids.append(kept)
        labels.append(learned)
    if wrong:
        rule = f"{len(wrong)} of {len(rows)} {split} rows of {rows.source} cannot be learned"
        raise BadInput([f"{rule}: {first_of(wrong)}"])
    if not ids:
        raise BadInput(
            [f"no {split} row of {rows.source} has a token to learn within max_seq_length={limit}: raise it"]
        )
    return _Tokens(ids=ids, labels=labels, uncut=uncut, unlearned=unlearned)


def _with_ends(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Return the tokens of each text, followed by the end-of-text token."""
    whole, end = list[list[int]](), tokenizer.eos_token_id
    for start in range(0, len(texts), _BATCH):
        for ids in tokenizer(list(texts[start : start + _BATCH]), return_attention_mask=False)["input_ids"]:
            whole.append(ids if end is None or (ids and ids[-1] == end) else [*ids, end])
    return whole


def _blocks(texts: Sequence[Sequence[int]], length: int) -> _Tokens:
    """Join texts, and return them cut into blocks of `length` tokens.

    The tokens after the last whole block are dropped. If all texts together are shorter than a block, they become one
    short block.
    """
    stream = [*chain.from_iterable(texts)]
    lengths = [len(text) for text in texts if text]
    documents = np.cumsum([0, *lengths[:-1]]).tolist()
    length = min(length, len(stream))
    if not length:
        return _Tokens(ids=[], documents=documents, dropped=0)
    kept = len(stream) - len(stream) % length
    blocks = [stream[start : start + length] for start in range(0, kept, length)]
    return _Tokens(ids=blocks, documents=documents, dropped=len(stream) - kept)


def _write_split(
    folder: Path, tokens: Sequence[Sequence[int]], labels: Any, *, documents: Sequence[int] | None = None
) -> None:
    folder.mkdir()
    if documents is not None:
        np.save(folder / "documents.npy", np.array(documents, np.int64))
    np.save(folder / "tokens.npy", np.fromiter(chain.from_iterable(tokens), np.int32))
    np.save(folder / "lengths.npy", np.array([len(row) for row in tokens], np.int64))
    if isinstance(labels, list):
        labels = np.fromiter(chain.from_iterable(labels), np.int32)
    if labels is not None:
        np.save(folder / "labels.npy", labels)
