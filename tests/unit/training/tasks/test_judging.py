"""Metrics against scikit-learn and sums by hand; baselines on rows whose answer is known."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, mean_absolute_error, r2_score, root_mean_squared_error
from transformers import EvalPrediction

from paretune.training.tasks.judging import (
    MOST_POINTS,
    MultiLabelMetrics,
    RegressionMetrics,
    multi_label_baselines,
    regression_baselines,
    regression_metrics,
)
from paretune.training.tasks.losses import Units

RANDOM = np.random.default_rng(0)


def test_numbers_are_judged_in_the_units_of_the_labels() -> None:
    units = Units(shift=100.0, factor=20.0)
    truth = RANDOM.normal(100, 20, size=50)
    predicted = truth + RANDOM.normal(0, 5, size=50)
    judge = RegressionMetrics(units)

    found = judge(EvalPrediction(predictions=units.learnt(predicted)[:, None], label_ids=units.learnt(truth)))

    assert found["rmse"] == pytest.approx(root_mean_squared_error(truth, predicted))
    assert found["mae"] == pytest.approx(mean_absolute_error(truth, predicted))
    assert found["r2"] == pytest.approx(r2_score(truth, predicted))
    ranks = [np.argsort(np.argsort(values)) for values in (truth, predicted)]
    assert found["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert judge.shown is not None
    assert np.array(judge.shown["predictions"]) == pytest.approx(np.stack([truth, predicted], axis=1))


def test_what_is_not_defined_is_absent() -> None:
    assert regression_metrics(np.array([2.0, 2.0]), np.array([1.0, 3.0])).keys() == {"rmse", "mae"}
    assert regression_metrics(np.array([1.0, 3.0]), np.array([2.0, 2.0])).keys() == {"rmse", "mae", "r2"}
    diverged = EvalPrediction(predictions=np.array([[np.nan]]), label_ids=np.array([1.0]))
    assert RegressionMetrics(Units())(diverged) == {}


def test_a_report_shows_as_many_points_as_a_figure_can() -> None:
    judge = RegressionMetrics(Units())
    numbers = np.arange(3 * MOST_POINTS, dtype=np.float64)

    judge(EvalPrediction(predictions=numbers[:, None], label_ids=numbers))

    assert judge.shown is not None
    shown = judge.shown["predictions"]
    assert len(shown) == MOST_POINTS
    assert (shown[0][0], shown[-1][0]) == (0, len(numbers) - 1)


def test_labels_are_answered_from_a_probability_of_a_half() -> None:
    logits = RANDOM.normal(size=(40, 3))
    logits[:, 2] = -9.0  # never answered
    truth = (RANDOM.random((40, 3)) < 0.4).astype(np.float32)
    judge = MultiLabelMetrics()

    found = judge(EvalPrediction(predictions=logits, label_ids=truth))

    answered = logits >= 0
    assert found["f1"] == pytest.approx(f1_score(truth, answered, average="macro", zero_division=0))
    assert found["f1_micro"] == pytest.approx(f1_score(truth, answered, average="micro"))
    assert found["subset_accuracy"] == sum((truth == answered).sum(axis=1) == 3) / 40
    assert judge.shown is not None
    for column, (both, only_answered, only_true, neither) in enumerate(judge.shown["label_counts"]):
        right = truth[:, column].astype(bool)
        assert both == (right & answered[:, column]).sum()
        assert both + only_answered == answered[:, column].sum()
        assert both + only_true == right.sum()
        assert both + only_answered + only_true + neither == 40


def test_the_mean_and_single_words_predict_numbers() -> None:
    texts = ["good film", "bad film"] * 20
    labels = np.array([5.0, 1.0] * 20)

    found = regression_baselines((texts, labels), (texts[:4], labels[:4]))

    assert found["baseline_rmse_mean"] == 2.0
    assert found["baseline_rmse_tfidf"] < 0.3


def test_the_most_frequent_set_and_single_words_predict_labels() -> None:
    texts = ["war film", "old film", "war and old film"] * 10 + ["war film"] * 5
    labels = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 1]] * 10 + [[1, 0, 1]] * 5, dtype=np.float32)

    found = multi_label_baselines((texts, labels), (texts[:3], labels[:3]))

    # always {first, third}: F1 of 2 x 2 / (2 x 2 + 1), none, and all of the last label, which every row has
    assert found["baseline_f1_majority"] == pytest.approx((4 / 5 + 0 + 1) / 3)
    assert found["baseline_f1_tfidf"] == 1.0


def test_where_no_word_occurs_twice_there_is_no_baseline_of_words() -> None:
    rows = ["one", "two"], np.array([[1.0, 0.0], [0.0, 1.0]])

    assert multi_label_baselines(rows, rows).keys() == {"baseline_f1_majority"}
    assert regression_baselines((rows[0], np.array([1.0, 2.0])), (rows[0], np.array([1.0, 2.0]))).keys() == {
        "baseline_rmse_mean"
    }
