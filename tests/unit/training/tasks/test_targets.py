"""Labels that are no classes: every way to write them, groups for the split, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobSpec
from paretune.training.rows.sources import read_rows
from paretune.training.tasks import read_targets

SETS = [["a", "b"], ["b"], [], ["c"]] * 5


def jsonl(path: Path, labels: list[Any], **columns: list[Any]) -> Path:
    """Rows with a text, a label and what `columns` give."""
    rows = ({"text": f"film {number}", "label": label} for number, label in enumerate(labels))
    whole = [row | {name: column[number] for name, column in columns.items()} for number, row in enumerate(rows)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in whole))
    return path


def csv(path: Path, cells: list[str]) -> Path:
    """Rows with a text and a label."""
    path.write_text("text,label\n" + "".join(f'film {number},"{cell}"\n' for number, cell in enumerate(cells)))
    return path


def read(path: Path, task: str, **parameters: Any) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Labels of the rows in the order of the file, by split `all`, and their names."""
    spec = JobSpec(dataset=str(path), task=task, validation_file=str(path), **parameters)
    rows, names = read_rows(spec)
    assert rows["train"].labels is not None
    assert rows["validation"].labels is not None
    assert (rows["train"].labels == rows["validation"].labels).all()
    return {"all": rows["train"].labels}, names


def faults_of(path: Path, task: str, **parameters: Any) -> str:
    with pytest.raises(BadInput) as caught:
        read_rows(JobSpec(dataset=str(path), task=task, **parameters))
    return str(caught.value)


def flags(sets: list[list[str]], names: tuple[str, ...]) -> list[list[float]]:
    return [[float(name in labels) for name in names] for labels in sets]


@pytest.mark.parametrize(
    "write",
    [
        lambda labels: labels,
        json.dumps,
        repr,
        "|".join,
        " , ".join,
    ],
    ids=["list", "json", "python", "bar", "comma"],
)
def test_sets_of_labels_are_read_however_they_are_written(tmp_path: Path, write: Any) -> None:
    result, names = read(jsonl(tmp_path / "rows.jsonl", [write(labels) for labels in SETS]), "multi-label")

    assert names == ("a", "b", "c")
    assert result["all"].tolist() == flags(SETS, names)
    assert result["all"].dtype == np.float32


def test_columns_of_0_and_1_are_labels_by_the_names_of_the_columns(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [0] * 8, war=[1, 0] * 4, old=[True, True, False, False] * 2)

    result, names = read(path, "multi-label", label_column="war, old")

    assert names == ("war", "old")
    assert result["all"][:4].tolist() == [[1, 1], [0, 1], [1, 0], [0, 0]]
    path = jsonl(tmp_path / "wrong.jsonl", [0] * 8, war=[1, 2] * 4, old=[0] * 8)
    fault = faults_of(path, "multi-label", label_column="war,old")
    assert "'war' must hold 0 or 1, and train row 2 has 2" in fault


@pytest.mark.parametrize(
    ("task", "labels", "words"),
    [
        ("multi-label", [[], [], []], "holds no label in any training row"),
        ("multi-label", [f"only {number}" for number in range(9)], "has 9 classes in 9 rows: is it the right column"),
        ("multi-label", [1.5, 2.5, 1.5], "3 train rows hold others: row 1 has 1.5"),
        (
            "multi-label",
            [{"a": 1}, {"a": 2}],
            "text such as a|b; 2 train rows hold others",
        ),
        (
            "classification",
            [["a"], ["b"]],
            "one class per row, as text or a whole number; 2 train rows hold",
        ),
        ("classification", [["a"], ["b"]], "set task=multi-label for rows with several labels"),
        ("classification", [{"a": 1}, {"a": 2}], "row 2 has {'a': 2}: set label_column to another column"),
        (
            "classification",
            [0.5, 1.5],
            "row 2 has 1.5: a script of your own (entry_script) can learn numbers",
        ),
    ],
)
def test_labels_that_do_not_go_with_the_task_are_bad_input(
    tmp_path: Path, task: str, labels: list[Any], words: str
) -> None:
    assert words in faults_of(jsonl(tmp_path / "rows.jsonl", labels), task)


def test_labels_of_the_validation_rows_must_occur_in_training_rows(tmp_path: Path) -> None:
    path = csv(tmp_path / "rows.csv", ["a", "b"] * 5)
    other = csv(tmp_path / "other.csv", ["a|z", "z|b"])

    fault = faults_of(path, "multi-label", validation_file=str(other))

    assert "2 labels of validation rows occur in no training row: 'z'" in fault


def test_too_few_training_rows_for_a_label_are_said(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "rows.jsonl", [["a"]] * 60 + [["b"]] * 2)

    assert "labels (b): raise max_train_samples" in faults_of(path, "multi-label", max_train_samples=5)


def test_rows_with_equally_many_words_are_rows_of_words() -> None:
    rows = {"text": [["a", "b"], ["c", "d"]], "label": [["O", "B-X"], ["B-X", "O"]]}
    labels, names = read_targets(JobSpec(task="token-classification"), {"train": datasets.Dataset.from_dict(rows)})

    assert names == ("B-X", "O")
    assert labels["train"].tolist() == [[1, 0], [0, 1]]
    rows["label"][1] = ["O"]
    with pytest.raises(BadInput, match="1 of 2 train rows do not: row 2 has 2 words and 1 labels"):
        read_targets(JobSpec(task="token-classification"), {"train": datasets.Dataset.from_dict(rows)})
