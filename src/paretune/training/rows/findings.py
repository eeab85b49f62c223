"""Describes the rows of a job before it costs anything: classes, lengths, duplicates, and rows that are left out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from paretune.core.noise import binomial_error
from paretune.specification import metrics
from paretune.specification.container import DataFindings, PreparedDataset
from paretune.specification.job import JobSpec
from paretune.training.rows.tokenized import Rows

_MOST_NAMED = 8  # a sentence names at most this many classes
_FEW_ROWS = 30  # warn below this number of validation rows: with 30, an F1 of 0.8 has a standard error of 7 points
_MANY_DUPLICATES = 0.01  # warn if more than this share of validation texts are also training texts


def data_findings(
    spec: JobSpec, rows: Mapping[str, Rows], names: Sequence[str], prepared: PreparedDataset
) -> DataFindings:
    """Return a description of a job's rows, warnings with remedies, and the number of rows that were left out."""
    counts = {split: _class_counts(spec, part, names) for split, part in rows.items()}
    duplicates = len(_shared(rows["train"].texts, rows["validation"].texts))
    lengths = np.load(prepared.folder / "train" / "lengths.npy")
    parts = [
        _classes(spec, counts["train"]),
        f"{lengths.mean():.0f} tokens per row, at most {lengths.max()}",
        f"{duplicates} of {len(rows['validation'])} validation texts are also training texts" if duplicates else "",
    ]
    dropped = [part.dropped for part in rows.values() if part.dropped]
    warnings = [
        *(each.sentence for each in dropped),
        *_spelling(names),
        *_unmeasured(spec, counts, rows["validation"]),
        *_few(spec, rows["validation"]),
        *_repeated(spec, duplicates, len(rows["validation"])),
    ]
    facts = {metrics.DROPPED_ROWS: float(sum(each.rows for each in dropped))} if dropped else {}
    return DataFindings(words="; ".join(filter(None, parts)), warnings=tuple(warnings), facts=facts)


def _class_counts(spec: JobSpec, part: Rows, names: Sequence[str]) -> dict[str, int]:
    """Return the number of rows, or words, of each class or label, in the order of `names`; empty without labels."""
    if part.labels is None:
        return {}
    if spec.task == metrics.MULTI_LABEL:
        numbers = part.labels.sum(axis=0).astype(int).tolist()
        return dict(zip(names, numbers, strict=True))
    flat = part.labels if spec.task == metrics.CLASSIFICATION else [each for row in part.labels for each in row]
    counts = Counter(int(number) for number in flat)
    return {name: counts[number] for number, name in enumerate(names)}


def _classes(spec: JobSpec, counts: Mapping[str, int]) -> str:
    if not counts:
        return ""
    kind = "classes" if spec.task == metrics.CLASSIFICATION else "labels"
    named = ", ".join(f"{name} {count}" for name, count in [*counts.items()][:_MOST_NAMED])
    more = f" and {len(counts) - _MOST_NAMED} more, the rarest with {min(counts.values())}"
    return f"{len(counts)} {kind}: {named}{more if len(counts) > _MOST_NAMED else ''}"


def _shared(train: Iterable[str], validation: Iterable[str]) -> list[str]:
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


def _unmeasured(spec: JobSpec, counts: Mapping[str, Mapping[str, int]], rows: Rows) -> list[str]:
    missing = [name for name, count in counts["validation"].items() if not count]
    if not missing or spec.task == metrics.TOKEN_CLASSIFICATION:
        return []
    named = ", ".join(missing[:_MOST_NAMED])
    added = "give more rows of each" if spec.validation_file is None else "add rows of each to validation_file"
    remedy = _higher_limit(spec, rows) or added
    some = f"{len(missing)} of {len(counts['validation'])} classes have no validation row ({named})"
    return [f"{some}, so F1 does not measure them: {remedy}, or leave them out"]


def _few(spec: JobSpec, rows: Rows) -> list[str]:
    if len(rows) >= _FEW_ROWS or spec.task == metrics.CAUSAL_LM:  # causal-lm has no F1
        return []
    error, plural = binomial_error(0.8, len(rows)), "s" * (len(rows) != 1)
    remedy = _higher_limit(spec, rows) or "give more rows, or a validation_file"
    return [f"F1 of {len(rows)} validation row{plural} has a standard error of about {error:.2f}: {remedy}"]


def _higher_limit(spec: JobSpec, rows: Rows) -> str:
    """Return how to raise the limit that has left only these validation rows, or "" if no limit has."""
    if not rows.is_limited:
        return ""
    if spec.max_eval_samples is not None:
        return "raise max_eval_samples"
    return "set max_eval_samples (by default a ninth of max_train_samples)"


def _repeated(spec: JobSpec, duplicates: int, rows: int) -> list[str]:
    if duplicates <= _MANY_DUPLICATES * rows:
        return []
    some = f"{duplicates} of {rows} validation texts are also training texts"
    biased = "perplexity may be too low" if spec.task == metrics.CAUSAL_LM else "F1 may be too high"
    return [f"{some}: {biased}, because the model learns them; remove duplicates from the data"]
