"""From a model's outputs to what is written for each row, and to the figures of the rows that have labels."""

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from paretune.training.predicting.classifier import CLASSES, LABELS, NUMBER
from paretune.training.tasks.evaluation import macro_f1

PREDICTION, SCORE = "prediction", "score"
"""Columns that are added."""
_LIKELY = 0.5  # probability from which on a row has a label
_DIGITS = 6  # of a score


class Answers(ABC):
    """What a model answers: columns for each piece of rows, then figures of all, from a few bytes kept of each row."""

    columns: tuple[str, ...] = (PREDICTION, SCORE)
    """Names of the columns that are added."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.labelled = 0
        """Rows whose label could be compared."""
        self.without_label = 0
        self.unknown: Counter[str] = Counter()
        """Labels that the model does not know."""
        self._true: list[np.ndarray] = []
        self._predicted: list[np.ndarray] = []

    @abstractmethod
    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """The new columns of N rows, from logits (N, C)."""

    @abstractmethod
    def figures(self) -> dict[str, float]:
        """Metrics of the rows that were compared; empty without any."""

    @abstractmethod
    def truth(self, label: Any) -> Any:
        """What a label means, in the form of `answers`; ValueError where it is none that the model knows."""

    @abstractmethod
    def answers(self, logits: np.ndarray) -> np.ndarray:
        """The answers to N rows, from logits (N, C)."""

    def compare(self, logits: np.ndarray, labels: Sequence[Any]) -> None:
        """Keep answers and labels of the rows whose label is known."""
        answers = self.answers(logits)
        rows, true = list[int](), list[Any]()
        for row, label in enumerate(labels):
            if label is None:
                self.without_label += 1
                continue
            try:
                true.append(self.truth(label))
            except (ValueError, TypeError):
                self.unknown[str(label)] += 1
            else:
                rows.append(row)
        if rows:
            self.labelled += len(rows)
            self._true.append(np.array(true, dtype=answers.dtype))
            self._predicted.append(answers[rows])

    def _compared(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels and answers of all rows that were compared."""
        return np.concatenate(self._true), np.concatenate(self._predicted)


class OneClass(Answers):
    """The most probable class of each row, with its softmax probability."""

    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """Class name and probability."""
        shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
        scores = (shifted / shifted.sum(axis=-1, keepdims=True)).max(axis=-1)
        names = [self.names[number] for number in logits.argmax(axis=-1)]
        return {PREDICTION: names, SCORE: [round(float(score), _DIGITS) for score in scores]}

    def answers(self, logits: np.ndarray) -> np.ndarray:
        """Class ids (N,)."""
        return np.asarray(logits.argmax(axis=-1), dtype=np.int32)

    def truth(self, label: Any) -> int:
        """The id of a class name."""
        return self.names.index(str(label))

    def figures(self) -> dict[str, float]:
        """Macro F1, as a job records it, and accuracy."""
        if not self.labelled:
            return {}
        true, predicted = self._compared()
        return {"f1": macro_f1(true, predicted), "accuracy": float((true == predicted).mean())}


class SeveralLabels(Answers):
    """All labels of each row whose probability is at least one half, with the probabilities of these."""

    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """Lists of label names, and of their probabilities."""
        scores = 1 / (1 + np.exp(-logits))
        chosen = [np.flatnonzero(row >= _LIKELY) for row in scores]
        return {
            PREDICTION: [[self.names[number] for number in row] for row in chosen],
            SCORE: [
                [round(float(score[number]), _DIGITS) for number in row]
                for score, row in zip(scores, chosen, strict=True)
            ],
        }

    def answers(self, logits: np.ndarray) -> np.ndarray:
        """One truth for each label (N, C)."""
        return np.asarray(logits >= math.log(_LIKELY / (1 - _LIKELY)))

    def truth(self, label: Any) -> list[bool]:
        """The same of a list of names, or of a text: a JSON list, or names with | between them."""
        named = label
        if isinstance(label, str):
            named = json.loads(label) if label.startswith("[") else [part.strip() for part in label.split("|")]
        ids = {self.names.index(str(name)) for name in named}
        return [number in ids for number in range(len(self.names))]

    def figures(self) -> dict[str, float]:
        """F1 of each label, the mean over labels."""
        if not self.labelled:
            return {}
        true, predicted = self._compared()
        return {"f1": float(f1_score(true, predicted, average="macro", zero_division=0))}


class OneNumber(Answers):
    """The number that a model answers; there is no score."""

    columns = (PREDICTION,)

    def columns_of(self, logits: np.ndarray) -> dict[str, list[Any]]:
        """The number."""
        return {PREDICTION: [round(float(value), _DIGITS) for value in logits[:, 0]]}

    def answers(self, logits: np.ndarray) -> np.ndarray:
        """Numbers (N,)."""
        return logits[:, 0]

    def truth(self, label: Any) -> float:
        """The number itself."""
        if not math.isfinite(value := float(label)):
            raise ValueError(label)
        return value

    def figures(self) -> dict[str, float]:
        """Root of the mean squared error, and mean absolute error, in the unit of the label."""
        if not self.labelled:
            return {}
        true, predicted = self._compared()
        return {
            "rmse": float(np.sqrt(np.mean((true - predicted) ** 2))),
            "mae": float(np.mean(np.abs(true - predicted))),
        }


KINDS: Mapping[str, type[Answers]] = {CLASSES: OneClass, LABELS: SeveralLabels, NUMBER: OneNumber}
"""`problem_type` of a model to what its answers are."""
