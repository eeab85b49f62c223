"""Identifies processes by host, id and start time, checks whether they are running, and counts out-of-memory kills."""

import socket
from contextlib import suppress
from pathlib import Path

import psutil

_CLOCK_STEP_S = 5.0  # tolerance for corrections of the system clock, from which start times are computed


def living(pid: int, created: float) -> psutil.Process | None:
    """Return the process with this id, or None if it has ended. Ids are reused, so the start time must match, too."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < _CLOCK_STEP_S
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
    return f"{socket.gethostname()} {process.pid} {process.create_time():.0f}"


def is_alive(name: str) -> bool | None:
    """Return whether the process named by `process_text` is still running; None if unknown (on another machine)."""
    host, _, numbers = name.partition(" ")
    pid, _, created = numbers.partition(" ")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    return living(int(pid), float(created)) is not None
