"""The purposes of a device's memory at the moment of a step at which most of it is in use.

Every allocation of the step is followed; each one that is alive at the peak is counted for its purpose.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HOLDERS = ("parameters", "gradients", "optimiser state", "activations", "other")
"""Purposes of memory; `activations` are all that forward and backward pass have made and still hold, `other` are
buffers, batches, copies for communication, and intermediate results of the optimiser."""

_GPU = 1  # c10::DeviceType::CUDA; 0 is the processor


@dataclass(frozen=True, kw_only=True)
class PeakMemory:
    """Memory of one device at its peak in one step.

    Attributes:
        step: number of the step, from 1.
        holders: bytes by purpose; they sum to the peak of all tensors.
        process_gib: highest resident memory of the process so far, libraries included; None on a GPU.
    """

    step: int
    holders: Mapping[str, int]
    process_gib: float | None


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Bytes allocated, or freed if negative, at a moment in nanoseconds."""

    moment: int
    address: int
    size: int


def allocations_of(events: Iterable[Mapping[str, Any]], *, on_gpu: bool) -> list[Allocation]:
    """The allocations in a trace with `profile_memory`, on the GPU or on the processor, in order."""
    allocations = [
        Allocation(moment=round(event["ts"] * 1000), address=event["args"]["Addr"], size=event["args"]["Bytes"])
        for event in events
        if event.get("name") == "[memory]" and (event["args"]["Device Type"] == _GPU) == on_gpu
    ]
    return sorted(allocations, key=lambda allocation: allocation.moment)


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
    history = list(allocations)
    in_use = list(itertools.accumulate(allocation.size for allocation in history))
    most = max(in_use, default=0)
    peak = in_use.index(most) if most > 0 else -1
    # Addresses are used again and again: the last allocation of an address is the one that was seen in the end.
    owner: dict[int, tuple[int, str]] = {}
    for purpose, addresses, until in (("optimiser state", state, float("inf")), ("gradients", gradients, updates_from)):
        for index, allocation in enumerate(history):
            if allocation.size > 0 and allocation.address in addresses and allocation.moment < until:
                owner[allocation.address] = (index, purpose)
    live: dict[int, tuple[int, int]] = {}  # address to number of the allocation and its bytes
    freed = 0
    for index, allocation in enumerate(history[: peak + 1]):
        if allocation.size > 0:
            live[allocation.address] = index, allocation.size
        elif live.pop(allocation.address, None) is None:
            freed -= allocation.size  # it was allocated before the step
    holders = {name: held_before.get(name, 0) for name in HOLDERS}
    default = "other" if peak >= 0 and history[peak].moment >= updates_from else "activations"
    for address, (index, size) in live.items():
        last, purpose = owner.get(address, (-1, ""))
        holders[purpose if last == index else default] += size
    holders["other"] = max(0, holders["other"] - freed)
    return holders
