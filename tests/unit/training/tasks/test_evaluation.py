"""Metrics of evaluations against scikit-learn and sums by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from transformers import EvalPrediction

from paretune.training.tasks import Evaluation, entities, word_metrics

RANDOM = np.random.default_rng(0)


def evaluation(task: str, classes: int = 0) -> Evaluation:
    return Evaluation(task, [str(number) for number in range(classes)])


def test_labels_are_answered_from_a_probability_of_a_half() -> None:
    logits = RANDOM.normal(size=(40, 3))
    logits[:, 2] = -9.0  # never answered
    truth = (RANDOM.random((40, 3)) < 0.4).astype(np.float32)
    judge = evaluation("multi-label", 3)

    result = judge(EvalPrediction(predictions=judge.predict(torch.tensor(logits)), label_ids=truth))

    answered = logits >= 0
    assert result["f1"] == pytest.approx(f1_score(truth, answered, average="macro", zero_division=0))
    assert result["f1_micro"] == pytest.approx(f1_score(truth, answered, average="micro"))
    assert result["subset_accuracy"] == sum((truth == answered).sum(axis=1) == 3) / 40
    assert judge.report_entries is not None
    for column, (both, only_answered, only_true, neither) in enumerate(judge.report_entries["label_counts"]):
        right = truth[:, column].astype(bool)
        assert both == (right & answered[:, column]).sum()
        assert both + only_answered == answered[:, column].sum()
        assert both + only_true == right.sum()
        assert both + only_answered + only_true + neither == 40


@pytest.mark.parametrize("classes", [2, 5])
def test_class_metrics_agree_with_scikit_learn(classes: int) -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=(200, classes)).astype(np.float32)
    truth = random.integers(0, classes, size=200)
    judge = evaluation("classification", classes)
    result = judge(EvalPrediction(predictions=judge.predict(torch.tensor(logits)), label_ids=truth))

    answers = logits.argmax(axis=1)
    assert result["f1"] == pytest.approx(f1_score(truth, answers, average="macro"))
    assert result["accuracy"] == pytest.approx(accuracy_score(truth, answers))
    assert judge.report_entries is not None
    confusion = np.array(judge.report_entries["confusion_matrix"])
    assert confusion.tolist() == confusion_matrix(truth, answers).tolist()


def test_entities_are_those_of_conll() -> None:
    labels = ["B-PER", "I-PER", "O", "I-LOC", "I-LOC", "B-LOC", "I-ORG", "O"]

    assert entities(labels) == {("PER", 0, 2), ("LOC", 3, 5), ("LOC", 5, 6), ("ORG", 6, 7)}


def test_f1_of_words_is_that_of_whole_entities() -> None:
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"]]
    answers = [["B-PER", "O", "O", "B-LOC"], ["O", "B-ORG"]]  # one entity of three ends too early

    assert word_metrics(truth, answers) == {"f1": pytest.approx(2 / 3), "accuracy": pytest.approx(5 / 6)}
    assert word_metrics([["DET", "NOUN"]], [["DET", "NOUN"]])["f1"] == 1.0


def test_tokens_without_a_label_are_left_out() -> None:
    judge = Evaluation("token-classification", ("O", "B-X"))
    labels = np.array([[-100, 0, 1, -100], [-100, 1, -100, -100]])
    logits = torch.nn.functional.one_hot(torch.tensor([[0, 0, 1, 1], [1, 0, 1, 1]]), 2).float()

    measured = judge(EvalPrediction(predictions=judge.predict(logits), label_ids=labels))

    assert measured == {"f1": pytest.approx(2 / 3), "accuracy": pytest.approx(2 / 3)}
