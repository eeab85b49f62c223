"""The places for the states of paused trials of a job that searches: on the device, in main memory, or on disk."""

from dataclasses import dataclass

from paretune.estimating.architecture import Architecture
from paretune.estimating.workload import trained_weights
from paretune.specification.job import JobSpec

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

    def __str__(self) -> str:
        tiers = {"on the device": self.on_device, "in main memory": self.in_memory, "on disk": self.on_disk}
        counts = ", ".join(f"{count} {tier}" for tier, count in tiers.items() if count)
        return f"paused trials take {self.bytes_each / 2**30:.2g} GiB each: {counts or 'none'}"


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


def paused_states(
    spec: JobSpec,
    built: Architecture,
    trials: int,
    *,
    device_gib: float,
    running_gib: float,
    memory_gib: float,
) -> PausedStates:
    """Places for the paused trials of a job of `trials` trials, of which one trains.

    `device_gib` is the memory of a GPU, 0 without one. `running_gib` is what a training takes of it, or of the machine
    without a GPU. `memory_gib` is the main memory of the machine for each of its processes.
    """
    free = [free_bytes(total * 2**30, used * 2**30) for total, used in _memories(device_gib, running_gib, memory_gib)]
    each = state_bytes(trained_weights(spec, built))
    return place_paused(max(0, trials - 1), each, device_bytes=free[0], memory_bytes=free[1])


def _memories(device_gib: float, running_gib: float, memory_gib: float) -> tuple[tuple[float, float], ...]:
    """Total and used GiB of the device and of main memory."""
    return ((device_gib, running_gib), (memory_gib, 0.0)) if device_gib else ((0.0, 0.0), (memory_gib, running_gib))
