"""Identifies processes by host, id and start time, checks whether they are running, and counts out-of-memory kills."""

import socket
from contextlib import suppress
from pathlib import Path

import psutil

CLOCK_STEP_S = 5.0  # tolerance for corrections of the system clock, if start times are computed from it
_BOOT = "/proc/sys/kernel/random/boot_id"


def start_of(process: psutil.Process) -> str:
    """Return when a process started, as text that no other process with its id has.

    On Linux, these are clock ticks since the boot, and which boot it was, because they stay the same if somebody sets
    the system's clock. Elsewhere, it is the number of seconds since the epoch.
    """
    with (
        suppress(OSError, IndexError),
        open(f"/proc/{process.pid}/stat", errors="replace") as stat,
        open(_BOOT) as boot,
    ):
        ticks = stat.read().rpartition(")")[2].split()[19]  # the 22nd field; the second is a name in parentheses
        return f"{ticks}@{boot.read().strip()}"
    return f"{process.create_time():.0f}"


def living(pid: int, start: str) -> psutil.Process | None:
    """Return the process with this id and this `start_of`, or None if it has ended, because ids are reused."""
    with suppress(psutil.NoSuchProcess, ValueError):
        process = psutil.Process(pid)
        same = start_of(process) == start
        if "@" not in start:
            same = abs(process.create_time() - float(start)) < CLOCK_STEP_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    return None


def out_of_memory_kills() -> int:
    """Return how many processes Linux has killed since boot because memory ran out; 0 if unknown."""
    path = Path("/proc/vmstat")
    counters = dict(line.split() for line in path.read_text().splitlines()) if path.exists() else {}
    return int(counters.get("oom_kill", 0))


def process_text(pid: int | None = None) -> str:
    """Return a name for a process on this machine, by default the current one: `HOST PID START`. See `is_alive`."""
    process = psutil.Process(pid)
    return f"{socket.gethostname()} {process.pid} {start_of(process)}"


def is_alive(name: str) -> bool | None:
    """Return whether the process named by `process_text` is still running; None if unknown (on another machine)."""
    host, _, numbers = name.partition(" ")
    pid, _, start = numbers.partition(" ")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    return living(int(pid), start) is not None
