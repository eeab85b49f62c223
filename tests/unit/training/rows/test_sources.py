"""Every kind of data set becomes the same rows, and every fault is named."""

import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

from paretune.core.errors import BadInput
from paretune.specification.inputs import DataArguments
from paretune.specification.job import JobSpec
from paretune.training.rows.sources import read_rows

TEXTS = [f"story {number}, which was {('dull', 'great')[number % 2]}" for number in range(20)]
LABELS = [("bad", "good")[number % 2] for number in range(20)]


def write(
    path: Path,
    texts: list[Any] = TEXTS,
    labels: list[Any] = LABELS,
    columns: tuple[str, str] = ("text", "label"),
    separator: str = ",",
) -> Path:
    """Write the rows in the format that the file's name indicates."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame({columns[0]: texts, columns[1]: labels})
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else separator)
    return path


def spec(dataset: Path, **values: Any) -> DataArguments:
    return JobSpec(dataset=str(dataset), **values).data_arguments


def faults(dataset: Path, **values: Any) -> tuple[str, ...]:
    with pytest.raises(BadInput) as refused:
        read_rows(spec(dataset, **values))
    return refused.value.faults


@pytest.mark.parametrize(
    ("name", "separator"),
    [("rows.csv", ","), ("rows.csv", ";"), ("rows.tsv", ""), ("rows.jsonl", ""), ("rows.parquet", "")],
)
def test_every_file_format_gives_the_same_rows(tmp_path: Path, name: str, separator: str) -> None:
    rows, names = read_rows(spec(write(tmp_path / name, separator=separator)))

    assert names == ("bad", "good")
    assert {split: len(part) for split, part in rows.items()} == {"train": 18, "validation": 2}
    for part in rows.values():
        assert part.labels is not None
        assert [names[label] for label in part.labels] == ["good" if "great" in text else "bad" for text in part.texts]
    assert sorted([*rows["train"].texts, *rows["validation"].texts]) == sorted(TEXTS)


@pytest.mark.parametrize("name", ["rows[1].csv", "folder[1]/rows.jsonl"])
def test_brackets_in_the_name_of_a_file_are_not_a_pattern(tmp_path: Path, name: str) -> None:
    write(tmp_path / name.replace("[1]", "1"), labels=["other", "wrong"] * 10)

    assert read_rows(spec(write(tmp_path / name)))[1] == ("bad", "good")


@pytest.mark.parametrize(("ending", "separator"), [("csv", ","), ("csv", ";"), ("tsv", ""), ("parquet", "")])
def test_a_folder_gives_its_own_splits(tmp_path: Path, ending: str, separator: str) -> None:
    for split, count in (("train", 20), ("validation", 6), ("test", 4)):
        texts = [f"{split} {number}" for number in range(count)]
        write(tmp_path / "folder" / f"{split}.{ending}", texts, LABELS[:count], separator=separator)

    rows, names = read_rows(spec(tmp_path / "folder"))

    assert names == ("bad", "good")
    assert {split: len(part) for split, part in rows.items()} == {"train": 20, "validation": 6, "test": 4}
    assert all(text.startswith(split) for split, part in rows.items() for text in part.texts)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_may_be_named_like_a_file_as_spark_writes_it(tmp_path: Path, ending: str) -> None:
    folder = tmp_path / f"rows.{ending}"
    for part in range(2):
        write(folder / f"part-0000{part}.{ending}", TEXTS[part::2], LABELS[part::2])
    (folder / "_SUCCESS").touch()

    rows, names = read_rows(spec(folder))

    assert names == ("bad", "good")
    assert sorted([*rows["train"].texts, *rows["validation"].texts]) == sorted(TEXTS)
    assert faults(write(tmp_path / "own.csv"), test_file=str(folder)) == (
        f"test_file must be a file, and {folder} is a folder: name a file in it",
    )


def test_whole_numbers_next_to_missing_labels_are_classes(tmp_path: Path) -> None:
    """They are floats there, as pandas stores them."""
    path = write(tmp_path / "rows.parquet", labels=[0, 1, None, 10] * 5)
    validation_file = str(write(tmp_path / "validation.jsonl", TEXTS[:3], [0, 1, 10]))

    rows, names = read_rows(spec(path, missing_rows="drop", validation_file=validation_file))

    assert names == ("0", "1", "10")
    assert {split: len(part) for split, part in rows.items()} == {"train": 15, "validation": 3}
    (fault,) = faults(write(path, labels=[0, 1.5, None, 10] * 5), missing_rows="drop")
    assert "row 1 has 0.0, row 2 has 1.5" in fault


def test_whole_number_labels_are_ordered_as_numbers_and_named_by_them(tmp_path: Path) -> None:
    values = [(2, 10, 5)[number % 3] for number in range(30)]
    path = write(tmp_path / "rows.csv", [f"{value} of 10, row {number}" for number, value in enumerate(values)], values)

    rows, names = read_rows(spec(path))

    assert names == ("2", "5", "10")
    for part in rows.values():
        assert part.labels is not None
        assert part.labels.dtype == np.int64
        assert [names[label] for label in part.labels] == [text.split()[0] for text in part.texts]


def test_the_split_is_a_tenth_disjoint_and_the_same_for_every_seed(tmp_path: Path) -> None:
    texts = [f"row {number}" for number in range(200)]
    path = write(tmp_path / "rows.csv", texts, LABELS * 10)

    first, _ = read_rows(spec(path, seed=1))
    again, _ = read_rows(spec(path, seed=2))

    assert len(first["validation"]) == 20
    assert set(first["train"].texts) | set(first["validation"].texts) == set(texts)
    assert not set(first["train"].texts) & set(first["validation"].texts)
    assert list(first["train"].texts) == list(again["train"].texts)
    assert list(first["validation"].texts) == list(again["validation"].texts)
    assert list(first["validation"].texts) != texts[:20]


def test_samples_are_the_asked_number_of_rows_and_the_same_each_time(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [f"row {number}" for number in range(200)], LABELS * 10)

    rows, _ = read_rows(spec(path, max_train_samples=90))
    again, _ = read_rows(spec(path, max_train_samples=90, seed=7))
    more, _ = read_rows(spec(path, max_train_samples=90, max_eval_samples=15))

    assert (len(rows["train"]), len(rows["validation"])) == (90, 10)  # a ninth of 90: the shares of the 90/10 split
    assert list(rows["train"].texts) == list(again["train"].texts)
    assert not set(rows["train"].texts) & set(rows["validation"].texts)
    assert (len(more["train"]), len(more["validation"])) == (90, 15)


def test_a_limit_of_training_rows_does_not_change_the_rows_of_the_evaluation(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", [f"row {number}" for number in range(200)], LABELS * 10)

    some, _ = read_rows(spec(path, max_train_samples=90, max_eval_samples=10))
    all_rows, _ = read_rows(spec(path, max_eval_samples=10))

    assert list(some["validation"].texts) == list(all_rows["validation"].texts)


def test_one_of_several_configurations_of_the_hub_is_read_by_its_name_and_none_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    write(folder / "short.csv", ["short"] * 20)
    write(folder / "long.csv", ["long"] * 20)
    entries = "".join(f"- config_name: {name}\n  data_files: {name}.csv\n" for name in ("short", "long"))
    (folder / "README.md").write_text(f"---\nconfigs:\n{entries}---\n")

    assert f"has several configurations: name a file or folder in {folder} (" in faults(folder)[0]
    load = datasets.load_dataset
    monkeypatch.setattr(datasets, "load_dataset", lambda _, *configuration: load(str(folder), *configuration))
    rows, _ = read_rows(spec(Path("some/reviews:long")))
    assert set(rows["train"].texts) == {"long"}
    for name in ("some/reviews", "some/reviews:middle"):
        (fault,) = faults(Path(name))
        assert "dataset some/reviews has several configurations: choose one with some/reviews:NAME (" in fault
        assert "short" in fault
        assert "long" in fault


def test_causal_lm_needs_no_labels(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("\n".join(TEXTS) + "\n")
    path = write(tmp_path / "rows.csv", columns=("text", "whatever"))

    for dataset in (tmp_path / "book.txt", path):
        rows, names = read_rows(spec(dataset, task="causal-lm"))
        assert names == ()
        assert rows["train"].labels is None
        assert (len(rows["train"]), len(rows["validation"])) == (18, 2)


# --- faults


def test_a_missing_column_lists_the_columns_there_are_for_all_splits_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", columns=("review", "stars"))
    validation = write(tmp_path / "validation.csv", columns=("review", "label"))

    messages = faults(path, validation_file=str(validation))

    assert len(messages) == 3
    assert "text_column 'text' is not in the train rows" in messages[0]
    assert "they have review, stars; set text_column to one of them" in messages[0]
    assert "label_column 'label' is not in the train rows" in messages[1]
    assert f"text_column 'text' is not in the validation rows of {validation}: " in messages[2]


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_an_empty_label_is_refused_with_its_row(tmp_path: Path, name: str) -> None:
    (fault,) = faults(write(tmp_path / name, labels=[LABELS[0], "", *LABELS[2:]]))

    assert fault.startswith("'label' is missing or blank in 1 of 20 train rows (row 2)")


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet", "folder/train.csv"])
@pytest.mark.parametrize("value", ["NaN", "nan", "<NA>", "null", "#N/A"])
def test_a_label_that_programs_write_for_a_missing_value_is_no_class(tmp_path: Path, name: str, value: str) -> None:
    path = write(tmp_path / name, labels=[LABELS[0], value, *LABELS[2:]])
    dataset = path.parent if "/" in name else path

    (fault,) = faults(dataset)
    rows, names = read_rows(spec(dataset, missing_rows="drop"))

    assert fault.startswith(f"'label' is missing or blank (such as {value}) in 1 of 20 train rows (row 2)")
    assert names == ("bad", "good")
    assert rows["train"].dropped is not None
    assert rows["train"].dropped.sentence.endswith("1 without text or label (row 2)")


@pytest.mark.parametrize("value", ["NA", "None", "nano"])
def test_a_label_that_may_be_the_name_of_a_class_is_one(tmp_path: Path, value: str) -> None:
    _, names = read_rows(spec(write(tmp_path / "rows.csv", labels=["other", value] * 10)))

    assert set(names) == {"other", value}


def test_a_cell_of_several_labels_that_is_nan_is_missing_and_an_empty_one_has_none(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", labels=["a|b", "NaN", "", "a"] * 5)

    (fault,) = faults(path, task="multi-label")
    _, names = read_rows(spec(path, task="multi-label", missing_rows="drop"))

    assert "(such as NaN) in 5 of 20 train rows" in fault
    assert names == ("a", "b")


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"texts": [number / 2 for number in range(20)]}, "text_column 'text' must contain text, but contains float64"),
        ({"labels": ["good"] * 20}, "label_column 'label' has only one class (good): there is nothing to learn"),
    ],
)
def test_columns_that_nothing_can_be_learned_from_are_refused(
    tmp_path: Path, columns: dict[str, list[Any]], fault: str
) -> None:
    assert fault in faults(write(tmp_path / "rows.csv", **columns))


@pytest.mark.parametrize(("name", "text"), [("rows.csv", ""), ("rows.csv", "text,label\n"), ("rows.jsonl", "")])
def test_a_file_without_rows_is_said_to_have_none(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    (fault,) = faults(tmp_path / name)
    assert fault == f"dataset {tmp_path / name} has no rows"


def test_a_folder_without_training_rows_is_refused_with_what_it_has(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "test.csv")

    assert faults(tmp_path / "folder") == (f"dataset {tmp_path / 'folder'} has no train split, only test",)


def test_row_numbers_next_to_lines_with_too_many_fields_say_what_they_count(tmp_path: Path) -> None:
    lines = [f"text {number},{label}" for number, label in enumerate(LABELS)]
    lines[0] += ",more"
    lines[3] = "no label,"
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines]) + "\n")

    rows, _ = read_rows(spec(tmp_path / "rows.csv", missing_rows="drop"))

    assert rows["train"].dropped is not None
    assert "1 without text or label (row 3, not counting the lines with more fields)" in rows["train"].dropped.sentence


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "folder/train.csv"])
def test_labels_of_a_csv_are_classes_as_they_are_written_and_fractions_are_none(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    dataset = path.parent if "/" in name else path

    _, names = read_rows(spec(write(path, labels=["01", "1", "007", "-1"] * 5) and dataset))

    assert names == ("-1", "01", "1", "007")
    write(path, labels=["1", "2.5"] * 10)
    (fault,) = faults(dataset)
    assert "row 1 has 1.0, row 2 has 2.5" in fault
    assert "a script of your own (entry_script) can predict numbers" in fault


def test_validation_labels_that_no_training_row_has_are_counted_and_shown(tmp_path: Path) -> None:
    strange = write(tmp_path / "validation.csv", ["a", "b", "c"], ["good", "superb", "superb"])

    (fault,) = faults(write(tmp_path / "rows.csv"), validation_file=str(strange))

    assert fault == "2 labels of validation rows occur in no training row: 'superb'"
