"""Describes the rows of a job before it costs anything: classes, lengths, duplicates, and rows that are left out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from paretune.core.noise import binomial_error
from paretune.core.shell import options
from paretune.specification import metrics
from paretune.specification.chats import Completion, Document
from paretune.specification.container import DataFindings, PreparedDataset
from paretune.specification.inputs import DataArguments
from paretune.training.rows.tokenized import Rows

_MOST_NAMED = 8  # a sentence names at most this many classes
_FEW_ROWS = 30  # warn below this number of validation rows: with 30, an F1 of 0.8 has a standard error of 7 points
_FEW_CUT = 0.01  # warn if max_seq_length cuts off more than this share of the tokens
_MOST_TOKENS, _ROUND = 0.95, 64  # the share of tokens that a proposed length keeps; it is a multiple of 64
_MANY_DUPLICATES = 0.01  # warn if more than this share of validation texts are also training texts


def data_findings(
    data: DataArguments,
    rows: Mapping[str, Rows],
    names: Sequence[str],
    prepared: PreparedDataset,
    model: str,
    positions: int | None,
) -> DataFindings:
    """Return a description of a job's rows, warnings with remedies, and the number of rows that were left out.

    `positions` is the length of the longest row that the model `model` accepts, or None if it accepts any.
    """
    counts = {split: _class_counts(data, part, names) for split, part in rows.items()}
    duplicates = len(_shared(rows["train"].documents, rows["validation"].documents))
    lengths = np.load(prepared.folder / "train" / "lengths.npy")
    parts = [
        _classes(counts["train"], data.task),
        _chats(rows["train"], prepared.facts),
        f"{lengths.mean():.0f} tokens per row, at most {lengths.max()}",
        f"{duplicates} of {len(rows['validation'])} validation texts are also training texts" if duplicates else "",
    ]
    uncut = None
    if prepared.facts.get(metrics.KEPT_SHARE, 1.0) < 1 - _FEW_CUT:
        uncut = np.load(prepared.folder / "train" / "uncut.npy")
    dropped = [part.dropped for part in rows.values() if part.dropped]
    warnings = [
        *(each.sentence for each in dropped),
        *([] if uncut is None else [_cut(data, prepared, uncut, model, positions)]),
        *_unlearned(data, prepared.facts),
        *_spelling(names),
        *_unmeasured(data, counts, rows["validation"]),
        *_few(data, rows["validation"]),
        *_repeated(data, duplicates, len(rows["validation"])),
    ]
    facts = {metrics.DROPPED_ROWS: float(sum(each.rows for each in dropped))} if dropped else {}
    if uncut is not None:
        facts[metrics.LENGTH_FOR_MOST_TOKENS] = float(length_for(uncut, _MOST_TOKENS))
    return DataFindings(words="; ".join(filter(None, parts)), warnings=tuple(warnings), facts=facts)


def _class_counts(data: DataArguments, part: Rows, names: Sequence[str]) -> dict[str, int]:
    """Return the number of rows, or words, of each class or label, in the order of `names`; empty without labels."""
    if part.labels is None:
        return {}
    if data.task == metrics.MULTI_LABEL:
        numbers = part.labels.sum(axis=0).astype(int).tolist()
        return dict(zip(names, numbers, strict=True))
    flat = part.labels if data.task == metrics.CLASSIFICATION else [each for row in part.labels for each in row]
    counts = Counter(int(number) for number in flat)
    return {name: counts[number] for number, name in enumerate(names)}


def _classes(counts: Mapping[str, int], task: str) -> str:
    if not counts:
        return ""
    kind = "classes" if task == metrics.CLASSIFICATION else "labels"
    named = ", ".join(f"{name} {count}" for name, count in [*counts.items()][:_MOST_NAMED])
    more = f" and {len(counts) - _MOST_NAMED} more, the rarest with {min(counts.values())}"
    return f"{len(counts)} {kind}: {named}{more if len(counts) > _MOST_NAMED else ''}"


def _chats(rows: Rows, facts: Mapping[str, float]) -> str:
    """Return how conversations are learned; "" for rows of text."""
    if metrics.LEARNED_SHARE not in facts:
        return ""
    share = f"{facts[metrics.LEARNED_SHARE]:.0%} of the tokens are learned"
    if isinstance(rows.chats[0], Completion):
        return f"prompts with completions: {share}, those of the completions"
    return f"conversations in the model's chat template: {share}, those of the assistant's messages"


def _cut(data: DataArguments, prepared: PreparedDataset, uncut: np.ndarray, model: str, positions: int | None) -> str:
    """Return how much of the rows with these lengths (N,) max_seq_length cuts off, and which length cuts less."""
    facts = prepared.facts
    kept = facts[metrics.KEPT_SHARE]
    aim = _MOST_TOKENS if kept < _MOST_TOKENS else 1 - _FEW_CUT
    length = length_for(uncut, aim)
    rule = f"max_seq_length={data.max_seq_length} keeps {kept:.0%} of the tokens"
    rows = f"it cuts the end off {facts[metrics.TRUNCATED_SHARE]:.0%} of the {len(uncut):,} training rows"
    if positions is None or length <= positions:
        return f"{rule}: {rows}; {options(max_seq_length=length)} would keep {aim:.0%}"
    most = f"{aim:.0%} would need {length:,}, but {model} reads at most {positions:,}"
    if positions > data.max_seq_length:
        share = np.minimum(uncut, positions).sum() / uncut.sum()
        most += f"; {options(max_seq_length=positions)} would keep {share:.0%}"
    return f"{rule}: {rows}; {most}"


def _unlearned(data: DataArguments, facts: Mapping[str, float]) -> list[str]:
    if not (rows := int(facts.get(metrics.UNLEARNED_ROWS, 0))):
        return []
    some = f"{rows:,} training row{'s are' if rows > 1 else ' is'} left out"
    reason = f"nothing to learn is among the first {data.max_seq_length} tokens"
    return [f"{some}, because {reason}: raise max_seq_length, or shorten what comes before"]


def length_for(lengths: np.ndarray, share: float) -> int:
    """Return a length at which rows of these lengths (N,) can be cut and keep this share of their tokens.

    It is rounded up to a multiple of 64.
    """
    low, high = 0, int(lengths.max())
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if np.minimum(lengths, middle).sum() >= share * lengths.sum() else (middle + 1, high)
    return _ROUND * -(-high // _ROUND)


def _shared(train: Iterable[Document], validation: Iterable[Document]) -> list[Document]:
    learned = {*train}
    return [text for text in validation if text in learned]


def _spelling(names: Iterable[str]) -> list[str]:
    alike = defaultdict(list)
    for name in names:
        alike[" ".join(name.casefold().split())].append(name)
    groups = [" and ".join(map(repr, group)) for group in alike.values() if len(group) > 1]
    if not groups:
        return []
    return [
        f"classes differ only in capitals or spaces ({'; '.join(groups)}): spell each class the same way everywhere"
    ]


def _unmeasured(data: DataArguments, counts: Mapping[str, Mapping[str, int]], rows: Rows) -> list[str]:
    missing = [name for name, count in counts["validation"].items() if not count]
    if not missing or data.task == metrics.TOKEN_CLASSIFICATION:
        return []
    named = ", ".join(missing[:_MOST_NAMED])
    added = "give more rows of each" if data.validation_file is None else "add rows of each to validation_file"
    remedy = _higher_limit(data, rows) or added
    some = f"{len(missing)} of {len(counts['validation'])} classes have no validation row ({named})"
    return [f"{some}, so F1 does not measure them: {remedy}, or leave them out"]


def _few(data: DataArguments, rows: Rows) -> list[str]:
    if len(rows) >= _FEW_ROWS or data.task == metrics.CAUSAL_LM:  # causal-lm has no F1
        return []
    error, plural = binomial_error(0.8, len(rows)), "s" * (len(rows) != 1)
    remedy = _higher_limit(data, rows) or "give more rows, or a validation_file"
    return [f"F1 of {len(rows)} validation row{plural} has a standard error of about {error:.2f}: {remedy}"]


def _higher_limit(data: DataArguments, rows: Rows) -> str:
    """Return how to raise the limit that has left only these validation rows, or "" if no limit has."""
    if not rows.is_limited:
        return ""
    if data.max_eval_samples is not None:
        return "raise max_eval_samples"
    return "set max_eval_samples (by default a ninth of max_train_samples)"


def _repeated(data: DataArguments, duplicates: int, rows: int) -> list[str]:
    if duplicates <= _MANY_DUPLICATES * rows:
        return []
    some = f"{duplicates} of {rows} validation texts are also training texts"
    biased = "perplexity may be too low" if data.task == metrics.CAUSAL_LM else "F1 may be too high"
    return [f"{some}: {biased}, because the model learns them; remove duplicates from the data"]
