"""What is said of the model that a finished job returns."""

from typing import Any

import pytest

from paretune.jobs.outcome import verdicts
from paretune.specification.job import JobSpec

GOOD = {"f1": 0.9, "baseline_f1_tfidf": 0.74, "baseline_f1_majority": 0.33, "truncated_share": 0.1}


@pytest.mark.parametrize(
    ("changes", "mended"),
    [
        ({}, "--num_train_epochs 3"),
        ({"fine_tuning": "lora", "learning_rate": 5e-5}, "--learning_rate 0.0005, --num_train_epochs 3"),
        ({"learning_rate": 0.01}, "--learning_rate 5e-05, --num_train_epochs 3"),
        ({"global_batch_size": 256}, "--learning_rate_scaling sqrt, --num_train_epochs 3"),
        ({"fine_tuning": "head", "num_train_epochs": 0.5}, "--fine_tuning full, --num_train_epochs 1.5"),
    ],
)
def test_an_f1_below_that_of_words_alone_is_said_with_what_to_change(changes: dict[str, Any], mended: str) -> None:
    (text,) = verdicts(JobSpec(**changes), {"f1": 0.5, "baseline_f1_tfidf": 0.74})

    assert text.startswith("F1 0.5000 is below 0.7400, which TF-IDF")
    assert text.partition("; try ")[2] == mended


@pytest.mark.parametrize(
    "result", [{"f1": 0.74, "baseline_f1_tfidf": 0.74}, {"f1": 0.5}, {"baseline_f1_tfidf": 0.74}, {}], ids=str
)
def test_a_model_as_good_as_words_alone_or_without_that_measure_is_left_in_peace(result: dict[str, float]) -> None:
    assert verdicts(JobSpec(), result) == []


def test_a_model_no_better_than_the_most_frequent_class_has_learnt_nothing() -> None:
    (text,) = verdicts(JobSpec(), {"f1": 0.33, "baseline_f1_tfidf": 0.74, "baseline_f1_majority": 0.33})

    assert text.startswith("F1 0.3300 is no better than 0.3300, which always answering the most frequent class reaches")
