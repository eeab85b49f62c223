"""The rule that ties batches, devices and the learning rate together."""

from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.specification.batch_size import BatchPlan, plan_batch, scale_learning_rate
from paretune.specification.job import JobValues


def plan(*, devices: int = 1, **parameters: Any) -> BatchPlan:
    return plan_batch(JobValues(**parameters), devices=devices, learning_rate=1e-4)


@pytest.mark.parametrize(
    ("arguments", "batch", "accumulation", "total"),
    [
        ({}, 16, 1, 16),
        ({"devices": 4}, 16, 1, 64),
        ({"per_device_train_batch_size": 3, "gradient_accumulation_steps": 5, "devices": 2}, 3, 5, 30),
        ({"global_batch_size": 64}, 16, 4, 64),
        ({"global_batch_size": 8}, 8, 1, 8),
        ({"global_batch_size": 36}, 12, 3, 36),  # divisors of 36 up to 16: 1 2 3 4 6 9 12
        ({"global_batch_size": 17}, 1, 17, 17),  # a prime
        ({"global_batch_size": 64, "devices": 8}, 8, 1, 64),
        ({"global_batch_size": 64, "per_device_train_batch_size": 4}, 4, 16, 64),
        ({"global_batch_size": 64, "gradient_accumulation_steps": 32}, 2, 32, 64),
        ({"global_batch_size": 96, "devices": 2, "gradient_accumulation_steps": 3}, 16, 3, 96),
        ({"global_batch_size": 64, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 8}, 8, 8, 64),
        ({"global_batch_size": 64, "per_device_train_batch_size": 64}, 64, 1, 64),
    ],
)
def test_what_is_left_open_is_derived(arguments: dict[str, int], batch: int, accumulation: int, total: int) -> None:
    made = plan(**arguments)

    assert (made.per_device_train_batch_size, made.gradient_accumulation_steps) == (batch, accumulation)
    assert made.global_batch_size == total


def test_a_refusal_names_what_was_asked_and_all_that_is_possible() -> None:
    with pytest.raises(BadInput) as refused:
        plan(global_batch_size=24, devices=2, per_device_train_batch_size=5)

    assert str(refused.value) == (
        "global_batch_size 24 on 2 devices cannot be made with per_device_train_batch_size 5: possible "
        "per_device_train_batch_size x gradient_accumulation_steps are 1 x 12, 2 x 6, 3 x 4, 4 x 3, 6 x 2, 12 x 1"
    )


def test_a_total_that_the_devices_do_not_divide_is_refused_with_its_neighbours() -> None:
    with pytest.raises(BadInput, match=r"multiple of the 8 devices, got 30: use 24 or 32$"):
        plan(global_batch_size=30, devices=8)
    with pytest.raises(BadInput, match=r"multiple of the 8 devices, got 5: use 8$"):
        plan(global_batch_size=5, devices=8)


def test_less_memory_divides_the_batch_by_its_smallest_factor_until_it_is_one() -> None:
    made = plan(per_device_train_batch_size=12, gradient_accumulation_steps=2)
    sizes = []
    step: BatchPlan | None = made
    while step is not None:
        sizes.append((step.per_device_train_batch_size, step.gradient_accumulation_steps))
        step = step.with_less_memory()

    assert sizes == [(12, 2), (6, 4), (3, 8), (1, 24)]


@pytest.mark.parametrize(
    ("scaling", "total", "reference", "expected"),
    [
        ("none", 256, 16, 2e-5),
        ("sqrt", 256, 16, 8e-5),  # sqrt(16) = 4
        ("sqrt", 4, 16, 1e-5),  # sqrt(1/4) = 1/2
        ("linear", 256, 16, 32e-5),  # 16 times
        ("linear", 4, 16, 0.5e-5),
        ("linear", 16, 16, 2e-5),
    ],
)
def test_the_learning_rate_follows_the_global_batch_size(
    scaling: str, total: int, reference: int, expected: float
) -> None:
    assert scale_learning_rate(2e-5, scaling, total, reference) == pytest.approx(expected, rel=1e-12)
