"""Rows of a file in, the same rows with predictions out, piece by piece: memory does not grow with the file."""

import csv
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from paretune.core.errors import BadInput, refuse
from paretune.core.result import as_cell
from paretune.specification import metrics
from paretune.training import device
from paretune.training.predicting.classifier import CLASSES, LABELS, NUMBER, TEXTS, WORD_CLASSES, Classifier
from paretune.training.rows.sources import stream
from paretune.training.tasks.evaluation import macro_f1, rouge_l, word_metrics
from paretune.training.tasks.targets import words_of

PREDICTION, SCORE = "prediction", "score"
"""Names of the new columns."""
_THRESHOLD = 0.5  # probability from which on a row has a label
_SCORE_DIGITS = 6
_PIECE = 4096  # rows that are read, tokenised and sorted by length together
_EXAMPLES = 5  # rows that a fault names
_MOST_COUNTED = 20  # classes whose rows are counted


Names = Sequence[str]  # of C classes or labels; empty for numbers and texts


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How models of one kind read their logits (N, C) of N rows, and measure N predictions against N labels."""

    columns: Callable[[Names, np.ndarray], dict[str, list[Any]]]  # the new columns of the rows
    predict: Callable[[Names, np.ndarray], np.ndarray]  # the predictions, as they are compared with labels
    parse: Callable[[Names, Any], Any]
    """A label in the form of a prediction; raises ValueError or TypeError if the model does not know it."""
    measure: Callable[[np.ndarray, np.ndarray], dict[str, float]]
    names: tuple[str, ...] = (PREDICTION,)  # of the new columns


def _class_columns(names: Names, logits: np.ndarray) -> dict[str, list[Any]]:
    scores = softmax(logits, axis=-1).max(axis=-1)
    classes = [names[number] for number in logits.argmax(axis=-1)]
    return {PREDICTION: classes, SCORE: [round(float(score), _SCORE_DIGITS) for score in scores]}


def _label_columns(names: Names, logits: np.ndarray) -> dict[str, list[Any]]:
    """Lists of the labels whose probability is at least one half, and of their probabilities."""
    pairs = [(np.flatnonzero(row >= _THRESHOLD), row) for row in expit(logits)]
    return {
        PREDICTION: [[names[number] for number in chosen.tolist()] for chosen, _ in pairs],
        SCORE: [[round(float(row[number]), _SCORE_DIGITS) for number in chosen] for chosen, row in pairs],
    }


def _parse_labels(names: Names, label: Any) -> list[bool]:
    """The flags of a list of names, or of a text: a JSON list, or names with | between them."""
    texts = label
    if isinstance(label, str):
        texts = json.loads(label) if label.startswith("[") else [part.strip() for part in label.split("|")]
    ids = {names.index(str(text)) for text in texts}
    return [number in ids for number in range(len(names))]


def _parse_number(_: Names, label: Any) -> float:
    if not math.isfinite(value := float(label)):
        raise ValueError(label)
    return value


def _words(names: Names, logits: np.ndarray) -> np.ndarray:
    rows = ([names[number] for number in words.argmax(axis=-1)] for words in logits)
    return np.fromiter(rows, dtype=object, count=len(logits))


def _parse_words(names: Names, label: Any) -> list[str]:
    labels = words_of(label)
    if not {*labels} <= {*names}:
        raise ValueError(label)
    return labels


def _measure_words(true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    pairs = zip(true, predicted, strict=True)  # words that were cut off have no label
    return word_metrics(list(true), [[*row, *["O"] * (len(labels) - len(row))][: len(labels)] for labels, row in pairs])


def _measure_numbers(true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    errors = true - predicted  # in the unit of the label
    return {"rmse": float(np.sqrt(np.mean(errors**2))), "mae": float(np.mean(np.abs(errors)))}


KINDS: Mapping[str, Kind] = {
    CLASSES: Kind(
        columns=_class_columns,
        predict=lambda _, logits: logits.argmax(axis=-1).astype(np.int32),
        parse=lambda names, label: names.index(str(label)),
        measure=lambda true, chosen: {"f1": macro_f1(true, chosen), "accuracy": float((true == chosen).mean())},
        names=(PREDICTION, SCORE),
    ),
    LABELS: Kind(
        columns=_label_columns,
        predict=lambda _, logits: np.asarray(logits >= math.log(_THRESHOLD / (1 - _THRESHOLD))),
        parse=_parse_labels,
        measure=lambda true, chosen: {"f1": macro_f1(true, chosen)},
        names=(PREDICTION, SCORE),
    ),
    NUMBER: Kind(
        columns=lambda _, logits: {PREDICTION: [round(float(value), _SCORE_DIGITS) for value in logits[:, 0]]},
        predict=lambda _, logits: logits[:, 0],
        parse=_parse_number,
        measure=_measure_numbers,
    ),
    WORD_CLASSES: Kind(
        columns=lambda names, logits: {PREDICTION: [" ".join(row) for row in _words(names, logits)]},
        predict=_words,
        parse=_parse_words,
        measure=_measure_words,
    ),
    TEXTS: Kind(
        columns=lambda _, texts: {PREDICTION: texts.tolist()},
        predict=lambda _, texts: texts,
        parse=lambda _, label: str(label),
        measure=lambda true, texts: {metrics.ROUGE_L: rouge_l(true, texts)},
    ),
}
"""`problem_type` of a model to the kind of its predictions."""


class Comparison:
    """Predictions compared with labels, piece by piece; a few bytes of each row are kept."""

    def __init__(self, kind: Kind, names: Names) -> None:
        self.labelled = 0  # number of rows whose label could be compared
        self.without_label = 0  # number of rows without a label
        self.unknown: Counter[str] = Counter()  # labels that the model does not know, with their numbers
        self._kind, self._names = kind, names
        self._true: list[np.ndarray] = []
        self._predicted: list[np.ndarray] = []

    def add(self, logits: np.ndarray, labels: Sequence[Any]) -> None:
        """Keep predictions and labels of the rows whose label is known."""
        predicted = self._kind.predict(self._names, logits)
        rows, true = list[int](), list[Any]()
        for row, label in enumerate(labels):
            if label is None:
                self.without_label += 1
                continue
            try:
                true.append(self._kind.parse(self._names, label))
            except (ValueError, TypeError):
                self.unknown[str(label)] += 1
            else:
                rows.append(row)
        if rows:
            self.labelled += len(rows)
            has_lists = predicted.dtype == object  # of different lengths
            array = np.fromiter(true, object, len(true)) if has_lists else np.array(true, dtype=predicted.dtype)
            self._true.append(array)
            self._predicted.append(predicted[rows])

    def metrics(self) -> dict[str, float]:
        """Metrics of the rows that were compared; empty if there are none."""
        if not self.labelled:
            return {}
        return self._kind.measure(np.concatenate(self._true), np.concatenate(self._predicted))


@dataclass(frozen=True, kw_only=True)
class Request:
    """A file to predict; the launching wing sends it as JSON."""

    model: str  # folder with the model, its tokenizer and its configuration
    data: str  # file with the rows
    text_column: str
    label_column: str
    output: str  # file for the rows with predictions; its suffix chooses the format
    batch_size: int
    max_seq_length: int | None  # largest number of tokens of a text; None means as in the model's training


def predict(request: Request, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Write the rows with their predictions and return the metrics, as JSON values.

    `progress` is called with the number of rows done and the number of all rows. The output file exists only when it is
    complete.

    Raises:
        BadInput: the model or the rows cannot be used; nothing is written then.
    """
    data, output = Path(request.data), Path(request.output)
    classifier = Classifier.load(
        Path(request.model), batch_size=request.batch_size, max_seq_length=request.max_seq_length
    )
    kind = KINDS[classifier.kind]
    comparison = Comparison(kind, classifier.names)
    total, names = _checked_rows(data, request.text_column, kind.names)
    has_labels = request.label_column in names and request.label_column != request.text_column
    seconds, truncated, done = 0.0, 0, 0
    counts: Counter[str] = Counter()
    with _output_file(output, [*names, *kind.names]) as write:
        for piece in stream(data, _PIECE):
            began = time.perf_counter()
            logits, cut = classifier.outputs(piece[request.text_column])
            columns = kind.columns(classifier.names, logits)
            seconds += time.perf_counter() - began
            if has_labels:
                comparison.add(logits, piece[request.label_column])
            if classifier.names and classifier.kind != WORD_CLASSES:
                for prediction in columns[PREDICTION]:
                    counts.update(prediction if isinstance(prediction, list) else [prediction])
            write({**piece, **columns})
            truncated, done = truncated + cut, done + len(logits)
            progress(done, total)
    return {
        "rows": done,
        "seconds": seconds,
        "metrics": comparison.metrics(),
        "labelled_rows": comparison.labelled,
        "counts": dict(counts.most_common(_MOST_COUNTED)),
        "truncated_rows": truncated,
        "max_seq_length": classifier.limit,
        "kind": classifier.kind,
        "device": device.device_name(),
        "remarks": _label_remarks(comparison, request.label_column) if has_labels else [],
    }


def _checked_rows(data: Path, text_column: str, new_columns: Sequence[str]) -> tuple[int, list[str]]:
    """Number of rows and names of columns, from reading the whole file once; raises BadInput with all faults."""
    total, missing, names = 0, 0, list[str]()
    examples: list[int] = []
    for piece in stream(data, _PIECE):
        if not names:
            names = list(piece)
            _check_columns(data, names, text_column, new_columns)
        texts = piece[text_column]
        other = next((text for text in texts if text is not None and not isinstance(text, str)), None)
        if other is not None:
            raise BadInput([f"text_column {text_column!r} of {data} must hold text, and holds {type(other).__name__}"])
        empty = [total + number for number, text in enumerate(texts, start=1) if text is None]
        missing += len(empty)
        examples = [*examples, *empty][:_EXAMPLES]
        total += len(texts)
    if not total:
        raise BadInput([f"data {data} has no rows"])
    if missing:
        rows = f"{missing} of {total} rows of {data} (first: rows {', '.join(map(str, examples))})"
        raise BadInput([f"{text_column!r} is missing in {rows}: fill or drop them"])
    return total, names


def _check_columns(data: Path, names: Sequence[str], text_column: str, new_columns: Sequence[str]) -> None:
    faults = []
    if text_column not in names:
        columns = ", ".join(names)
        faults.append(f"text_column {text_column!r} is not in {data}: it has {columns}; set text_column to one of them")
    faults += [
        f"{data} has a column {name!r} already, which would be lost: rename it, or predict the original rows"
        for name in new_columns
        if name in names
    ]
    refuse(faults)


def _label_remarks(comparison: Comparison, label_column: str) -> list[str]:
    remarks = []
    if comparison.unknown:
        examples = ", ".join(repr(name) for name, _ in comparison.unknown.most_common(3))
        remarks.append(
            f"{comparison.unknown.total():,} rows have values of {label_column!r} that the model does not know, such "
            f"as {examples}: the figures are without them"
        )
    if comparison.without_label and comparison.labelled:
        remarks.append(f"{comparison.without_label:,} rows have no {label_column!r}: the figures are without them")
    return remarks


@contextmanager
def _output_file(output: Path, names: Sequence[str]) -> Iterator[Callable[[Mapping[str, Sequence[Any]]], None]]:
    """A function that writes the columns of a piece of rows; the file gets its name when all are written."""
    draft = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", newline="") as file:
            if output.suffix.lower() == ".jsonl":
                yield lambda piece: file.writelines(
                    json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in _rows(piece)
                )
            else:
                separator = "\t" if output.suffix.lower() == ".tsv" else ","
                table = csv.DictWriter(file, names, delimiter=separator, lineterminator="\n")
                table.writerow({name: as_cell(name) for name in names})
                yield lambda piece: table.writerows(
                    {name: _csv_cell(value) for name, value in row.items()} for row in _rows(piece)
                )
        draft.replace(output)
    finally:
        draft.unlink(missing_ok=True)


def _rows(piece: Mapping[str, Sequence[Any]]) -> Iterator[Mapping[str, Any]]:
    for values in zip(*piece.values(), strict=True):
        yield dict(zip(piece, values, strict=True))


def _csv_cell(value: Any) -> Any:
    """A value as a cell of CSV: lists and objects as JSON, and no formula that a spreadsheet would compute."""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else as_cell(value)
