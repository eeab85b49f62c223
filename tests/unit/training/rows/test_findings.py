"""What is said about the rows of a job before it is paid for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paretune.core.errors import BadInput
from paretune.specification.container import DataFindings, PreparedDataset
from paretune.specification.job import JobSpec
from paretune.training.rows.findings import data_findings
from paretune.training.rows.sources import read_rows
from paretune.training.rows.tokenized import Rows


def found_in(tmp_path: Path, text: str, **values: Any) -> DataFindings:
    """Return the findings in a CSV file whose rows have three tokens each."""
    path = tmp_path / "rows.csv"
    path.write_text(text)
    data = JobSpec(dataset=str(path), **values).data_arguments
    rows, names = read_rows(data)
    folder = tmp_path / "prepared"
    (folder / "train").mkdir(parents=True)
    np.save(folder / "train" / "lengths.npy", np.full(len(rows["train"]), 3))
    return data_findings(
        data, rows, names, PreparedDataset(key="", folder=folder, labels=names, facts={}, digests={}), "M", None
    )


def csv(labels: list[str], text: str = "row {}") -> str:
    return "text,label\n" + "".join(f"{text.format(number)},{label}\n" for number, label in enumerate(labels))


def test_classes_and_lengths_are_named_and_a_usual_table_is_not_warned_of(tmp_path: Path) -> None:
    found = found_in(tmp_path, csv(["good", "bad"] * 200))

    assert found.words == "2 classes: bad 180, good 180; 3 tokens per row, at most 3"
    assert (found.warnings, found.facts) == ((), {})


def test_classes_that_differ_in_capitals_only_are_warned_of(tmp_path: Path) -> None:
    (warning,) = found_in(tmp_path, csv(["positive", "POSITIVE", "bad", "bad"] * 100)).warnings

    assert warning.startswith("classes differ only in capitals or spaces ('POSITIVE' and 'positive')")


def test_a_language_model_is_judged_by_its_perplexity(tmp_path: Path) -> None:
    text = "text\n" + "the same line\n" * 40
    (warning,) = found_in(tmp_path, text, task="causal-lm").warnings

    assert warning.startswith("4 of 4 validation texts are also training texts: perplexity may be too low")


def test_few_validation_rows_and_classes_without_one_are_warned_of(tmp_path: Path) -> None:
    unmeasured, few = found_in(tmp_path, csv(["a", "b", "a", "b", "a"])).warnings

    assert unmeasured.startswith("1 of 2 classes have no validation row (")
    assert few.startswith("F1 of 1 validation row has a standard error of about 1.00: give more rows")


@pytest.mark.parametrize(
    ("limits", "remedy"),
    [
        ({"max_train_samples": 45}, "set max_eval_samples (by default a ninth of max_train_samples)"),
        ({"max_eval_samples": 5}, "raise max_eval_samples"),
        ({"max_eval_samples": 100}, "give more rows, or a validation_file"),
        ({"max_eval_samples": 20}, "give more rows, or a validation_file"),  # as many as there are
        ({"max_train_samples": 180}, "give more rows, or a validation_file"),
    ],
)
def test_the_limit_that_leaves_few_validation_rows_is_to_be_raised(
    tmp_path: Path, limits: dict[str, int], remedy: str
) -> None:
    (few,) = found_in(tmp_path, csv(["a", "b"] * 100), **limits).warnings

    assert few.endswith(f": {remedy}")


def test_a_class_that_a_limit_leaves_without_validation_rows_needs_a_higher_limit(tmp_path: Path) -> None:
    unmeasured, _ = found_in(tmp_path, csv(["a"] * 190 + ["b"] * 10), max_eval_samples=1).warnings

    assert unmeasured.startswith("1 of 2 classes have no validation row (")
    assert "so F1 does not measure them: raise max_eval_samples" in unmeasured


def test_texts_that_are_trained_on_and_validated_are_counted(tmp_path: Path) -> None:
    found = found_in(tmp_path, csv(["a", "b"] * 200, text="the same"))

    assert "40 of 40 validation texts are also training texts" in found.words
    assert "remove duplicates from the data" in found.warnings[-1]


def test_rows_that_are_left_out_are_counted_by_file_row_and_line(tmp_path: Path) -> None:
    lines = csv(["a", "b"] * 200).splitlines()
    lines[3], lines[5], lines[7] = ",a", "text,", "one, two,a"
    text = "\n".join(lines)
    (tmp_path / "rows.csv").write_text(text)

    with pytest.raises(BadInput):
        read_rows(JobSpec(dataset=str(tmp_path / "rows.csv")).data_arguments)
    found = found_in(tmp_path, text, missing_rows="drop")

    assert found.facts == {"dropped_rows": 3.0}
    assert found.warnings == (
        f"3 of 400 rows of {tmp_path / 'rows.csv'} are left out: 2 without text or label "
        "(rows 3, 5, not counting the lines with more fields), "
        "1 with more fields than the header (line 8)",
    )


def test_a_first_row_with_too_many_fields_does_not_shift_the_columns(tmp_path: Path) -> None:
    text = csv(["a", "b"] * 200).replace("row 0,a", "one, two, three,a")

    assert found_in(tmp_path, text, missing_rows="drop").words.startswith("2 classes: a 179, b 180")


def test_a_file_of_blank_rows_has_nothing_left_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"missing_rows=drop leaves no rows in .*rows\.csv"):
        found_in(tmp_path, "text,label\none,\ntwo,\n", missing_rows="drop")


@pytest.mark.parametrize(
    ("positions", "remedy"),
    [
        (None, "--max_seq_length 5760 would keep 95%"),
        (8192, "--max_seq_length 5760 would keep 95%"),
        (512, "95% would need 5,760, but M reads at most 512; --max_seq_length 512 would keep 9%"),
        (64, "95% would need 5,760, but M reads at most 64"),
    ],
)
def test_texts_that_are_cut_are_said_with_the_length_that_keeps_most_of_their_tokens(
    positions: int | None, remedy: str, tmp_path: Path
) -> None:
    data, uncut = JobSpec(max_seq_length=64).data_arguments, np.array([6002, 12] * 18)
    (tmp_path / "train").mkdir()
    np.save(tmp_path / "train" / "lengths.npy", np.minimum(uncut, 64))
    np.save(tmp_path / "train" / "uncut.npy", uncut)
    facts = {"truncated_share": 0.5, "kept_share": float(np.minimum(uncut, 64).sum() / uncut.sum())}
    prepared = PreparedDataset(key="", folder=tmp_path, labels=("x", "y"), facts=facts, digests={})
    rows = Rows(texts=[str(number) for number in range(36)], labels=np.arange(36) % 2)
    validation = Rows(texts=[f"other {number}" for number in range(36)], labels=np.arange(36) % 2)

    found = data_findings(data, {"train": rows, "validation": validation}, ("x", "y"), prepared, "M", positions)

    rule = "max_seq_length=64 keeps 1% of the tokens: it cuts the end off 50% of the 36 training rows"
    assert found.warnings == (f"{rule}; {remedy}",)
    assert found.facts == {"length_for_95_percent": 5760}
