"""Metrics of an evaluation, for each task; most are scikit-learn's."""

import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from paretune.specification import metrics

THRESHOLD = 0.5  # probability from which on a row has a label

Measured = tuple[dict[str, float], Mapping[str, Any]]  # metrics of an evaluation, and what the report shows of it
_TFIDF_ROWS = 50_000  # largest number of training rows: more rows take time and hardly change the result
_FITTED_CELLS = 500_000  # largest product of rows and labels: one model is fitted for each label
Rows = tuple[Sequence[str], np.ndarray]  # texts and their labels


class Evaluation:
    """Calls `measure` with logits and labels, as the Trainer does; `report_entries` are those of the last evaluation.

    They are None before the first evaluation in this process.
    """

    def __init__(self, measure: Callable[[np.ndarray, Any], Measured], *, keeps_classes: bool = False) -> None:
        self._measure = measure
        self._keeps_classes = keeps_classes
        self.report_entries: Mapping[str, Any] | None = None

    def predict(self, logits: torch.Tensor) -> np.ndarray:
        """The predictions that stay in memory until all rows are evaluated: for words only the most likely class."""
        return (logits.argmax(-1) if self._keeps_classes else logits.float()).cpu().numpy()

    def __call__(self, prediction: Any) -> dict[str, float]:
        """The metrics of a transformers `EvalPrediction`."""
        measured, self.report_entries = self._measure(prediction.predictions, prediction.label_ids)
        return measured


def evaluation_of(task: str, names: Sequence[str]) -> Evaluation | None:
    """The metrics of a task with classes or labels `names`; None for causal-lm."""
    return {
        metrics.CLASSIFICATION: Evaluation(partial(_measure_classes, len(names))),
        metrics.MULTI_LABEL: Evaluation(_measure_labels),
        metrics.WORDS: Evaluation(partial(_measure_words, names), keeps_classes=True),
    }.get(task)


def _measure_words(names: Sequence[str], predicted: np.ndarray, labels: np.ndarray) -> Measured:
    """F1 and accuracy of words from classes (N, T); words have a label, all other tokens -100."""
    has_label = labels != -100
    rows = [(row[inside], other[inside]) for row, other, inside in zip(labels, predicted, has_label, strict=True)]
    truth, answers = ([[names[number] for number in pair[side]] for pair in rows] for side in (0, 1))
    return word_metrics(truth, answers), {}


def word_metrics(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """F1 of entities and accuracy of words, from the labels of N rows of words.

    An entity counts if its kind, first and last word are right, over all kinds together (Tjong Kim Sang and De Meulder,
    CoNLL 2003, as `seqeval` computes it). If no label begins with B- or I-, F1 is the macro F1 of the words.
    """
    flat, answers = ([label for row in rows for label in row] for rows in (truth, predicted))
    accuracy = sum(map(operator.eq, flat, answers)) / max(1, len(flat))
    if not any(label.startswith(("B-", "I-")) for label in flat):
        return {metrics.F1: macro_f1(np.array(flat), np.array(answers)), metrics.ACCURACY: accuracy}
    pairs = [(entities(row), entities(other)) for row, other in zip(truth, predicted, strict=True)]
    right = sum(len(row & other) for row, other in pairs)
    return {
        metrics.F1: 2 * right / max(1, sum(len(row) + len(other) for row, other in pairs)),
        metrics.ACCURACY: accuracy,
    }


def entities(labels: Sequence[str]) -> set[tuple[str, int, int]]:
    """Kind, first word and end of the entities in a row of B-, I- and other labels; an I- alone begins one, too."""
    spans: set[tuple[str, int, int]] = set()
    kind, first = "", 0
    for number, label in enumerate([*labels, ""]):
        prefix, _, name = label.partition("-") if label.startswith(("B-", "I-")) else ("", "", "")
        if kind and (prefix != "I" or name != kind):
            spans.add((kind, first, number))
            kind = ""
        if prefix and not kind:
            kind, first = name, number
    return spans


def _measure_classes(classes: int, logits: np.ndarray, labels: np.ndarray) -> Measured:
    """Macro F1 and accuracy, from logits (N, C) and labels (N,), with the confusion matrix: a row per true class."""
    predicted = logits.argmax(axis=-1)
    confusion = confusion_matrix(labels, predicted, labels=np.arange(classes))
    measured = {metrics.F1: macro_f1(labels, predicted), metrics.ACCURACY: float(accuracy_score(labels, predicted))}
    return measured, {"confusion_matrix": tuple(tuple(map(int, row)) for row in confusion)}


def _measure_labels(logits: np.ndarray, labels: np.ndarray) -> Measured:
    """Macro and micro F1, share of rows without a wrong label, and counts, of `logits` and flags (N, C)."""
    predicted, truth = expit(logits.astype(np.float64)) >= THRESHOLD, labels > THRESHOLD
    pairs = (truth & predicted, ~truth & predicted, truth & ~predicted, ~truth & ~predicted)
    counts = np.stack([pair.sum(axis=0) for pair in pairs], axis=1)
    return multi_label_metrics(truth, predicted), {"label_counts": tuple(tuple(map(int, row)) for row in counts)}


def macro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Mean F1 over the classes; a class that is never predicted counts as 0."""
    return float(f1_score(labels, predicted, average="macro", zero_division=0))


def multi_label_metrics(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Macro F1 over labels (0 for a label that is never predicted), micro F1, and the share of rows all correct."""
    return {
        metrics.F1: macro_f1(truth, predicted),
        metrics.F1_MICRO: float(f1_score(truth, predicted, average="micro", zero_division=0)),
        metrics.SUBSET_ACCURACY: float((truth == predicted).all(axis=1).mean()),
    }


def classification_baselines(train: Rows, validation: Rows, classes: int) -> dict[str, float]:
    """Macro F1 of always the most frequent class, and of TF-IDF with logistic regression (C = 5)."""
    from sklearn.linear_model import LogisticRegression

    truth = validation[1]
    most_frequent = int(np.bincount(train[1], minlength=classes).argmax())
    baselines = {metrics.BASELINE_MAJORITY: macro_f1(truth, np.full(len(truth), most_frequent))}
    tfidf = _tfidf(train[0], validation[0], _TFIDF_ROWS)
    if tfidf is None:
        return baselines
    index, features, validation_features = tfidf
    model = LogisticRegression(C=5, max_iter=1000).fit(features, train[1][index])
    return baselines | {metrics.BASELINE_TFIDF: macro_f1(truth, model.predict(validation_features))}


def word_baselines(train: Rows, validation: Rows, names: Sequence[str]) -> dict[str, float]:
    """F1 of giving each word the label that it has most often in the training rows, other words the most frequent."""
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for text, labels in zip(*train, strict=True):
        for word, label in zip(text.split(" "), labels, strict=True):
            counts[word][label] += 1
    usual = sum(counts.values(), Counter[int]()).most_common(1)[0][0]
    best = {word: labels.most_common(1)[0][0] for word, labels in counts.items()}
    predicted = [[names[best.get(word, usual)] for word in text.split(" ")] for text in validation[0]]
    truth = [[names[number] for number in labels] for labels in validation[1]]
    return {metrics.BASELINE_WORDS: word_metrics(truth, predicted)[metrics.F1]}


def multi_label_baselines(train: Rows, validation: Rows) -> dict[str, float]:
    """Macro F1 of the most frequent set of labels, and of TF-IDF with logistic regressions (C = 5, threshold 0.5)."""
    from sklearn.linear_model import LogisticRegression

    truth = validation[1] > THRESHOLD
    sets, counts = np.unique(train[1], axis=0, return_counts=True)
    most_frequent = np.broadcast_to(sets[counts.argmax()] > THRESHOLD, truth.shape)
    baselines = {metrics.BASELINE_MAJORITY: multi_label_metrics(truth, most_frequent)[metrics.F1]}
    tfidf = _tfidf(train[0], validation[0], min(_TFIDF_ROWS, max(2_000, _FITTED_CELLS // truth.shape[1])))
    if tfidf is None:
        return baselines
    index, features, validation_features = tfidf
    columns = []
    for labels in train[1][index].T:
        if labels.min() == labels.max():
            columns.append(np.full(len(truth), labels[0]))
        else:
            model = LogisticRegression(C=5, max_iter=1000).fit(features, labels)
            columns.append(model.predict(validation_features))
    predicted = np.stack(columns, axis=1) > THRESHOLD
    return baselines | {metrics.BASELINE_TFIDF: multi_label_metrics(truth, predicted)[metrics.F1]}


def _tfidf(train: Sequence[str], validation: Sequence[str], most: int) -> tuple[np.ndarray, Any, Any] | None:
    """Up to `most` training rows, their features, and those of the validation rows; None if no word occurs twice."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    index = np.random.default_rng(0).permutation(len(train))[:most]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    try:
        features = vectorizer.fit_transform([train[row] for row in index])
    except ValueError:  # no word occurs twice
        return None
    return index, features, vectorizer.transform(validation)
