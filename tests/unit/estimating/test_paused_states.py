"""Where paused trials fit, by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from paretune.estimating.architecture import config_in, of_config
from paretune.estimating.paused_states import PausedStates, free_bytes, paused_states, place_paused, state_bytes
from paretune.specification.job import JobSpec


@pytest.mark.parametrize(
    ("device", "memory", "places"),
    [(45.0, 25.0, (4, 2, 1)), (0.0, 100.0, (0, 7, 0)), (0.0, 0.0, (0, 0, 7)), (1000.0, 0.0, (7, 0, 0))],
)
def test_paused_trials_take_the_fastest_place_that_has_room(
    device: float, memory: float, places: tuple[int, int, int]
) -> None:
    states = place_paused(7, 10.0, device_bytes=device, memory_bytes=memory)

    assert (states.on_device, states.in_memory, states.on_disk) == places


def test_a_tenth_of_each_memory_is_left_free() -> None:
    assert free_bytes(100.0, 30.0) == 60.0
    assert free_bytes(100.0, 95.0) == 0.0


def test_the_estimate_counts_sixteen_bytes_for_each_trained_weight(tiny_model: Path) -> None:
    built = of_config(config_in(tiny_model) or {}, "classification")
    assert built is not None
    states = paused_states(JobSpec(), built, 9, device_gib=1.0, running_gib=0.9, memory_gib=1.0)
    assert states.bytes_each == state_bytes(built.parameters) == 16 * built.parameters
    assert (states.on_device, states.in_memory) == (0, 8)
    adapters = paused_states(
        replace(JobSpec(), fine_tuning="lora"), built, 9, device_gib=0.0, running_gib=1.0, memory_gib=1.0
    )
    assert adapters.bytes_each < states.bytes_each
    assert adapters.on_disk == 8


def test_the_estimate_is_one_sentence() -> None:
    states = PausedStates(bytes_each=2**30, on_device=3, in_memory=0, on_disk=2)

    assert str(states) == "paused trials take 1 GiB each: 3 on the device, 2 on disk"
