"""Tables of recorded runs: what is read, and how all errors are reported at once."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.launchers.simulated.recorded_runs import ReplayedJob, RunTable
from paretune.specification.job import JobSpec

HEADER = "instance_type,instance_count,per_device_train_batch_size,learning_rate,billable_seconds,f1"
ROW = "ml.g5.xlarge,1,16,5e-5,900,0.8"


def read(tmp_path: Path, *lines: str) -> RunTable:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n")
    return RunTable.read(path)


def runs(tmp_path: Path, *lines: str, more: str = "") -> RunTable:
    return read(tmp_path, HEADER + more, *lines)


def faults(read: Callable[..., object], *arguments: Any, **options: Any) -> tuple[str, ...]:
    with pytest.raises(BadInput) as caught:
        read(*arguments, **options)
    return caught.value.faults


def test_further_job_parameters_are_hyperparameters_and_all_else_is_ignored_by_name(tmp_path: Path) -> None:
    table = read(tmp_path, f"{HEADER},run_id,num_train_epochs,cost_usd,model,region", f"{ROW},7,3,0.35,bert,us-east-1")

    assert table.others == ("num_train_epochs", "model")
    assert table.rows[0].others == {"num_train_epochs": "3.0", "model": "bert"}
    assert table.ignored == ("run_id", "region")


def test_columns_without_a_name_are_ignored(tmp_path: Path) -> None:
    assert read(tmp_path, f",{HEADER},,", f"0,{ROW},,").ignored == ()


def test_all_faults_are_said_at_once_with_their_lines(tmp_path: Path) -> None:
    messages = faults(
        read,
        tmp_path,
        f"{HEADER},status,seed",
        "ml.g5.xlarg,1,16,5e-5,900,0.8,Completed,1",
        "ml.g5.xlarge,0,16,-5e-5,900,0.8,,1",
        "ml.g5.xlarge,1,16,5e-5,-900,1.8,,1",
        "ml.g5.xlarge,1,16,5e-5,900,nan,,x",
        "ml.g5.xlarge,1,1.5,many,900,0.8,Done,",
        "ml.g5.xlarge,1,16,5e-5,,,,",
    )
    text = "\n".join(messages)

    for part in (
        "line 2: instance_type must be one of the",
        "line 3: instance_count must be at least 1",
        "line 4: billable_seconds must be greater than 0, got '-900'",
        "line 4: f1 must be at least 0 and at most 1, got '1.8'",
        "line 5: f1 must be a finite number, got nan",
        "line 5: seed must be a whole number",
        "line 6: per_device_train_batch_size must be a whole number",
        "line 6: learning_rate must be a number greater than 0",
        "line 6: status must be one of Completed, OutOfMemory, Failed, got 'Done'",
        "line 7: billable_seconds is empty",
        "line 7: f1 is empty",
    ):
        assert part in text
    assert all(fault.startswith("runs.csv: line ") for fault in messages)


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        ([HEADER], "it has no runs"),
        (
            [HEADER.replace("billable_seconds", "bilable_seconds"), ROW],
            "column billable_seconds is missing: did you mean",
        ),
        ([HEADER.replace(",f1", ""), ROW], "column f1 is missing: it has instance_type"),
        ([f"{HEADER},f1", f"{ROW},1"], "column f1 occurs twice"),
        ([HEADER, ROW + ",7"], "line 2: has 7 cells, the header line 6"),
        ([f"{HEADER},global_batch_size", f"{ROW},10"], "line 2: global_batch_size 10 on 1 device"),
    ],
)
def test_a_table_with_a_fault_is_refused_with_one_clear_message(tmp_path: Path, lines: list[str], part: str) -> None:
    messages = faults(read, tmp_path, *lines)

    assert any(part in fault for fault in messages), messages


def test_a_digest_depends_on_what_a_row_says_and_on_nothing_else(tmp_path: Path) -> None:
    first, second = read(tmp_path, HEADER, ROW, ROW.replace("0.8", "0.81")).rows
    turned = ",".join(reversed(HEADER.split(","))), ",".join(reversed(ROW.split(",")))
    (same,) = read(tmp_path, *turned).rows

    assert first.digest() == same.digest() != second.digest()


SMALL, LARGE = "ml.g5.xlarge", "ml.g5.2xlarge"  # one accelerator each


def seconds_of(count: int, batch: int) -> float:
    return 1600.0 / count * (16 / batch) ** 0.5


def f1_of(rate: float, batch: int) -> float:
    return 0.9 - 0.05 * abs(math.log2(rate / 4e-5)) - 0.01 * math.log2(batch / 16)


GRID = [
    f"{SMALL},{count},{batch},{rate},{seconds_of(count, batch)},{f1_of(rate, batch * count)}"
    for count in (1, 2, 4)
    for batch in (16, 32, 64)
    for rate in (1e-5, 4e-5)
]


def ask(table: RunTable, draw: int = 0, startup_seconds: float = 120.0, **changes: object) -> ReplayedJob:
    spec = JobSpec(**{"launcher": "simulated", "instance_type": SMALL, "learning_rate": 4e-5, **changes})  # type: ignore[arg-type]
    return table.answer(spec, spec.plan(), draw=draw, startup_seconds=startup_seconds)


def test_between_rows_f1_is_linear_and_seconds_are_geometric_in_the_logarithms(tmp_path: Path) -> None:
    exact = ask(runs(tmp_path, *GRID), per_device_train_batch_size=32, instance_count=2)
    assert (exact.billable_seconds, exact.f1) == (seconds_of(2, 32), pytest.approx(f1_of(4e-5, 64)))
    assert exact.basis == "the recorded run in line 11"

    answer = ask(runs(tmp_path, *GRID), per_device_train_batch_size=32, instance_count=1, learning_rate=2e-5)
    assert answer.f1 == pytest.approx((f1_of(1e-5, 32) + f1_of(4e-5, 32)) / 2)
    assert answer.billable_seconds == pytest.approx(seconds_of(1, 32))

    # log(24) is at log2(1.5) = 0.585 between log(16) and log(32), and log(3) at the same share between log(2), log(4).
    answer = ask(runs(tmp_path, *GRID), per_device_train_batch_size=24, instance_count=3)
    assert answer.billable_seconds == pytest.approx(1600 / 3 * (16 / 24) ** 0.5)
    assert answer.f1 == pytest.approx(0.9 - 0.01 * math.log2(24 * 3 / 16))
    assert answer.basis.startswith("an interpolation between the recorded runs in lines ")


def test_what_one_run_has_measured_is_not_said_of_a_job_between_two(tmp_path: Path) -> None:
    lines = [f"{SMALL},1,{batch},4e-5,{900 // batch},0.8,{100 * batch}" for batch in (16, 64)]
    table = runs(tmp_path, *lines, more=",throughput_samples_per_second")

    assert ask(table).measured["throughput_samples_per_second"] == 1600
    assert ask(table, per_device_train_batch_size=32).measured == {}


def test_outside_the_table_is_an_error_with_the_nearest_rows(tmp_path: Path) -> None:
    outside: dict[str, Any] = {"per_device_train_batch_size": 128, "instance_count": 8, "learning_rate": 8e-5}
    (fault,) = faults(ask, runs(tmp_path, *GRID), **outside)

    assert "has no completed runs on all sides of 8 x ml.g5.xlarge, per-device batch 128" in fault
    assert "the nearest are line 19: 4 x ml.g5.xlarge, per-device batch 64" in fault


def test_other_hyperparameters_must_be_in_the_table_and_are_never_mixed(tmp_path: Path) -> None:
    lines = [f"{SMALL},1,{batch},4e-5,{100 * epochs},0.8,{epochs},bert" for batch in (16, 64) for epochs in (1, 3)]
    table = runs(tmp_path, *lines, more=",num_train_epochs,model")

    assert ask(table, model="bert", num_train_epochs=3.0, per_device_train_batch_size=32).f1 == 0.8
    assert ask(table, model="bert", num_train_epochs=3.0).billable_seconds == 300
    (fault,) = faults(ask, table, model="bert", num_train_epochs=2.0)
    assert "num_train_epochs must be a value in simulation.runs runs.csv (1, 3), got 2" in fault


def test_repeats_are_drawn_always_the_same_and_all_of_them_in_turn(tmp_path: Path) -> None:
    table = runs(tmp_path, *(f"{SMALL},1,16,4e-5,{100 + number},0.{number}" for number in range(1, 6)))
    result = {ask(table, seed=seed).billable_seconds for seed in range(60)}
    again = {ask(table, draw=draw).billable_seconds for draw in range(60)}

    assert ask(table, seed=7) == ask(table, seed=7)
    assert result == again == {101, 102, 103, 104, 105}
    assert {ask(table, seed=seed).billable_seconds for seed in range(42, 47)} == result  # each once
    assert ask(table).basis.endswith(", one of 5 repeats")


MEMORY = [
    *(
        f"{SMALL},{count},{batch},{rate},100,0.8,Completed"
        for count in (1, 4)
        for batch in (16, 32)
        for rate in (1e-5, 4e-5)
    ),
    f"{SMALL},1,128,4e-5,140,,OutOfMemory",
]


@pytest.mark.parametrize(
    ("batch", "count", "status"),
    [
        (16, 1, "Completed"),
        (24, 2, "Completed"),
        (128, 3, "OutOfMemory"),
        (256, 1, "OutOfMemory"),  # larger than one that did not fit
        (48, 1, "OutOfMemory"),  # larger than the largest that did, up to one that did not
    ],
)
def test_what_did_not_fit_does_not_fit_with_a_larger_batch(tmp_path: Path, batch: int, count: int, status: str) -> None:
    table = runs(tmp_path, *MEMORY, more=",status")
    answer = ask(table, per_device_train_batch_size=batch, instance_count=count)

    assert answer.status == status
    assert (answer.f1 is None) == (status == "OutOfMemory")
    assert answer.billable_seconds == pytest.approx(100 if status == "Completed" else 140)


def test_a_failed_run_fails_where_it_failed_and_nowhere_else(tmp_path: Path) -> None:
    failed = f"{SMALL},2,32,4e-5,77,,Failed"
    others = [f"{line},Completed" for line in GRID if not line.startswith(f"{SMALL},2,32,4e-05")]
    table = runs(tmp_path, *others, failed, more=",status")

    exact = ask(table, per_device_train_batch_size=32, instance_count=2)
    near = ask(table, per_device_train_batch_size=33, instance_count=2)
    assert (exact.status, exact.billable_seconds, exact.f1) == ("Failed", 77, None)
    assert near.status == "Completed"


def test_accumulation_takes_seconds_of_the_cluster_and_f1_of_the_global_batch(tmp_path: Path) -> None:
    answer = ask(runs(tmp_path, *GRID), per_device_train_batch_size=32, gradient_accumulation_steps=4)

    assert answer.billable_seconds == pytest.approx(seconds_of(1, 32))
    assert answer.f1 == pytest.approx(f1_of(4e-5, 128))
    assert "line 5 (for this cluster and per-device batch, other accumulation)" in answer.basis
    assert "(for global batch size 128 and this learning rate)" in answer.basis


def test_a_probe_is_start_up_and_its_share_of_the_rest(tmp_path: Path) -> None:
    table = runs(tmp_path, *GRID)
    answer = ask(table, probe_steps=24, num_train_epochs=2.0)  # 7677 rows in batches of 16: 480 steps an epoch

    assert answer.billable_seconds == pytest.approx(120 + (1600 - 120) * 24 / 960)
    assert (answer.f1, answer.steps) == (None, 24)
    assert ask(table, probe_steps=24, startup_seconds=60).billable_seconds == pytest.approx(60 + 1540 * 24 / 480)
