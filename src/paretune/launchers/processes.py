"""Processes of this machine: found again by another process, ended with all they started."""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_CLOCK_STEP_S = 5.0  # start times are read off a clock that may be corrected meanwhile


@dataclass(frozen=True)
class Process:
    """A process, safe against reused process ids: `created` is its start in seconds since the epoch."""

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The process `pid`, which has not been reaped yet."""
        return cls(pid, psutil.Process(pid).create_time())

    def is_living(self) -> bool:
        """Whether it runs; a zombie does not."""
        return self._living() is not None

    def terminate(self) -> None:
        """SIGTERM, if it runs."""
        process = self._living()
        if process is not None:
            process.terminate()

    def kill_all(self) -> None:
        """SIGKILL to it and everything it has started, if it runs."""
        process = self._living()
        if process is not None:
            for member in [*process.children(recursive=True), process]:
                with suppress(psutil.NoSuchProcess):
                    member.kill()

    def _living(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < _CLOCK_STEP_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def cores() -> int:
    """Logical processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def out_of_memory_kills() -> int | None:
    """Processes the kernel has killed for lack of memory since it started; None where it does not tell."""
    path = Path("/proc/vmstat")
    if not path.exists():
        return None
    counters = dict(line.split() for line in path.read_text().splitlines())
    return int(counters["oom_kill"]) if "oom_kill" in counters else None


def this_process() -> str:
    """A name of this process by which others can tell whether it still lives: host, process id and start."""
    return f"{socket.gethostname()} {os.getpid()} {Process.of(os.getpid()).created:.0f}"


def is_alive(name: str) -> bool | None:
    """Whether the process that `this_process` has named lives; None for one of another machine."""
    host, _, numbers = name.partition(" ")
    pid, _, created = numbers.partition(" ")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    return Process(int(pid), float(created)).is_living()


def is_watched(watched_by: str) -> bool:
    """Whether another process of this machine is at work on what it has signed so; unknown on another machine."""
    return watched_by != this_process() and bool(is_alive(watched_by))
