"""What a model has to beat, checked against scikit-learn used by hand."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from paretune.spec.metrics import BASELINE_MAJORITY, BASELINE_TFIDF
from paretune.training.rows.baselines import baselines
from paretune.training.rows.data import Rows

WORDS = "good great fine bad awful poor so film plot cast and the".split()  # noqa: SIM905


def some_rows(count: int, seed: int) -> Rows:
    """Texts whose words give the class away most of the time: class 2 is twice as frequent as each of the others."""
    source = np.random.default_rng(seed)
    labels = source.choice(3, size=count, p=[0.25, 0.25, 0.5])
    texts = []
    for label in labels:
        hints = source.choice(WORDS[2 * label : 2 * label + 3], size=2)
        texts.append(" ".join([*source.choice(WORDS, size=5), *hints]))
    return Rows(texts=texts, labels=labels)


def test_both_baselines_are_those_of_scikit_learn() -> None:
    train, validation = some_rows(300, 0), some_rows(80, 1)
    assert train.labels is not None
    assert validation.labels is not None

    found = baselines({"train": train, "validation": validation}, 3)

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    model = LogisticRegression(C=5, max_iter=1000).fit(vectorizer.fit_transform(train.texts), train.labels)
    answers = model.predict(vectorizer.transform(validation.texts))
    # The rows are seen in another order, so the solver may stop an answer apart.
    assert found[BASELINE_TFIDF] == pytest.approx(f1_score(validation.labels, answers, average="macro"), abs=0.03)
    assert found[BASELINE_MAJORITY] < found[BASELINE_TFIDF] < 1
    always = np.full(len(validation), 2)
    expected = f1_score(validation.labels, always, average="macro", zero_division=0)
    assert found[BASELINE_MAJORITY] == pytest.approx(expected)


def test_the_majority_is_worked_out_by_hand() -> None:
    train = Rows(texts=["x x", "y y", "x x"], labels=np.array([1, 0, 1]))
    validation = Rows(texts=["a", "b", "c", "d"], labels=np.array([1, 1, 1, 0]))

    found = baselines({"train": train, "validation": validation}, 2)

    # Always class 1: precision 3/4, recall 1, so F1 is 6/7; class 0 has F1 0.
    assert found[BASELINE_MAJORITY] == pytest.approx((6 / 7 + 0) / 2)


def test_the_majority_is_that_of_the_training_rows() -> None:
    train = Rows(texts=["x x", "y y", "x x"], labels=np.array([0, 1, 0]))
    validation = Rows(texts=["a", "b"], labels=np.array([1, 1]))

    assert baselines({"train": train, "validation": validation}, 2)[BASELINE_MAJORITY] == 0


def test_tf_idf_is_absent_when_no_word_occurs_twice() -> None:
    train = Rows(texts=["alpha beta", "gamma delta"], labels=np.array([0, 1]))

    assert baselines({"train": train, "validation": train}, 2).keys() == {BASELINE_MAJORITY}


def test_without_labels_there_are_no_baselines() -> None:
    rows = Rows(texts=["a b"])

    assert baselines({"train": rows, "validation": rows}, 0) == {}
