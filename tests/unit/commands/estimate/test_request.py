"""From what was typed to the jobs of a table."""

from pathlib import Path

import pytest

from paretune.commands.estimate import EstimateRequest
from paretune.core.errors import BadInput


def clusters(request: EstimateRequest) -> list[tuple[str, int]]:
    return [(spec.instance_type, spec.instance_count) for spec in request.specs]


def faults_of(**texts: str) -> tuple[str, ...]:
    with pytest.raises(BadInput) as refused:
        EstimateRequest.from_text(texts)
    return refused.value.faults


def test_lists_are_combined_in_the_order_they_were_typed() -> None:
    made = EstimateRequest.from_text({"instance_type": "ml.p4d.24xlarge, ml.g5.xlarge", "instance_count": "2,1"})

    assert clusters(made) == [
        ("ml.g5.xlarge" if second else "ml.p4d.24xlarge", count) for second in (False, True) for count in (2, 1)
    ]


@pytest.mark.parametrize("text", ["1,,2", ",1", "1,", ",", " , "])
def test_a_gap_in_a_list_is_refused(text: str) -> None:
    assert f"instance_count must have a value between all commas, got {text!r}" in faults_of(instance_count=text)


def test_all_faults_of_all_rows_are_reported_once() -> None:
    faults = faults_of(
        instance_type="ml.g5.xlage,ml.g5.xlarge",
        instance_count="1,0",
        strategy="ddp,smddp",
        learning_rate="-1",
        region="us-est-1",
        record="maybe",
    )

    assert len(set(faults)) == len(faults)
    for message in (
        "record must be true or false",
        "got 'ml.g5.xlage': did you mean ml.g5.xlarge",
        "instance_count must be at least 1",
        "learning_rate must be greater than 0",
    ):
        assert [fault for fault in faults if message in fault], message


def test_a_missing_file_and_a_misspelt_column_are_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,x\nb,y\n")

    (missing,) = faults_of(dataset=str(tmp_path / "none.csv"), max_train_samples="10")
    (column,) = faults_of(dataset=str(tmp_path / "rows.csv"), text_column="txt", instance_count="1,2")
    assert "none.csv does not exist" in missing
    assert "did you mean text?" in column
