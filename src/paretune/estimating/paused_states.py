"""The places for the states of paused trials of a job that searches: on the device, in main memory, or on disk."""

from dataclasses import dataclass

_BYTES_PER_WEIGHT = 16.0
"""A trained weight, its gradient and two moments of Adam, in fp32. Frozen weights are shared by all trials."""
_SPARE = 0.1  # share of a device or of main memory that is left free: for fragmentation, and for what is not counted


@dataclass(frozen=True, kw_only=True)
class PausedStates:
    """Numbers of paused trials by where their states are, and bytes of a state; those on disk must be read first."""

    bytes_each: float
    on_device: int
    in_memory: int
    on_disk: int


def state_bytes(weights: float) -> float:
    """Bytes of the state of a paused trial that trains so many weights."""
    return _BYTES_PER_WEIGHT * weights


def place_paused(count: int, bytes_each: float, *, device_bytes: float, memory_bytes: float) -> PausedStates:
    """Places for `count` paused trials: the fastest that has room.

    `device_bytes` are those that are free while a trial trains, 0 without a GPU; `memory_bytes` are the same of main
    memory.
    """
    each = max(1.0, bytes_each)
    on_device = min(count, max(0, int(device_bytes / each)))
    in_memory = min(count - on_device, max(0, int(memory_bytes / each)))
    on_disk = count - on_device - in_memory
    return PausedStates(bytes_each=bytes_each, on_device=on_device, in_memory=in_memory, on_disk=on_disk)


def free_bytes(total: float, used: float) -> float:
    """Bytes of a memory of `total` bytes that paused states may take beside `used` bytes."""
    return max(0.0, (1 - _SPARE) * total - used)
