"""Tables of recorded runs: what is read, and everything that is wrong at once."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.estimating.recorded.run_table import RunTable

HEADER = "instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1"
ROW = "ml.g5.xlarge,1,16,5e-5,900,0.8"


def read(tmp_path: Path, *lines: str) -> RunTable:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    return RunTable.read(path)


def faults(tmp_path: Path, *lines: str) -> tuple[str, ...]:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, *lines)
    return caught.value.faults


def test_the_learning_rate_is_the_one_that_was_used(tmp_path: Path) -> None:
    header = f"{HEADER},learning_rate_scaling,reference_batch_size"
    (row,) = read(tmp_path, header, "ml.g5.xlarge,1,64,5e-5,900,0.8,linear,16").rows

    assert row.plan.learning_rate == pytest.approx(2e-4)


def test_further_job_parameters_are_hyperparameters_and_all_else_is_ignored_by_name(tmp_path: Path) -> None:
    table = read(tmp_path, f"{HEADER},run_id,num_train_epochs,cost_usd,model,region", f"{ROW},7,3,0.35,bert,us-east-1")

    assert table.others == ("num_train_epochs", "model")
    assert table.rows[0].others == {"num_train_epochs": "3.0", "model": "bert"}
    assert table.ignored == ("run_id", "region")


def test_all_faults_are_said_at_once_with_their_lines(tmp_path: Path) -> None:
    messages = faults(
        tmp_path,
        f"{HEADER},status,seed",
        "ml.g5.xlarg,1,16,5e-5,900,0.8,Completed,1",
        "ml.g5.xlarge,0,16,-5e-5,900,0.8,,1",
        "ml.g5.xlarge,1,16,5e-5,-900,1.8,,1",
        "ml.g5.xlarge,1,16,5e-5,0,nan,,x",
        "ml.g5.xlarge,1,1.5,many,900,0.8,Done,",
        "ml.g5.xlarge,1,16,5e-5,,,,",
        "ml.g5.xlarge,1,16,None,900,0.8,,",
    )
    text = "\n".join(messages)

    for part in (
        "line 2: instance_type must be one of the",
        "did you mean ml.g5.xlarge",
        "line 3: instance_count must be at least 1",
        "line 3: learning_rate must be greater than 0",
        "line 4: billable_seconds must be greater than 0, got '-900'",
        "line 4: f1 must be at least 0 and at most 1, got '1.8'",
        "line 5: billable_seconds must be greater than 0, got '0'",
        "line 5: f1 must be a finite number, got nan",
        "line 5: seed must be a whole number",
        "line 6: per_device_train_batch_size must be a whole number",
        "line 6: learning_rate must be a number greater than 0",
        "line 6: status must be one of Completed, OutOfMemory, Failed, got 'Done'",
        "line 7: billable_seconds is empty",
        "line 7: f1 is empty",
        "line 8: learning_rate",
    ):
        assert part in text
    assert all(fault.startswith("runs.csv: line ") for fault in messages)


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ([HEADER], "it holds no run"),
        ([""], "column instance_type is missing"),
        ([HEADER.replace("learning_rate", "lerning_rate"), ROW], "column learning_rate is missing: did you mean"),
        (
            [HEADER.replace("billable_seconds", "bilable_seconds"), ROW],
            "column billable_seconds is missing: did you mean",
        ),
        ([HEADER.replace(",f1", ""), ROW], "column f1 is missing: it has instance_type"),
        ([f"{HEADER},f1", f"{ROW},1"], "column f1 is there twice"),
        ([HEADER, ROW + ",7"], "line 2: has 7 cells, the header line 6"),
        ([f"{HEADER},global_batch_size", f"{ROW},100"], "line 2: global_batch_size 100 on 1 device"),
        ([f"{HEADER},precision", f"{ROW},fp8"], "line 2: precision must be one of"),
        ([HEADER, ",1,16,5e-5,900,0.8"], "line 2: instance_type is empty"),
    ],
)
def test_a_table_with_a_fault_is_refused_with_one_clear_message(tmp_path: Path, lines: list[str], part: str) -> None:
    messages = faults(tmp_path, *lines)

    assert any(part in fault for fault in messages), messages


def test_a_file_of_a_spreadsheet_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(f"{HEADER}\r\n{ROW}\r\n\r\n", encoding="utf-8-sig")

    assert len(RunTable.read(path).rows) == 1


def test_a_digest_depends_on_what_a_row_says_and_on_nothing_else(tmp_path: Path) -> None:
    first, second = read(tmp_path, HEADER, ROW, ROW.replace("0.8", "0.81")).rows
    turned = ",".join(reversed(HEADER.split(","))), ",".join(reversed(ROW.split(",")))
    (same,) = read(tmp_path, *turned).rows

    assert first.digest() == same.digest() != second.digest()
