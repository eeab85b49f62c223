"""How devices are divided, worked out by hand for eight and for sixteen of them."""

from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.specification.job import JobValues
from paretune.specification.parallelism import (
    BatchPlan,
    ParallelDegrees,
    pipeline_parts,
    scale_learning_rate,
)


def degrees(devices: int = 8, per_instance: int = 8, **arguments: Any) -> ParallelDegrees:
    return ParallelDegrees(devices=devices, per_instance=per_instance, **arguments)


@pytest.mark.parametrize(
    ("devices", "per_instance", "arguments", "parts"),
    [
        (16, 8, {"tensor": 16}, ["must divide the 8 devices of one instance, got 16", "use 1, 2, 4, 8"]),
        (6, 6, {"pipeline": 4}, ["pipeline_parallel_degree must divide the 6 devices, got 4: use 1, 2, 3, 6"]),
        (8, 8, {"tensor": 2, "hybrid_shard": 8}, ["hybrid_shard_degree must divide the 4 devices", "or 0 for all"]),
    ],
)
def test_degrees_that_do_not_divide_are_refused_with_those_that_do(
    devices: int, per_instance: int, arguments: dict[str, int], parts: list[str]
) -> None:
    (fault,) = degrees(devices, per_instance, **arguments).faults()

    assert all(part in fault for part in parts)


@pytest.mark.parametrize(
    ("batch", "stages", "row_tokens", "parts"),
    [(16, 2, 2048, 8), (16, 2, 128, 2), (7, 3, 4096, 7), (1, 2, 4096, 2), (16, 1, 2048, 1)],
)
def test_a_pipeline_has_up_to_four_equal_parts_a_stage_of_a_thousand_tokens(
    batch: int, stages: int, row_tokens: int, parts: int
) -> None:
    assert pipeline_parts(batch, stages, row_tokens) == parts


def plan(*, devices: int = 1, **parameters: Any) -> BatchPlan:
    return JobValues(**{"instance_count": devices, "learning_rate": 1e-4, **parameters}).plan()


@pytest.mark.parametrize(
    ("arguments", "batch", "accumulation", "total"),
    [
        ({}, 16, 1, 16),
        ({"program": "trainer"}, 8, 1, 8),  # the default of the Trainer
        ({"per_device_train_batch_size": 3, "gradient_accumulation_steps": 5, "devices": 2}, 3, 5, 30),
        ({"global_batch_size": 127}, 127, 1, 127),  # of 128 tokens: 16,256
        ({"global_batch_size": 255}, 128, 2, 255),  # trained as 128 and 127 rows
        ({"global_batch_size": 512, "devices": 2}, 128, 2, 512),
        ({"global_batch_size": 256, "max_seq_length": 512}, 32, 8, 256),
        ({"global_batch_size": 36, "max_seq_length": 4096}, 12, 3, 36),  # 16 rows at most, in three equal parts
        ({"global_batch_size": 36, "entry_script": "train.py"}, 12, 3, 36),  # the divisors of 36 up to 16 end with 12
        ({"global_batch_size": 10, "per_device_train_batch_size": 4}, 4, 3, 10),  # trained as 4, 3 and 3 rows
        ({"global_batch_size": 64, "devices": 8}, 8, 1, 64),
        ({"global_batch_size": 64, "per_device_train_batch_size": 4}, 4, 16, 64),
        ({"global_batch_size": 96, "devices": 2, "gradient_accumulation_steps": 3}, 16, 3, 96),
    ],
)
def test_what_is_left_open_is_derived(arguments: dict[str, int], batch: int, accumulation: int, total: int) -> None:
    made = plan(**arguments)

    assert (made.per_device_train_batch_size, made.gradient_accumulation_steps) == (batch, accumulation)
    assert made.global_batch_size == total


def test_a_refusal_names_what_was_asked_and_all_that_is_possible() -> None:
    with pytest.raises(BadInput) as refused:
        plan(global_batch_size=24, devices=2, per_device_train_batch_size=5, entry_script="train.py")
    with pytest.raises(BadInput, match="per_device_train_batch_size 6 and gradient_accumulation_steps 3: possible"):
        plan(global_batch_size=24, devices=2, per_device_train_batch_size=6, gradient_accumulation_steps=3)

    assert str(refused.value) == (
        "global_batch_size 24 on 2 devices is impossible with per_device_train_batch_size 5: possible "
        "per_device_train_batch_size x gradient_accumulation_steps are 1 x 12, 2 x 6, 3 x 4, 4 x 3, 6 x 2, 12 x 1"
    )


def test_less_memory_divides_the_batch_by_its_smallest_factor_until_it_is_one() -> None:
    sizes = []
    step: BatchPlan | None = plan(per_device_train_batch_size=12, gradient_accumulation_steps=2)
    while step is not None:
        sizes.append((step.per_device_train_batch_size, step.gradient_accumulation_steps))
        step = step.with_less_memory()

    assert sizes == [(12, 2), (6, 4), (3, 8), (1, 24)]
    uneven = plan(global_batch_size=10, per_device_train_batch_size=3).with_less_memory()
    assert uneven is not None
    assert (uneven.per_device_train_batch_size, uneven.gradient_accumulation_steps) == (1, 10)
    assert uneven.global_batch_size == 10


@pytest.mark.parametrize(
    ("scaling", "total", "expected"),
    [
        ("none", 256, 2e-5),
        ("sqrt", 256, 8e-5),  # sqrt(16) = 4
        ("sqrt", 4, 1e-5),  # sqrt(1/4) = 1/2
        ("linear", 256, 32e-5),  # 16 times
    ],
)
def test_the_learning_rate_follows_the_global_batch_size(scaling: str, total: int, expected: float) -> None:
    assert scale_learning_rate(2e-5, scaling, total) == pytest.approx(expected, rel=1e-12)
