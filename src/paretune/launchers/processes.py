"""Processes of this machine, identified by process id and start time: whether they run, and how to end them."""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_CLOCK_STEP_S = 5.0  # tolerance for corrections of the system clock, from which start times are computed


@dataclass(frozen=True)
class Process:
    """A process id with the start of the process (`created`, seconds since the epoch), because ids are reused."""

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> "Process":
        """The process `pid`; psutil.NoSuchProcess where there is none."""
        return cls(pid, psutil.Process(pid).create_time())

    def is_living(self) -> bool:
        """Whether it runs; False for a zombie."""
        return self._living() is not None

    def terminate(self) -> None:
        """Send it SIGTERM, if it runs."""
        process = self._living()
        if process is not None:
            process.terminate()

    def kill_all(self) -> None:
        """Send SIGKILL to it and its descendants, if it runs."""
        process = self._living()
        for member in [] if process is None else [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                member.kill()

    def _living(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < _CLOCK_STEP_S
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None


def out_of_memory_kills() -> int | None:
    """Number of processes that Linux has killed for lack of memory since it booted; None where it is not known."""
    path = Path("/proc/vmstat")
    counters = dict(line.split() for line in path.read_text().splitlines()) if path.exists() else {}
    return int(counters["oom_kill"]) if "oom_kill" in counters else None


def this_process() -> str:
    """Host, process id and start time of this process, as text for `is_alive`."""
    return f"{socket.gethostname()} {os.getpid()} {Process.of(os.getpid()).created:.0f}"


def is_alive(name: str) -> bool | None:
    """Whether the process with this `this_process` text runs; None for a process of another machine."""
    host, _, numbers = name.partition(" ")
    pid, _, created = numbers.partition(" ")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    return Process(int(pid), float(created)).is_living()


def is_watched(watched_by: str) -> bool:
    """Whether another process of this machine, given by its `this_process` text, runs; False for another machine."""
    return watched_by != this_process() and bool(is_alive(watched_by))
