"""Where paused trials fit, by hand."""

import pytest

from paretune.estimating.paused_states import free_bytes, place_paused, state_bytes


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


def test_sixteen_bytes_are_counted_for_each_trained_weight() -> None:
    assert state_bytes(1e6) == 16e6
