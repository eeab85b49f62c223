"""Shares of the step, against traces worked out by hand."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from paretune.training.profiling.trace import (
    CASTS,
    KINDS,
    NOT_TRAINING,
    PARTS,
    PRODUCTS,
    RANDOM,
    Operator,
    StepTime,
    records_of,
    step_time,
    trace_events,
)
from tests.unit.training.profiling.traces import MAIN, WORKER, block, event, kernel, launch, load, op, step, update


def microseconds(events: list[dict[str, Any]]) -> dict[str, float]:
    """The parts that are not empty."""
    parts = step_time(records_of(events)).parts
    return {name: spent / 1000 for name, spent in parts.items() if spent}


def test_a_step_on_a_processor_is_divided_without_gap_or_overlap() -> None:
    events = [step(1, 0, 100), load(5, 15), op("aten::stack", 6, 14), op("aten::mm", 20, 60), update(70, 90)]
    events += [op("aten::_fused_adamw_", 72, 88)]

    assert microseconds(events) == {"data": 10, "compute": 40, "optimiser": 20, "idle": 30}


def test_nested_operators_count_once_and_each_keeps_its_own_time() -> None:
    events = [step(1, 0, 100), op("aten::linear", 10, 50), op("aten::addmm", 15, 45), op("aten::copy_", 20, 25)]
    events += [op("aten::copy_", 60, 62)]
    result = step_time(records_of(events))

    assert result.parts["compute"] == 42_000
    assert result.operators == (
        Operator(name="aten::addmm", calls=1, self_ns=25_000),
        Operator(name="aten::linear", calls=1, self_ns=10_000),
        Operator(name="aten::copy_", calls=2, self_ns=7_000),
    )


def test_an_operator_inside_a_block_inside_an_operator_is_still_its_part() -> None:
    events = [step(1, 0, 100), op("outer", 10, 50), block("note", 15, 45), op("inner", 20, 30)]
    custom = {operator.name: operator.self_ns for operator in step_time(records_of(events)).operators}

    assert custom == {"outer": 30_000, "inner": 10_000}


def test_operators_of_two_threads_at_the_same_time_count_once_as_time() -> None:
    events = [step(1, 0, 100), op("aten::mm", 10, 50), op("aten::mm", 30, 70, WORKER)]

    assert microseconds(events) == {"compute": 60, "idle": 40}


def test_communication_that_compute_hides_is_compute() -> None:
    """A backward pass goes on until 60 while gloo works from 40 to 80; then the main thread waits."""
    events = [step(1, 0, 100), op("aten::mm", 10, 60), block("gloo:all_reduce", 40, 80, WORKER)]
    result = step_time(records_of(events))

    assert microseconds(events) == {"compute": 50, "communication": 20, "idle": 30}
    assert result.communication_ns == 40_000


def test_an_exchange_that_blocks_its_thread_is_no_compute_and_nor_is_what_it_calls() -> None:
    """`c10d::allreduce_` of DDP and `c10d::_allgather_base_` of FSDP, as in traces of two processes with gloo."""
    events = [step(1, 0, 100), op("autograd", 0, 90), op("c10d::allreduce_", 30, 70), op("aten::copy_", 35, 40)]
    events += [block("gloo:all_reduce", 45, 65, WORKER)]

    assert microseconds(events) == {"compute": 50, "communication": 40, "idle": 10}


def test_evaluation_between_two_logs_is_no_part_of_the_step() -> None:
    events = [
        step(1, 0, 100),
        op("aten::mm", 10, 30),
        block(NOT_TRAINING, 40, 90),
        load(45, 50),
        op("aten::mm", 50, 80),
    ]
    result = step_time(records_of(events))

    assert microseconds(events) == {"compute": 20, "idle": 30}
    assert result.operators == (Operator(name="aten::mm", calls=1, self_ns=20_000),)


def test_what_lies_outside_of_the_steps_does_not_count() -> None:
    events = [op("aten::mm", 0, 10), step(1, 20, 40), op("aten::mm", 25, 30), step(2, 40, 60), op("aten::mm", 70, 90)]
    result = step_time(records_of(events))

    assert (result.steps, result.total_ns, result.parts["compute"]) == (2, 40_000, 5_000)


def gpu_step() -> list[dict[str, Any]]:
    """The processor runs ahead: it launches at 10 to 30 what the GPU does from 20 to 95."""
    return [
        step(1, 0, 100),
        load(0, 8),
        op("aten::linear", 10, 14),
        op("aten::addmm", 11, 13),
        launch(12, 12.5, 1),
        kernel("gemm", 20, 60, 1),
        launch(15, 16, 2),
        kernel("ncclDevKernel_AllReduce_Sum_f32", 50, 75, 2, (0, 9)),
        update(18, 24),
        op("aten::_fused_adamw_", 19, 23),
        launch(20, 21, 3),
        kernel("multi_tensor", 80, 95, 3),
    ]


def test_a_step_on_a_gpu_is_divided_by_its_kernels() -> None:
    """No kernel runs from 0 to 20, of which 8 are data; from 75 to 80; and from 95 to 100."""
    assert microseconds(gpu_step()) == {"compute": 40, "communication": 15, "optimiser": 15, "data": 8, "idle": 22}


def test_a_kernel_is_booked_to_the_innermost_operator_that_launched_it() -> None:
    result = step_time(records_of(gpu_step()))

    assert result.on_gpu
    assert {operator.name: operator.self_ns for operator in result.operators} == {
        "aten::addmm": 40_000,
        "ncclDevKernel_AllReduce_Sum_f32": 25_000,
        "aten::_fused_adamw_": 15_000,
    }


def test_data_that_are_loaded_while_the_gpu_works_cost_nothing() -> None:
    events = [step(1, 0, 100), load(30, 50), launch(1, 2, 1), kernel("gemm", 10, 90, 1)]

    assert microseconds(events) == {"compute": 80, "idle": 20}


def test_two_streams_at_the_same_time_count_once() -> None:
    events = [step(1, 0, 100), kernel("gemm", 10, 60, 1), kernel("gemm", 40, 80, 2, (0, 8))]
    events += [event("gpu_memcpy", "Memcpy HtoD", 80, 90, (0, 9), 3)]

    assert microseconds(events) == {"compute": 80, "idle": 20}


@pytest.mark.parametrize("spent", [(1, 1, 1, 0, 0), (3, 3, 1, 7, 7), (1, 0, 0, 0, 999_999), (17, 29, 31, 37, 41)])
def test_percentages_sum_to_a_hundred_exactly(spent: tuple[int, ...]) -> None:
    parts = dict(zip(PARTS, spent, strict=True))
    percent = StepTime(steps=1, parts=parts, communication_ns=0, operators=(), on_gpu=False).percent()

    assert sum(Decimal(str(share)) for share in percent.values()) == 100
    for name, share in percent.items():
        assert share == pytest.approx(100 * parts[name] / sum(spent), abs=0.1)


def test_operators_are_summed_by_kind() -> None:
    events = [step(1, 0, 100), op("aten::addmm", 0, 20), op("aten::mm", 20, 30)]
    events += [op("aten::dropout", 40, 60), op("aten::bernoulli_", 45, 50), op("aten::copy_", 60, 63)]
    result = step_time(records_of(events))

    assert {kind: result.kind_percent(kind) for kind in KINDS} == {PRODUCTS: 30, CASTS: 3, RANDOM: 5}


def test_a_trace_without_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="without a step"):
        step_time(records_of([op("aten::mm", 0, 10)]))


@pytest.mark.parametrize("chunk", [1, 7, 2**20])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_events_of_a_file_are_read_one_after_the_other(indent: int | None, chunk: int, tmp_path: Path) -> None:
    events = [step(1, 0, 10), {"ph": "M", "name": "process_name", "args": {"name": "a [bracket], and more"}}]
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps({"schemaVersion": 1, "deviceProperties": [1], "traceEvents": events, "x": 1}, indent=indent)
    )

    assert list(trace_events(path, chunk=chunk)) == events
    assert [record.lane for record in records_of(events)] == [MAIN]


@pytest.mark.parametrize("text", ["", "{}", '{"traceEvents": [{"ph": "X"', '{"traceEvents": [{"ph": "X"},'])
def test_half_a_trace_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(text)

    with pytest.raises(ValueError):
        list(trace_events(tmp_path / "trace.json", chunk=4))
