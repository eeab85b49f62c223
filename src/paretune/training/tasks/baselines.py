"""Scores of trivial models and TF-IDF on the validation rows, which a trained model must beat.

TF-IDF is of words and word pairs that occur at least twice, with sublinear term frequency. Its baseline is absent if no
word occurs twice.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import root_mean_squared_error

from paretune.specification import metrics
from paretune.training.tasks.evaluation import THRESHOLD, macro_f1, multi_label_metrics, rouge_l, word_metrics

_TFIDF_ROWS = 50_000  # largest number of training rows: more rows take time and hardly change the result
_FITTED_CELLS = 500_000  # largest product of rows and labels: one model is fitted for each label

Rows = tuple[Sequence[str], np.ndarray]
"""Texts and their labels."""


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


def regression_baselines(train: Rows, validation: Rows) -> dict[str, float]:
    """RMSE of always the mean of the training rows, and of TF-IDF with ridge regression (alpha = 1)."""
    from sklearn.linear_model import Ridge

    truth = validation[1]
    mean = np.full(len(truth), train[1].mean())
    baselines = {metrics.BASELINE_MEAN_RMSE: float(root_mean_squared_error(truth, mean))}
    tfidf = _tfidf(train[0], validation[0], _TFIDF_ROWS)
    if tfidf is None:
        return baselines
    index, features, validation_features = tfidf
    predicted = Ridge(alpha=1.0).fit(features, train[1][index]).predict(validation_features)
    return baselines | {metrics.BASELINE_TFIDF_RMSE: float(root_mean_squared_error(truth, predicted))}


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


def lead_baselines(train: Rows, validation: Rows) -> dict[str, float]:
    """ROUGE-L of the first words of each text, as many as the references of the training rows have on average."""
    length = round(np.mean([len(reference.split()) for reference in train[1]]))
    return {metrics.BASELINE_LEAD: rouge_l(validation[1], [" ".join(text.split()[:length]) for text in validation[0]])}


def multi_label_baselines(train: Rows, validation: Rows) -> dict[str, float]:
    """Macro F1 of always the most frequent set of labels, and of TF-IDF with a logistic regression for each label.

    C = 5, threshold 0.5.
    """
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
