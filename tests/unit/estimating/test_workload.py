"""How much work a training is, compared with sums worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.estimating.architecture import Architecture
from paretune.estimating.formats import formats_of
from paretune.estimating.workload import (
    PACKED_BYTES,
    Workload,
    evaluation_batch,
    frozen_weight_bytes,
    quantized_weights,
    warmup_steps,
    whole_argument,
    workload,
)
from paretune.specification.job import JobSpec

BUILT = Architecture(parameters=1500, matrices=1000, layers=2, hidden_size=10, vocabulary=50, adapted_widths=360)
TOMATOES: dict[str, Any] = {"dataset": "bundled:rotten_tomatoes", "max_train_samples": None}


def work_of(facts: dict[str, float] | None = None, **changes: Any) -> Workload:
    spec = JobSpec(**{"dataset": "a/b", "max_train_samples": 900, "max_seq_length": 20, **changes})
    found = workload(spec, spec.plan(), BUILT, facts)
    assert found is not None
    return found


def test_arithmetic_of_a_row_is_six_operations_a_weight_and_token_and_the_attention() -> None:
    found = work_of()

    # 20 tokens x (6 x 1000 weights + 12 x 2 layers x 10 wide x 20 long) = 20 x (6000 + 4800)
    assert found.flops_per_row == 216_000
    assert found.forward_flops_per_row == 72_000  # a third
    assert found.trained_parameters == 1500


def test_adapters_need_no_gradients_of_the_weights() -> None:
    found = work_of(fine_tuning="lora")

    assert found.adapted_widths == 2 * (4 * (10 + 10) + (10 + 40) + (40 + 10))  # two layers, six matrices
    assert found.flops_per_row == pytest.approx(20 * (4 * 1000 + 4800 + 6 * 8 * 360))
    assert found.trained_parameters == 8 * 360 + 100  # and the head
    packed = work_of(fine_tuning="qlora")
    assert packed.packed_weights > 0
    assert replace(packed, model=found.model, packed_weights=0.0) == found
    assert work_of(fine_tuning="lora", lora={"r": 32}).trained_parameters == 32 * 360 + 100


def test_the_head_of_a_language_model_is_its_output_layer() -> None:
    found = work_of(task="causal-lm", fine_tuning="head")

    assert found.trained_parameters == 50 * 10
    # 20 tokens x (2 x 1000 + 2 x 2 layers x 10 x 20 forward, and 2 x 500 for the gradients of the output layer)
    assert found.flops_per_row == pytest.approx(20 * (2000 + 800 + 1000))
    assert work_of(task="causal-lm", fine_tuning="lora").trained_parameters == 8 * 360
    assert work_of(fine_tuning="head").flops_per_row == work_of(fine_tuning="head").forward_flops_per_row


def test_a_causal_model_attends_to_half_of_the_tokens_and_makes_no_logits_again() -> None:
    found = work_of(task="causal-lm", training_arguments={"gradient_checkpointing": True})

    # 20 tokens x (6 x 1000 + 6 x 2 layers x 10 x 20, and again 2 x (1000 - 50 x 10) + 2 x 2 x 10 x 20)
    assert found.flops_per_row == pytest.approx(20 * (6000 + 2400 + 1000 + 800))
    assert found.passes == 4


@pytest.mark.parametrize(
    ("changes", "precision", "expected"),
    [
        ({"fine_tuning": "head"}, "bf16", 4 * 1500),
        ({"fine_tuning": "lora"}, "bf16", 2 * 1500),
        ({"fine_tuning": "lora", "strategy": "deepspeed", "instance_type": "ml.g5.xlarge"}, "bf16", 4 * 1500),
        ({"fine_tuning": "qlora"}, "bf16", PACKED_BYTES * 1000 + 2 * 500),
        ({"fine_tuning": "qlora", "task": "causal-lm"}, "bf16", PACKED_BYTES * 500 + 2 * 1000),  # 50 x 10 of output
    ],
)
def test_frozen_weights_under_adapters_take_two_bytes_or_half_a_byte(
    changes: dict[str, Any], precision: str, expected: float
) -> None:
    spec = JobSpec(**changes)
    assert 1500 * frozen_weight_bytes(
        quantized_weights(spec.model_arguments, spec.trained_by, BUILT),
        BUILT,
        formats_of(spec.fine_tuning, spec.degrees, "llama", precision),
    ) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("steps", {}, 57),  # 900 / 16 = 56.25
        ("steps", {"num_train_epochs": 2.5}, 143),  # 57 x 2.5 = 142.5
        ("steps", {"gradient_accumulation_steps": 4}, 15),
        ("steps", {"instance_type": "ml.p4d.24xlarge", "instance_count": 2}, 4),  # 900 / 256
        ("steps", {"training_arguments": {"max_steps": 30}}, 30),
        ("steps", {"training_arguments": {"max_steps": 300}}, 300),  # the Trainer begins the rows again
        ("steps", {"probe_steps": 40, "max_train_samples": 100}, 40),
        ("evaluations", {}, 1),  # the returned model is judged in any case
        ("evaluations", {"num_train_epochs": 9.0}, 1),
        ("evaluations", {"training_arguments": {"eval_strategy": "no"}}, 1),
        ("evaluations", {"training_arguments": {"eval_strategy": "steps"}}, 4),  # after 15, 30, 45 and 57 steps
        ("evaluations", {"training_arguments": {"eval_strategy": "epoch"}, "num_train_epochs": 4.5}, 5),
        ("evaluations", {"training_arguments": {"eval_strategy": "epoch"}, "num_train_epochs": 2.0}, 2),
        ("evaluations", {"training_arguments": {"eval_steps": 10}}, 6),  # of 57 steps
        ("evaluations", {"training_arguments": {"eval_steps": 0.1}}, 10),  # of 57 steps: after each sixth, and the last
        ("evaluations", {"probe_steps": 40}, 0),
        ("evaluated_rows", {}, 100),  # a ninth of 900
        ("evaluated_rows", {"max_eval_samples": 64}, 64),
        ("evaluated_rows", TOMATOES, 853),
        ("evaluated_rows", TOMATOES | {"max_eval_samples": 5000}, 853),
    ],
)
def test_steps_and_evaluations_are_those_of_the_trainer(name: str, changes: dict[str, Any], expected: float) -> None:
    assert getattr(work_of(**changes), name) == expected


def test_training_arguments_that_the_trainer_does_not_take_are_refused() -> None:
    with pytest.raises(BadInput, match="max_steps must be a whole number, got 'abc'"):
        work_of(training_arguments={"max_steps": "abc"})


def test_an_evaluation_batch_has_bounded_logits_and_tokens() -> None:
    def batch_of(spec: JobSpec) -> int:
        return evaluation_batch(spec.model_arguments, spec.training_arguments, spec.plan(), 32000)

    def rows_of(rows: int, **changes: Any) -> int:
        spec = JobSpec(task="causal-lm", max_seq_length=2048, per_device_train_batch_size=rows, **changes)
        return batch_of(spec)

    assert rows_of(1) == 1  # 64 rows would be 4.2 billion logits, 15.6 GiB in fp32
    assert rows_of(4) == 4  # its training batch needs more memory
    assert rows_of(4, training_arguments={"per_device_eval_batch_size": 2}) == 2
    assert batch_of(JobSpec()) == 64
    assert batch_of(JobSpec(max_seq_length=2048, per_device_train_batch_size=1)) == 8  # as many tokens as a micro-batch


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({"max_train_samples": None}, 853),  # the validation rows of the data set
        ({"max_train_samples": 900}, 100),  # a ninth of the training rows
        ({"max_train_samples": 900, "max_eval_samples": 50}, 50),
        ({"max_train_samples": None, "max_eval_samples": 5000}, 853),
    ],
)
def test_the_rows_of_an_evaluation_are_those_that_the_job_will_read(changes: dict[str, Any], rows: int) -> None:
    assert work_of(**{**TOMATOES, **changes}).evaluated_rows == pytest.approx(rows)


@pytest.mark.parametrize(
    ("value", "count"), [(7, 7), ("7", 7), (7.9, 7), (0, None), (-1, None), (None, None)], ids=repr
)
def test_a_count_in_the_training_arguments_is_a_whole_number_above_0_or_absent(value: Any, count: int | None) -> None:
    given = {} if value is None else {"max_steps": value}

    assert whole_argument(given, "max_steps") == count


@pytest.mark.parametrize(("steps", "slow"), [(1, 1), (9, 1), (50, 5), (109, 10), (5000, 10)])
def test_a_tenth_of_the_steps_but_one_at_least_and_ten_at_most_are_not_timed(steps: int, slow: int) -> None:
    assert warmup_steps(steps) == slow


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        ({}, 3),  # forward, and backward for activations and for weights
        ({"fine_tuning": "head"}, 1),
        ({"fine_tuning": "lora"}, 3),
        ({"training_arguments": {"gradient_checkpointing": True}}, 4),
    ],
)
def test_a_row_passes_through_the_model_as_often_as_its_training_needs(changes: dict[str, Any], passes: float) -> None:
    assert work_of(**changes).passes == passes


def test_padding_is_counted_where_a_gpu_computes_it() -> None:
    facts = {"train_rows": 100.0, "train_tokens": 1000.0, "train_padded_tokens": 1300.0, "validation_rows": 10.0}

    assert work_of(facts, instance_type="ml.g5.xlarge").tokens == 13
    assert work_of(facts, instance_type="ml.m5.large").tokens == 10
    assert work_of({**facts, "train_padded_tokens": 1000.0}, instance_type="ml.g5.xlarge").tokens == 10
