"""From a model's outputs to the columns that are written for each row, and to metrics of the rows that have labels."""

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paretune.specification import metrics
from paretune.training.predicting.classifier import CLASSES, LABELS, NUMBER, TEXTS, WORD_CLASSES
from paretune.training.tasks.evaluation import macro_f1, rouge_l, word_metrics
from paretune.training.tasks.targets import words_of

PREDICTION, SCORE = "prediction", "score"
"""Names of the new columns."""
_THRESHOLD = 0.5  # probability from which on a row has a label
_SCORE_DIGITS = 6


class Predictions(ABC):
    """New columns for each piece of rows, then metrics of all rows, for which a few bytes of each row are kept.

    Attributes:
        labelled: number of rows whose label could be compared.
        without_label: number of rows without a label.
        unknown: labels that the model does not know, with their numbers.
    """

    columns: tuple[str, ...] = (PREDICTION, SCORE)
    """Names of the new columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.labelled = 0
        self.without_label = 0
        self.unknown: Counter[str] = Counter()
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
