"""Tasks: labels in all formats, losses compared with transformers, metrics and baselines compared with scikit-learn."""

import csv
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from transformers import AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.training import tasks
from paretune.training.rows.sources import read_rows
from paretune.training.tasks import (
    Evaluation,
    SummedLoss,
    entities,
    read_targets,
    text_baselines,
    word_baselines,
    word_metrics,
)
from tests.support.small_models import Calls

SETS = [["a", "b"], ["b"], [], ["c"]] * 5


def jsonl(path: Path, labels: list[Any], **columns: list[Any]) -> Path:
    """Write rows with a text, a label and what `columns` give."""
    rows = ({"text": f"film {number}", "label": label} for number, label in enumerate(labels))
    whole = [row | {name: column[number] for name, column in columns.items()} for number, row in enumerate(rows)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in whole))
    return path


def read(path: Path, **parameters: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the labels of the rows in the order of the file, and their names."""
    spec = JobSpec(dataset=str(path), task="multi-label", validation_file=str(path), **parameters)
    rows, names = read_rows(spec.data_arguments)
    assert rows["train"].labels is not None
    return rows["train"].labels, names


def faults_of(path: Path, task: str, **parameters: Any) -> str:
    with pytest.raises(BadInput) as caught:
        read_rows(JobSpec(dataset=str(path), task=task, **parameters).data_arguments)
    return str(caught.value)


def read_declared(
    folder: Path, kind: Any, train: list[Any], test: list[str], task: str = "classification"
) -> tuple[list[Any], tuple[str, ...]]:
    """Return the labels of a CSV file's rows, given a data set that declares its classes, and their names."""
    features = datasets.Features({"text": datasets.Value("string"), "label": kind})
    columns = {"text": [f"word {number}" for number in range(len(train))], "label": train}
    datasets.Dataset.from_dict(columns, features=features).to_parquet(folder / "rows.parquet")
    (folder / "mine.csv").write_text("text,label\n" + "".join(f"some words,{label}\n" for label in test))
    rows, names = read_rows(
        JobSpec(dataset=str(folder / "rows.parquet"), test_file=str(folder / "mine.csv"), task=task).data_arguments
    )
    assert rows["test"].labels is not None
    return rows["test"].labels.tolist(), names


@pytest.mark.parametrize(
    "write",
    [lambda labels: labels, json.dumps, repr, lambda labels: str(np.array(labels)), "|".join, " , ".join],
    ids=["list", "json", "python", "numpy", "bar", "comma"],
)
def test_sets_of_labels_are_read_however_they_are_written(tmp_path: Path, write: Any) -> None:
    result, names = read(jsonl(tmp_path / "rows.jsonl", [write(labels) for labels in SETS]))

    assert names == ("a", "b", "c")
    assert result.tolist() == [[float(name in labels) for name in names] for labels in SETS]
    assert result.dtype == np.float32


def test_columns_of_0_and_1_are_labels_by_the_names_of_the_columns(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [0] * 8, war=[1, 0] * 4, old=[True, True, False, False] * 2)

    result, names = read(path, label_column="war, old")

    assert names == ("war", "old")
    assert result[:4].tolist() == [[1, 1], [0, 1], [1, 0], [0, 0]]
    path = jsonl(tmp_path / "wrong.jsonl", [0] * 8, war=[1, 2] * 4, old=[0] * 8)
    fault = faults_of(path, "multi-label", label_column="war,old")
    assert "'war' must hold 0 or 1, and train row 2 has 2" in fault


@pytest.mark.parametrize(
    ("task", "labels", "words"),
    [
        ("multi-label", [[], [], []], "has no label in any training row"),
        ("multi-label", [["a"], [], ["a"]], "has only one class (a): set task=classification"),
        ("multi-label", [f"only {number}" for number in range(9)], "has 9 classes in 9 rows: is it the right column"),
        ("multi-label", [1.5, 2.5, 1.5], "3 train rows contain something else: row 1 has 1.5"),
        ("multi-label", [{"a": 1}, {"a": 2}], "text such as a|b; 2 train rows contain something else"),
        ("classification", [["a"], ["b"]], "set task=multi-label for rows with several labels"),
        ("classification", [{"a": 1}, {"a": 2}], "row 2 has {'a': 2}"),
        ("classification", [0.5, 1.5], "row 2 has 1.5: a script of your own (entry_script) can predict numbers"),
        ("multi-label", [["a"], ["b"]], "labels (b): give more rows of each"),
        ("token-classification", ["[O, O]"] * 9, "row 1 has '[O, O]'"),
        ("token-classification", [["O", None], ["O", "B-X"]] * 9, "row 1 has ['O', None]"),
        ("token-classification", [[0.0, 1.0]] * 9, "lists of texts or whole numbers, or text such as a|b; 9 train"),
    ],
)
def test_labels_that_do_not_go_with_the_task_are_bad_input(
    tmp_path: Path, task: str, labels: list[Any], words: str
) -> None:
    assert words in faults_of(jsonl(tmp_path / "rows.jsonl", labels), task)


@pytest.mark.parametrize(
    ("names", "labels", "ids"),
    [
        (["neg", "pos"], ["0", "1", "1"], [0, 1, 1]),
        (["neg", "pos"], ["neg", "pos", "pos"], [0, 1, 1]),
        (["1", "2", "3"], ["0", "1", "2"], [0, 1, 2]),
        (["1", "2", "3"], ["1", "2", "3"], [0, 1, 2]),
    ],
)
def test_a_file_may_have_the_numbers_or_names_of_classes_that_a_data_set_declares(
    tmp_path: Path, names: list[str], labels: list[str], ids: list[int]
) -> None:
    kind = datasets.ClassLabel(names=names)

    assert read_declared(tmp_path, kind, [*range(len(names))] * 9, labels) == (ids, tuple(names))


def test_a_file_may_have_the_numbers_of_declared_labels_of_words(tmp_path: Path) -> None:
    kind = datasets.Sequence(datasets.ClassLabel(names=["O", "B-LOC"]))

    labels, names = read_declared(tmp_path, kind, [[0, 1], [1, 0]] * 9, ["0 1", "1 1"], "token-classification")

    assert names == ("O", "B-LOC")
    assert labels == [[0, 1], [1, 1]]


@pytest.mark.parametrize(("labels", "example"), [(["0", "2"], "row 2 has '2'"), (["0", "pos"], "row 2 has 'pos'")])
def test_a_class_that_a_data_set_does_not_declare_is_refused(tmp_path: Path, labels: list[str], example: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_declared(tmp_path, datasets.ClassLabel(names=["neg", "pos"]), [0, 1] * 9, labels)

    rule = "only numbers below 2, or only names that the data set declares (neg, pos); 1 test rows contain something"
    assert rule in str(caught.value)
    assert example in str(caught.value)


def test_too_few_training_rows_for_a_label_are_said(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [["a"]] * 60 + [["b"]] * 2)

    assert "labels (b): raise max_train_samples" in faults_of(path, "multi-label", max_train_samples=5)
    path = jsonl(tmp_path / "rows.jsonl", [["a"]] * 60 + [[f"rare {number}"] for number in range(30)])
    assert "): give more rows of each" in faults_of(path, "multi-label", max_train_samples=1000)


@pytest.mark.parametrize("write", [json.dumps, repr, lambda items: str(np.array(items)), " ".join])
def test_words_and_their_labels_are_read_however_they_are_written(tmp_path: Path, write: Any) -> None:
    words, labels = ["it's", "in", "Rome", "[1]", "\U0001f600"], ["O", "O", "B-LOC", "O", "O"]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *[(write(words), write(labels))] * 20])

    read, names = read_rows(JobSpec(dataset=str(tmp_path / "rows.csv"), task="token-classification").data_arguments)

    assert names == ("B-LOC", "O")
    assert read["train"].labels is not None
    assert read["train"].labels.tolist() == [[1, 1, 0, 1, 1]] * 18
    assert read["train"].texts == [" ".join(words)] * 18


def test_whole_numbers_as_numpy_writes_them_are_labels(tmp_path: Path) -> None:
    numbers = str(np.array([0, 12, 0, 3]))
    assert read(jsonl(tmp_path / "rows.jsonl", [numbers, "[3]"] * 9))[1] == ("0", "3", "12")


def test_rows_with_equally_many_words_are_rows_of_words() -> None:
    rows = {"text": [["a", "b"], ["c", "d"]], "label": [["O", "B-X"], ["B-X", "O"]]}
    labels, names = read_targets(
        JobSpec(task="token-classification").data_arguments, {"train": datasets.Dataset.from_dict(rows)}
    )

    assert names == ("B-X", "O")
    assert labels["train"].tolist() == [[1, 0], [0, 1]]
    rows["label"][1] = ["O"]
    with pytest.raises(BadInput, match="1 of 2 train rows do not: row 2 has 2 words and 1 labels"):
        read_targets(JobSpec(task="token-classification").data_arguments, {"train": datasets.Dataset.from_dict(rows)})


# --- losses


def test_the_loss_of_labels_is_that_of_transformers_also_in_parts(tiny_model: Path) -> None:
    labels, loss = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]), SummedLoss(task="multi-label").of_logits
    torch.manual_seed(0)
    problem: dict[str, Any] = {"num_labels": 4, "problem_type": "multi_label_classification"}
    model = AutoModelForSequenceClassification.from_pretrained(tiny_model, **problem).eval()
    tokens = torch.randint(5, 30, (3, 7))

    with torch.no_grad():
        outputs = model(input_ids=tokens, labels=labels)
    parts = [loss(outputs.logits[part], labels[part]) for part in (slice(0, 2), slice(2, 3))]

    assert sum(part.item() for part in parts) == pytest.approx(labels.numel() * outputs.loss.item())


def test_the_loss_of_next_tokens_is_that_of_transformers() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)).eval()
    tokens = torch.randint(0, 20, (3, 7))
    labels = tokens.where(torch.arange(7) < 5, -100)
    outputs = model(input_ids=tokens, labels=labels)

    for logits in (outputs.logits, outputs.logits.detach()):
        assert SummedLoss(task="causal-lm").of_logits(logits, labels).item() == pytest.approx(12 * outputs.loss.item())


def test_the_loss_of_words_takes_as_many_operators_for_one_row_as_for_many() -> None:
    numbers = []
    for rows in (1, 32):
        with Calls() as calls:
            SummedLoss(task="token-classification").of_logits(torch.zeros(rows, 5, 3), torch.zeros(rows, 5).long())
        numbers.append(calls.count)
    assert numbers[0] == numbers[1]


# --- metrics

RANDOM = np.random.default_rng(0)


def test_labels_are_answered_from_a_probability_of_a_half() -> None:
    logits = RANDOM.normal(size=(40, 3))
    logits[:, 2] = -9.0  # never answered
    truth = (RANDOM.random((40, 3)) < 0.4).astype(np.float32)
    judge = Evaluation("multi-label", "abc")

    result = judge(judge.predict(torch.tensor(logits)), truth)

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


def test_class_metrics_agree_with_scikit_learn() -> None:
    logits = RANDOM.normal(size=(200, 5)).astype(np.float32)
    truth = RANDOM.integers(0, 5, size=200)
    judge = Evaluation("classification", "abcde")
    result = judge(judge.predict(torch.tensor(logits)), truth)

    answers = logits.argmax(axis=1)
    assert result["f1"] == pytest.approx(f1_score(truth, answers, average="macro"))
    assert result["accuracy"] == pytest.approx(accuracy_score(truth, answers))
    assert judge.report_entries is not None
    confusion = np.array(judge.report_entries["confusion_matrix"])
    assert confusion.tolist() == confusion_matrix(truth, answers).tolist()


def test_very_many_classes_have_no_confusion_matrix() -> None:
    """Its size is the square of their number: at 5,500 classes, the report would be too large to read."""
    entries = []
    for count in (1_000, 1_001):
        judge = Evaluation("classification", [str(number) for number in range(count)])
        judge([0, 1], [0, 0])
        assert judge.report_entries is not None
        entries.append(judge.report_entries)

    assert [len(each.get("confusion_matrix", ())) for each in entries] == [1_000, 0]


def test_f1_of_words_is_that_of_whole_entities() -> None:
    labels = ["B-PER", "I-PER", "O", "I-LOC", "I-LOC", "B-LOC", "I-ORG", "O"]
    assert entities(labels) == {("PER", 0, 2), ("LOC", 3, 5), ("LOC", 5, 6), ("ORG", 6, 7)}  # as in CoNLL


def test_the_last_words_of_entities_and_entities_of_one_word_have_their_own_labels_in_bioes_and_bilou() -> None:
    bioes = ["B-PER", "I-PER", "E-PER", "I-PER", "S-LOC", "S-LOC", "O", "E-ORG"]
    bilou = [{"E": "L", "S": "U"}.get(label[0], label[0]) + label[1:] for label in bioes]

    assert entities(bioes) == entities(bilou)
    assert entities(bioes) == {("PER", 0, 3), ("PER", 3, 4), ("LOC", 4, 5), ("LOC", 5, 6), ("ORG", 7, 8)}
    assert word_metrics([["B-PER", "E-PER", "O", "S-LOC"]], [["B-PER", "O", "O", "O"]])["f1"] == 0
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG"]]
    answers = [["B-PER", "O", "O", "B-LOC"], ["O", "B-ORG"]]  # one entity of three ends too early

    assert word_metrics(truth, answers) == {"f1": pytest.approx(2 / 3), "accuracy": pytest.approx(5 / 6)}
    assert word_metrics([["DET", "NOUN"]], [["DET", "NOUN"]])["f1"] == 1.0


def test_tokens_without_a_label_are_left_out() -> None:
    judge = Evaluation("token-classification", ("O", "B-X"))
    labels = np.array([[-100, 0, 1, -100], [-100, 1, -100, -100]])
    logits = torch.nn.functional.one_hot(torch.tensor([[0, 0, 1, 1], [1, 0, 1, 1]]), 2).float()

    measured = judge(judge.predict(logits), labels)

    assert measured == {"f1": pytest.approx(2 / 3), "accuracy": pytest.approx(2 / 3)}


# --- baselines


def test_the_most_frequent_set_and_single_words_predict_labels() -> None:
    texts = ["war film", "old film", "war and old film"] * 10 + ["war film"] * 5
    labels = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 1]] * 10 + [[1, 0, 1]] * 5, dtype=np.float32)

    result = text_baselines((texts, labels), (texts[:3], labels[:3]))

    # Always {first, third}: F1 of 2 x 2 / (2 x 2 + 1), none, and all of the last label, which every row has.
    assert result["baseline_f1_majority"] == pytest.approx((4 / 5 + 0 + 1) / 3)
    assert result["baseline_f1_tfidf"] == 1.0


def test_a_row_without_words_has_no_word_to_predict() -> None:
    train = (["a film", ""], [[0, 1], []])

    assert word_baselines(train, train, ["O", "B-X"]) == {"baseline_f1_words": 1.0}


def test_a_class_that_is_too_rare_for_the_sample_leaves_the_baseline_of_words_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_TFIDF_ROWS", 10)
    texts, labels = [f"common word{number % 50}" for number in range(200)], np.zeros(200)
    labels[np.random.default_rng(0).permutation(200)[-1]] = 1

    assert text_baselines((texts, labels), (texts[:50], labels[:50])) == {"baseline_f1_majority": 1.0}


def test_the_baseline_of_many_classes_has_a_bound_on_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, labels = [f"common word{number % 50}" for number in range(200)], np.arange(200) % 50
    shapes = []
    fit = LogisticRegression.fit

    def noted(self: Any, features: Any, *rest: Any) -> Any:
        shapes.append(features.shape)
        return fit(self, features, *rest)

    monkeypatch.setattr(tasks, "_FITTED_WEIGHTS", 1000)
    monkeypatch.setattr(LogisticRegression, "fit", noted)

    result = text_baselines((texts, labels), (texts[:50], labels[:50]))

    assert shapes == [(200, 20)]  # words x 50 classes
    assert 0 < result["baseline_f1_tfidf"] < 1
