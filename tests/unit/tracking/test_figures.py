"""Confusion matrix and classification report."""

import io
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import classification_report as sklearn_report

from paretune.specification.container import JobReport
from paretune.tracking.figures import classification_report, confusion_figure, label_table


def report_of(counts: Any, labels: list[str] | None = None) -> JobReport:
    matrix = np.asarray(counts)
    names = labels or [f"class {number}" for number in range(len(matrix))]
    return JobReport(metrics={}, labels=tuple(names), confusion_matrix=tuple(map(tuple, matrix.tolist())))


def test_the_report_is_scikit_learn_s_on_the_rows_behind_the_counts() -> None:
    truth = ["bad", "bad", "bad", "good", "good", "soso", "soso", "soso", "soso"]
    answers = ["bad", "good", "bad", "good", "bad", "soso", "soso", "good", "soso"]
    counts = [[2, 1, 0], [1, 1, 0], [0, 1, 3]]

    assert classification_report(report_of(counts, ["bad", "good", "soso"])) == sklearn_report(
        truth, answers, digits=4, zero_division=0
    )
    absent = classification_report(report_of([[2, 1, 0], [1, 1, 0], [0, 0, 0]], ["bad", "good", "none"]))
    assert absent == sklearn_report(truth[:5], answers[:5], digits=4, zero_division=0)  # its macro F1 is the metric
    large = classification_report(report_of([[2**60, 0], [0, 2**60]]))  # more rows than memory holds
    assert "1.0000" in large


@pytest.mark.parametrize(
    ("labels", "shown"), [(["$3$_\\x$", "good"], ["$3$_\\x$", "good"]), (["好", "bad"], ["class 1", "class 2"])]
)
def test_the_figure_shows_shares_of_the_true_class_whatever_the_names(labels: list[str], shown: list[str]) -> None:
    figure = confusion_figure(report_of([[3, 1], [1000, 1000]], labels))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Glyph")  # one for each character that is drawn as a box
        figure.savefig(io.BytesIO(), format="png")

    (axes, *_) = figure.axes
    assert axes.get_images()[0].get_array().tolist() == [[0.75, 0.25], [0.5, 0.5]]
    assert [text.get_text() for text in axes.texts] == ["75%", "25%", "50%", "50%"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == shown


def test_the_table_of_labels_counts_as_scikit_learn_does() -> None:
    report = JobReport(metrics={}, labels=("war", "=1+1"), label_counts=((6, 2, 1, 11), (0, 0, 3, 17)))

    lines = label_table(report).splitlines()

    assert lines[0] == "label,rows,answered,precision,recall,f1"
    assert lines[1] == f"war,7,8,{6 / 8:.4f},{6 / 7:.4f},{12 / 15:.4f}"
    assert lines[2] == "'=1+1,3,0,0.0000,0.0000,0.0000"
