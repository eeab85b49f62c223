"""What holds the memory of a device at the moment of a step at which most of it is held.

Every allocation of the step is followed; at the peak each one is counted for what its storage turns out to be.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HOLDERS = ("parameters", "gradients", "optimiser state", "activations", "other")
"""What memory is held for; `activations` are all that forward and backward pass have made and still hold, `other` are
buffers, batches, copies for communication, and what the optimiser computes with."""

_GPU = 1  # c10::DeviceType::CUDA; 0 is the processor


@dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """Memory of one device at its peak in one step.

    Attributes:
        step: number of the step, from 1.
        holders: bytes by what they are held for; they sum to the peak of all tensors.
        process_gib: highest resident memory of the process so far, libraries included; None on a GPU.
    """

    step: int
    holders: Mapping[str, int]
    process_gib: float | None


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Bytes allocated, or given back where negative, at a moment in nanoseconds."""

    moment: int
    address: int
    size: int


def allocations_of(events: Iterable[Mapping[str, Any]], *, on_gpu: bool) -> list[Allocation]:
    """The allocations in a trace with `profile_memory`, on the GPU or on the processor, in order."""
    found = [
        Allocation(moment=round(event["ts"] * 1000), address=event["args"]["Addr"], size=event["args"]["Bytes"])
        for event in events
        if event.get("name") == "[memory]" and (event["args"]["Device Type"] == _GPU) == on_gpu
    ]
    return sorted(found, key=lambda allocation: allocation.moment)


def holders_at_peak(
    allocations: Iterable[Allocation],
    *,
    held_before: Mapping[str, int],
    gradients: Collection[int],
    state: Collection[int],
    updates_from: float,
) -> dict[str, int]:
    """Bytes that each of HOLDERS holds at the peak of a step; their sum is the peak.

    `held_before` are bytes by holder when the step begins. `gradients` are the addresses of gradients when the
    optimiser begins, at `updates_from` nanoseconds; `state` those of the optimiser's state when the step ends.
    """
    steps = list(allocations)
    peak, held, most = -1, 0, 0
    for index, one in enumerate(steps):
        held += one.size
        if held > most:
            peak, most = index, held
    owner = {one.address: (index, "optimiser state") for index, one in enumerate(steps) if _is(one, state)}
    early = (entry for entry in enumerate(steps) if entry[1].moment < updates_from)
    owner |= {one.address: (index, "gradients") for index, one in early if _is(one, gradients)}
    live: dict[int, tuple[int, int]] = {}  # address to number of the allocation and its bytes
    freed = 0
    for index, one in enumerate(steps[: peak + 1]):
        if one.size > 0:
            live[one.address] = index, one.size
        elif live.pop(one.address, None) is None:
            freed -= one.size  # it was held before the step
    found = {name: held_before.get(name, 0) for name in HOLDERS}
    made = "other" if peak >= 0 and steps[peak].moment >= updates_from else "activations"
    for address, (index, size) in live.items():
        last, name = owner.get(address, (-1, ""))
        found[name if last == index else made] += size
    found["other"] = max(0, found["other"] - freed)
    return found


def _is(one: Allocation, addresses: Collection[int]) -> bool:
    return one.size > 0 and one.address in addresses
