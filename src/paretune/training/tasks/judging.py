"""What regression and several labels a row are judged by: metrics of an evaluation, and baselines on the same rows.

Sources: scikit-learn's metrics; a label is answered where its probability is at least THRESHOLD.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, mean_absolute_error, r2_score, root_mean_squared_error

from paretune.specification import metrics
from paretune.training.tasks.losses import Units

THRESHOLD = 0.5
"""Probability from which a label is answered."""
MOST_POINTS = 2000
"""Validation rows whose true and predicted number go into the report: what a figure can show."""
_TFIDF_ROWS = 50_000
_FITTED_CELLS = 500_000
"""Training rows that the baseline uses at most, and rows times labels: one model is fitted for each label."""

Rows = tuple[Sequence[str], np.ndarray]
"""Texts and their labels."""


class RegressionMetrics:
    """Computes the metrics of an evaluation, in the labels' own units, and keeps true and predicted numbers."""

    def __init__(self, units: Units) -> None:
        self._units = units
        self.shown: Mapping[str, Any] | None = None

    def __call__(self, prediction: Any) -> dict[str, float]:
        """RMSE, MAE, R2 and rank correlation; nothing where a prediction is no finite number.

        `prediction` has `predictions` (N, 1) or (N,) and `label_ids` (N,), both as the model is trained on them.
        """
        predicted = self._units.restored(_first(prediction.predictions).reshape(-1))
        truth = self._units.restored(np.asarray(prediction.label_ids, dtype=np.float64).reshape(-1))
        chosen = np.unique(np.linspace(0, len(truth) - 1, min(len(truth), MOST_POINTS)).astype(int))
        if not np.isfinite(predicted).all():
            self.shown = {}
            return {}
        self.shown = {"predictions": tuple((float(truth[row]), float(predicted[row])) for row in chosen)}
        return regression_metrics(truth, predicted)


class MultiLabelMetrics:
    """Computes the metrics of an evaluation and keeps the counts of each label."""

    def __init__(self) -> None:
        self.shown: Mapping[str, Any] | None = None

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Macro and micro F1 and the share of rows without a wrong label, from logits (N, C) and flags (N, C)."""
        answered = expit(_first(prediction.predictions)) >= THRESHOLD
        truth = np.asarray(prediction.label_ids) > THRESHOLD
        pairs = (truth & answered, ~truth & answered, truth & ~answered, ~truth & ~answered)
        counts = np.stack([pair.sum(axis=0) for pair in pairs], axis=1)
        self.shown = {"label_counts": tuple(tuple(map(int, row)) for row in counts)}
        return multi_label_metrics(truth, answered)


def regression_metrics(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """RMSE and MAE; R2 and rank correlation where they are defined. Both arrays are (N,)."""
    found = {
        metrics.RMSE: float(root_mean_squared_error(truth, predicted)),
        metrics.MAE: float(mean_absolute_error(truth, predicted)),
    }
    if np.ptp(truth) > 0:
        found[metrics.R2] = float(r2_score(truth, predicted))
        if np.ptp(predicted) > 0:
            found[metrics.SPEARMAN] = float(spearmanr(truth, predicted).statistic)
    return found


def multi_label_metrics(truth: np.ndarray, answered: np.ndarray) -> dict[str, float]:
    """Macro F1 over labels (0 for one that is never answered), micro F1, and the share of rows that are all right."""
    return {
        metrics.F1: float(f1_score(truth, answered, average="macro", zero_division=0)),
        metrics.F1_MICRO: float(f1_score(truth, answered, average="micro", zero_division=0)),
        metrics.SUBSET_ACCURACY: float((truth == answered).all(axis=1).mean()),
    }


def regression_baselines(train: Rows, validation: Rows) -> dict[str, float]:
    """RMSE of always the mean of the training rows, and of TF-IDF with ridge regression (alpha = 1).

    The latter is absent where no word occurs twice.
    """
    truth = validation[1]
    found = {metrics.BASELINE_MEAN_RMSE: float(root_mean_squared_error(truth, np.full(len(truth), train[1].mean())))}
    made = _features(train[0], validation[0], _TFIDF_ROWS)
    if made is None:
        return found
    index, features, evaluated = made
    predicted = Ridge(alpha=1.0).fit(features, train[1][index]).predict(evaluated)
    return found | {metrics.BASELINE_TFIDF_RMSE: float(root_mean_squared_error(truth, predicted))}


def multi_label_baselines(train: Rows, validation: Rows) -> dict[str, float]:
    """Macro F1 of always the most frequent set of labels, and of TF-IDF with a logistic regression for each label.

    C = 5, threshold 0.5. The latter is absent where no word occurs twice.
    """
    truth = validation[1] > THRESHOLD
    sets, counts = np.unique(train[1], axis=0, return_counts=True)
    most_frequent = np.broadcast_to(sets[counts.argmax()] > THRESHOLD, truth.shape)
    found = {metrics.BASELINE_MAJORITY: multi_label_metrics(truth, most_frequent)[metrics.F1]}
    made = _features(train[0], validation[0], min(_TFIDF_ROWS, max(2_000, _FITTED_CELLS // truth.shape[1])))
    if made is None:
        return found
    index, features, evaluated = made
    answers = []
    for column in train[1][index].T:
        varies = column.min() < column.max()
        model = LogisticRegression(C=5, max_iter=1000).fit(features, column) if varies else None
        answers.append(np.full(len(truth), column[0]) if model is None else model.predict(evaluated))
    answered = np.stack(answers, axis=1) > THRESHOLD
    return found | {metrics.BASELINE_TFIDF: multi_label_metrics(truth, answered)[metrics.F1]}


def _features(train: Sequence[str], validation: Sequence[str], most: int) -> tuple[np.ndarray, Any, Any] | None:
    """Training rows (at most `most`), their features, and those of the validation rows; None without any word twice."""
    index = np.random.default_rng(0).permutation(len(train))[:most]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    try:
        features = vectorizer.fit_transform([train[row] for row in index])
    except ValueError:  # no word occurs twice
        return None
    return index, features, vectorizer.transform(validation)


def _first(predictions: Any) -> np.ndarray:
    """The logits of what a model returns: some return more."""
    logits = predictions[0] if isinstance(predictions, tuple) else predictions
    return np.asarray(logits, dtype=np.float64)
