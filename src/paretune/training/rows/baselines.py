"""What a fine-tuned model has to beat, on the same rows."""

from collections.abc import Mapping

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from paretune.spec.metrics import BASELINE_MAJORITY, BASELINE_TFIDF
from paretune.training.rows.data import Rows

MOST_ROWS = 50_000
"""Training rows the TF-IDF baseline sees at most; beyond that it takes longer than it tells."""


def baselines(rows: Mapping[str, Rows], classes: int) -> dict[str, float]:
    """Macro F1 on the validation rows of always the most frequent class, and of TF-IDF with logistic regression.

    TF-IDF of words and word pairs that occur at least twice, sublinear term frequency; logistic regression with C = 5.
    An empty dictionary without labels. TF-IDF is absent when no word occurs twice.
    """
    train, validation = rows["train"], rows["validation"]
    if train.labels is None or validation.labels is None:
        return {}
    most_frequent = int(np.bincount(train.labels, minlength=classes).argmax())
    measured = {BASELINE_MAJORITY: _macro_f1(validation.labels, np.full(len(validation), most_frequent))}
    index = np.random.default_rng(0).permutation(len(train))[:MOST_ROWS]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    try:
        features = vectorizer.fit_transform([train.texts[row] for row in index])
    except ValueError:  # no word occurs twice
        return measured
    model = LogisticRegression(C=5, max_iter=1000).fit(features, train.labels[index])
    answers = model.predict(vectorizer.transform(validation.texts))
    return measured | {BASELINE_TFIDF: _macro_f1(validation.labels, answers)}


def _macro_f1(truth: np.ndarray, answers: np.ndarray) -> float:
    return float(f1_score(truth, answers, average="macro", zero_division=0))
