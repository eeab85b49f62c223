"""Rows of a file in, the same rows with predictions out, piece by piece: memory does not grow with the file."""

import csv
import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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


class Predictions(ABC):
    """New columns for each piece of rows, then metrics of all rows, for which a few bytes of each row are kept."""

    columns: tuple[str, ...] = (PREDICTION, SCORE)
    """Names of the new columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.labelled = 0  # number of rows whose label could be compared
        self.without_label = 0  # number of rows without a label
        self.unknown: Counter[str] = Counter()  # labels that the model does not know, with their numbers
        self._true: list[np.ndarray] = []
        self._predicted: list[np.ndarray] = []

    @abstractmethod
    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """The new columns of N rows, from logits (N, C)."""

    @abstractmethod
    def predict(self, logits: np.ndarray) -> np.ndarray:
        """The predictions for N rows, from logits (N, C), as they are compared with labels."""

    @abstractmethod
    def parse_label(self, label: Any) -> Any:
        """A label in the form of a prediction; raises ValueError or TypeError if the model does not know it."""

    @abstractmethod
    def _metrics(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, float]: ...

    def compare(self, logits: np.ndarray, labels: Sequence[Any]) -> None:
        """Keep predictions and labels of the rows whose label is known."""
        predicted = self.predict(logits)
        rows, true = list[int](), list[Any]()
        for row, label in enumerate(labels):
            if label is None:
                self.without_label += 1
                continue
            try:
                true.append(self.parse_label(label))
            except (ValueError, TypeError):
                self.unknown[str(label)] += 1
            else:
                rows.append(row)
        if rows:
            self.labelled += len(rows)
            self._true.append(self._as_array(true, predicted))
            self._predicted.append(predicted[rows])

    def _as_array(self, labels: list[Any], like: np.ndarray) -> np.ndarray:
        return np.array(labels, dtype=like.dtype)

    def metrics(self) -> dict[str, float]:
        """Metrics of the rows that were compared; empty if there are none."""
        return self._metrics(np.concatenate(self._true), np.concatenate(self._predicted)) if self.labelled else {}


class ClassPredictions(Predictions):
    """The most probable class of each row, with its softmax probability."""

    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """Class name and probability."""
        shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
        scores = (shifted / shifted.sum(axis=-1, keepdims=True)).max(axis=-1)
        names = [self.names[number] for number in logits.argmax(axis=-1)]
        return {PREDICTION: names, SCORE: [round(float(score), _SCORE_DIGITS) for score in scores]}

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """Class ids (N,)."""
        return np.asarray(logits.argmax(axis=-1), dtype=np.int32)

    def parse_label(self, label: Any) -> int:
        """The id of a class name."""
        return self.names.index(str(label))

    def _metrics(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        return {"f1": macro_f1(true, predicted), "accuracy": float((true == predicted).mean())}


class LabelPredictions(Predictions):
    """All labels of each row whose probability is at least one half, with their probabilities."""

    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """Lists of label names and of their probabilities."""
        scores = 1 / (1 + np.exp(-logits))
        chosen = [np.flatnonzero(row >= _THRESHOLD) for row in scores]
        return {
            PREDICTION: [[self.names[number] for number in row] for row in chosen],
            SCORE: [
                [round(float(score[number]), _SCORE_DIGITS) for number in row]
                for score, row in zip(scores, chosen, strict=True)
            ],
        }

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """One flag for each label (N, C)."""
        return np.asarray(logits >= math.log(_THRESHOLD / (1 - _THRESHOLD)))

    def parse_label(self, label: Any) -> list[bool]:
        """The flags of a list of names, or of a text: a JSON list, or names with | between them."""
        names = label
        if isinstance(label, str):
            names = json.loads(label) if label.startswith("[") else [part.strip() for part in label.split("|")]
        ids = {self.names.index(str(name)) for name in names}
        return [number in ids for number in range(len(self.names))]

    def _metrics(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        return {"f1": macro_f1(true, predicted)}


class NumberPredictions(Predictions):
    """The number that a model predicts, without a score."""

    columns = (PREDICTION,)

    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """The number."""
        return {PREDICTION: [round(float(value), _SCORE_DIGITS) for value in logits[:, 0]]}

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """Numbers (N,)."""
        return logits[:, 0]

    def parse_label(self, label: Any) -> float:
        """The number itself."""
        if not math.isfinite(value := float(label)):
            raise ValueError(label)
        return value

    def _metrics(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        errors = true - predicted  # in the unit of the label
        return {"rmse": float(np.sqrt(np.mean(errors**2))), "mae": float(np.mean(np.abs(errors)))}


class WordPredictions(Predictions):
    """The most likely label of each word, with spaces between them; none for words that were cut off."""

    columns = (PREDICTION,)

    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """The labels of N rows of words."""
        return {PREDICTION: [" ".join(row) for row in self.predict(logits)]}

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """Label names of N rows of words, N lists."""
        rows = ([self.names[number] for number in words.argmax(axis=-1)] for words in logits)
        return np.fromiter(rows, dtype=object, count=len(logits))

    def parse_label(self, label: Any) -> list[str]:
        """The labels in a list or a text."""
        labels = words_of(label)
        if not {*labels} <= {*self.names}:
            raise ValueError(label)
        return labels

    def _as_array(self, labels: list[Any], like: np.ndarray) -> np.ndarray:
        return np.fromiter(labels, dtype=object, count=len(labels))

    def _metrics(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        pairs = zip(true, predicted, strict=True)
        whole = [[*row, *["O"] * (len(labels) - len(row))][: len(labels)] for labels, row in pairs]
        return word_metrics(list(true), whole)


class TextPredictions(Predictions):
    """The text that a model writes, in place of logits."""

    columns = (PREDICTION,)

    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """The N texts."""
        return {PREDICTION: logits.tolist()}

    def predict(self, logits: np.ndarray) -> np.ndarray:
        """The N texts."""
        return logits

    def parse_label(self, label: Any) -> str:
        """The reference."""
        return str(label)

    def _metrics(self, true: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
        return {metrics.ROUGE_L: rouge_l(true, predicted)}


KINDS: Mapping[str, type[Predictions]] = {
    WORD_CLASSES: WordPredictions,
    CLASSES: ClassPredictions,
    LABELS: LabelPredictions,
    NUMBER: NumberPredictions,
    TEXTS: TextPredictions,
}
"""`problem_type` of a model to the kind of its predictions."""


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
    predictions = KINDS[classifier.kind](classifier.names)
    total, names = _checked_rows(data, request.text_column, predictions.columns)
    has_labels = request.label_column in names and request.label_column != request.text_column
    seconds, truncated, done = 0.0, 0, 0
    counts: Counter[str] = Counter()
    with _output_file(output, [*names, *predictions.columns]) as write:
        for piece in stream(data, _PIECE):
            began = time.perf_counter()
            logits, cut = classifier.outputs(piece[request.text_column])
            columns = predictions.columns_of(logits)
            seconds += time.perf_counter() - began
            if has_labels:
                predictions.compare(logits, piece[request.label_column])
            if classifier.names and classifier.kind != WORD_CLASSES:
                for prediction in columns[PREDICTION]:
                    counts.update(prediction if isinstance(prediction, list) else [prediction])
            write({**piece, **columns})
            truncated, done = truncated + cut, done + len(logits)
            progress(done, total)
    return {
        "rows": done,
        "seconds": seconds,
        "metrics": predictions.metrics(),
        "labelled_rows": predictions.labelled,
        "counts": dict(counts.most_common(_MOST_COUNTED)),
        "truncated_rows": truncated,
        "max_seq_length": classifier.limit,
        "kind": classifier.kind,
        "device": device.device_name(),
        "remarks": _label_remarks(predictions, request.label_column) if has_labels else [],
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


def _label_remarks(predictions: Predictions, label_column: str) -> list[str]:
    remarks = []
    if predictions.unknown:
        examples = ", ".join(repr(name) for name, _ in predictions.unknown.most_common(3))
        remarks.append(
            f"{predictions.unknown.total():,} rows have values of {label_column!r} that the model does not know, such "
            f"as {examples}: the figures are without them"
        )
    if predictions.without_label and predictions.labelled:
        remarks.append(f"{predictions.without_label:,} rows have no {label_column!r}: the figures are without them")
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
