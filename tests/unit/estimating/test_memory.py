"""Memory of one device, against sums worked out by hand, and learnt from peaks."""

from dataclasses import replace

import pytest

from paretune.estimating.memory import GIB, MemoryModel, MemorySetting

FP32 = MemorySetting(
    model="m",
    on_processor=False,
    parameters=1e9,
    trained_parameters=1e9,
    half=False,
    weight_sharers=1,
    state_sharers=1,
    units=1e8,
    logits=0.0,
)
FRAMEWORK = 0.3  # GiB, the median of its prior


def gib(setting: MemorySetting, model: MemoryModel | None = None) -> float:
    return (model or MemoryModel()).predict(setting).gib


@pytest.mark.parametrize(
    ("setting", "gigabytes"),
    [
        (FP32, 4 + 12 + 2 * 4.5),  # weights, gradients and moments, 2 x 45 bytes a unit in fp32
        (replace(FP32, half=True), 6 + 12 + 4.5),  # weights in both formats, activations in one half
        (replace(FP32, trained_parameters=1e7), 4 + 0.12 + 9),  # adapters
        (replace(FP32, half=True, trained_parameters=1e7), 4 + 0.02 + 0.12 + 4.5),  # frozen weights are not kept twice
        (replace(FP32, weight_sharers=8, state_sharers=8), 0.5 + 1.5 + 9),  # fsdp
        (replace(FP32, state_sharers=8), 4 + 1.5 + 9),  # deepspeed, ZeRO 2
        (replace(FP32, logits=1e9), 4 + 12 + 9 + 12),  # a language model's
        (replace(FP32, offloads_weights=True), 9),
        (replace(FP32, trained_parameters=1e7, frozen_bytes=2.0), 0.04 + 1.98 + 0.12 + 9),  # loaded in bf16
    ],
)
def test_memory_is_the_sum_by_hand(setting: MemorySetting, gigabytes: float) -> None:
    assert gib(setting) == pytest.approx(gigabytes * 1e9 / GIB + FRAMEWORK)


def test_a_peak_teaches_the_activations_of_its_model() -> None:
    truth = 60.0  # bytes a unit
    peaks = [
        (replace(FP32, units=units, half=True), (18e9 + truth * units) / GIB + 0.5) for units in (1e7, 1e8, 5e8, 1e9)
    ]
    model = MemoryModel(peaks)
    larger = replace(FP32, units=2e9, half=True)

    assert gib(larger, model) == pytest.approx((18e9 + truth * 2e9) / GIB + 0.5, rel=0.05)
    assert gib(replace(larger, model="other"), model) == pytest.approx((18e9 + 45 * 2e9) / GIB, rel=0.05)
