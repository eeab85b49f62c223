"""What holds the memory at the peak of a step, against allocations worked out by hand."""

from itertools import count
from typing import Any

from paretune.training.profiling.trace import Allocation, allocations_of, holders_at_peak

UPDATES_FROM = 1000


def following(*sizes: tuple[int, int]) -> list[Allocation]:
    """Allocations (address, bytes) at moments 0, 1, 2, ..."""
    return [
        Allocation(moment=moment, address=at, size=size) for moment, (at, size) in zip(count(), sizes, strict=False)
    ]


def held(allocations: list[Allocation], **others: Any) -> dict[str, int]:
    """Holders that hold anything."""
    usual = {"held_before": {}, "gradients": (), "state": (), "updates_from": UPDATES_FROM}
    return {name: size for name, size in holders_at_peak(allocations, **(usual | others)).items() if size}


def test_the_peak_is_between_activations_and_gradients() -> None:
    """Two activations of 100 are made, the second is given back when the first gradient of 30 is there."""
    steps = following((1, 100), (2, 100), (3, 30), (2, -100), (4, 30), (1, -100))

    assert held(steps, held_before={"parameters": 60}, gradients={3, 4}) == {
        "parameters": 60,
        "activations": 200,
        "gradients": 30,
    }


def test_an_address_that_is_used_again_is_counted_for_what_it_was_at_the_peak() -> None:
    steps = following((1, 100), (2, 50), (1, -100), (1, 30))

    assert held(steps, gradients={1}) == {"activations": 150}


def test_state_that_the_first_update_makes_is_the_optimiser_s_and_its_scratch_is_other() -> None:
    before = following((1, 10))
    after = [
        Allocation(moment=UPDATES_FROM + moment, address=at, size=size) for moment, at, size in [(0, 5, 40), (1, 6, 7)]
    ]

    assert held(before + after, gradients={1}, state={5}) == {"gradients": 10, "optimiser state": 40, "other": 7}


def test_what_was_held_before_and_is_given_back_was_other() -> None:
    assert held(following((9, -20), (1, 100)), held_before={"other": 50}) == {"activations": 100, "other": 30}


def test_a_step_that_only_gives_back_has_its_peak_at_its_beginning() -> None:
    assert held(following((9, -20)), held_before={"other": 50, "parameters": 5}) == {"other": 50, "parameters": 5}


def test_allocations_of_the_processor_and_of_the_gpu_are_kept_apart() -> None:
    def memory(moment: float, address: int, size: int, kind: int) -> dict[str, Any]:
        args = {"Addr": address, "Bytes": size, "Device Type": kind}
        return {"ph": "i", "name": "[memory]", "ts": moment, "args": args}

    events = [memory(2, 11, -8, 0), memory(1, 11, 8, 0), memory(1.5, 12, 16, 1), {"ph": "X", "name": "aten::mm"}]

    assert [allocations.size for allocations in allocations_of(events, on_gpu=False)] == [8, -8]
    assert allocations_of(events, on_gpu=True) == [Allocation(moment=1500, address=12, size=16)]
