"""Metrics of an evaluation, for each task; they are scikit-learn's.

The classes are called by the Trainer. They keep as `report_entries` what the report shows of the last evaluation in
this process, None before the first one.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import spearmanr
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    mean_absolute_error,
    r2_score,
    root_mean_squared_error,
)

from paretune.specification import metrics
from paretune.training.tasks.losses import Units

THRESHOLD = 0.5
"""Probability from which on a row has a label."""
MOST_POINTS = 2000
"""Validation rows whose true and predicted number go into the report, enough for a figure."""


class ClassificationMetrics:
    """Computes macro F1 and accuracy and keeps the last confusion matrix: C rows (true classes) of C counts."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self.report_entries: Mapping[str, Any] | None = None

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Macro F1 and accuracy, from logits (N, C) and labels (N,)."""
        predicted = np.asarray(_logits(prediction.predictions)).argmax(axis=-1)
        labels = np.asarray(prediction.label_ids)
        confusion = confusion_matrix(labels, predicted, labels=np.arange(self._classes))
        self.report_entries = {"confusion_matrix": tuple(tuple(map(int, row)) for row in confusion)}
        return {metrics.F1: macro_f1(labels, predicted), metrics.ACCURACY: float(accuracy_score(labels, predicted))}


class RegressionMetrics:
    """Computes metrics in the labels' own units and keeps true and predicted numbers."""

    def __init__(self, units: Units) -> None:
        self._units = units
        self.report_entries: Mapping[str, Any] | None = None

    def __call__(self, prediction: Any) -> dict[str, float]:
        """RMSE, MAE, R2 and rank correlation; empty if a prediction is not a finite number.

        `prediction` has `predictions` (N, 1) or (N,) and `label_ids` (N,), both scaled by `units`.
        """
        logits = np.asarray(_logits(prediction.predictions), dtype=np.float64)
        predicted = self._units.unscale(logits.reshape(-1))
        truth = self._units.unscale(np.asarray(prediction.label_ids, dtype=np.float64).reshape(-1))
        rows = np.unique(np.linspace(0, len(truth) - 1, min(len(truth), MOST_POINTS)).astype(int))
        if not np.isfinite(predicted).all():
            self.report_entries = {}
            return {}
        self.report_entries = {"predictions": tuple((float(truth[row]), float(predicted[row])) for row in rows)}
        return regression_metrics(truth, predicted)


class MultiLabelMetrics:
    """Computes metrics of several labels per row and keeps the counts of each label."""

    def __init__(self) -> None:
        self.report_entries: Mapping[str, Any] | None = None

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Macro and micro F1 and the share of rows without a wrong label, from logits (N, C) and flags (N, C)."""
        predicted = expit(np.asarray(_logits(prediction.predictions), dtype=np.float64)) >= THRESHOLD
        truth = np.asarray(prediction.label_ids) > THRESHOLD
        pairs = (truth & predicted, ~truth & predicted, truth & ~predicted, ~truth & ~predicted)
        counts = np.stack([pair.sum(axis=0) for pair in pairs], axis=1)
        self.report_entries = {"label_counts": tuple(tuple(map(int, row)) for row in counts)}
        return multi_label_metrics(truth, predicted)


Evaluation = ClassificationMetrics | RegressionMetrics | MultiLabelMetrics


def evaluation_of(task: str, classes: int, units: Units) -> Evaluation | None:
    """The metrics of a task; None for language models, whose loss is enough."""
    if task == metrics.REGRESSION:
        return RegressionMetrics(units)
    if task == metrics.MULTI_LABEL:
        return MultiLabelMetrics()
    return ClassificationMetrics(classes) if task == metrics.CLASSIFICATION else None


def macro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    """Mean F1 over the classes; a class that is never predicted counts as 0."""
    return float(f1_score(labels, predicted, average="macro", zero_division=0))


def regression_metrics(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """RMSE and MAE; R2 and rank correlation where they are defined. Both arrays are (N,)."""
    measures = {
        metrics.RMSE: float(root_mean_squared_error(truth, predicted)),
        metrics.MAE: float(mean_absolute_error(truth, predicted)),
    }
    if np.ptp(truth) > 0:
        measures[metrics.R2] = float(r2_score(truth, predicted))
        if np.ptp(predicted) > 0:
            measures[metrics.SPEARMAN] = float(spearmanr(truth, predicted).statistic)
    return measures


def multi_label_metrics(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Macro F1 over labels (0 for a label that is never predicted), micro F1, and the share of rows all correct."""
    return {
        metrics.F1: macro_f1(truth, predicted),
        metrics.F1_MICRO: float(f1_score(truth, predicted, average="micro", zero_division=0)),
        metrics.SUBSET_ACCURACY: float((truth == predicted).all(axis=1).mean()),
    }


def _logits(predictions: Any) -> Any:
    """The logits among the outputs of a model: some models return more."""
    return predictions[0] if isinstance(predictions, tuple) else predictions
