"""Baselines of the tasks, on rows whose answer is known."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from paretune.specification.metrics import BASELINE_MAJORITY, BASELINE_TFIDF
from paretune.training.tasks import text_baselines

REVIEW_WORDS = "good great fine bad awful poor so film plot cast and the".split()  # noqa: SIM905


def three_classes(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts whose words give the class away most of the time: class 2 is twice as frequent as each of the others."""
    source = np.random.default_rng(seed)
    labels = source.choice(3, size=count, p=[0.25, 0.25, 0.5])
    texts = []
    for label in labels:
        hints = source.choice(REVIEW_WORDS[2 * label : 2 * label + 3], size=2)
        texts.append(" ".join([*source.choice(REVIEW_WORDS, size=5), *hints]))
    return texts, labels


def test_both_baselines_are_those_of_scikit_learn() -> None:
    train, validation = three_classes(300, 0), three_classes(80, 1)

    result = text_baselines(train, validation)

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    model = LogisticRegression(C=5, max_iter=1000).fit(vectorizer.fit_transform(train[0]), train[1])
    answers = model.predict(vectorizer.transform(validation[0]))
    # The rows are seen in another order, so the solver may stop an answer apart.
    assert result[BASELINE_TFIDF] == pytest.approx(f1_score(validation[1], answers, average="macro"), abs=0.03)
    assert result[BASELINE_MAJORITY] < result[BASELINE_TFIDF] < 1
    always = np.full(len(validation[1]), 2)
    expected = f1_score(validation[1], always, average="macro", zero_division=0)
    assert result[BASELINE_MAJORITY] == pytest.approx(expected)


def test_the_most_frequent_set_and_single_words_predict_labels() -> None:
    texts = ["war film", "old film", "war and old film"] * 10 + ["war film"] * 5
    labels = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 1]] * 10 + [[1, 0, 1]] * 5, dtype=np.float32)

    result = text_baselines((texts, labels), (texts[:3], labels[:3]))

    # always {first, third}: F1 of 2 x 2 / (2 x 2 + 1), none, and all of the last label, which every row has
    assert result["baseline_f1_majority"] == pytest.approx((4 / 5 + 0 + 1) / 3)
    assert result["baseline_f1_tfidf"] == 1.0
