"""Processes of this machine, identified by process id and start time: whether they run, and how to end them.

A process id means something within one PID namespace only, and containers may share a host name: `default`, the name
of a pod that is started again. So the text that names a process to others has its namespace, too.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_OF_THE_HOST = "4026531836"
"""Namespace of the processes outside of all containers: PROC_PID_INIT_INO (Linux, include/linux/proc_ns.h)."""
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
    """Where this process runs, its id and its start time, as text for `is_alive`: `HOST/BOOT/NAMESPACE PID START`.

    Earlier versions, which wrote `HOST PID START`, take it for a process of another machine.
    """
    where = "/".join((socket.gethostname(), *_namespace()))
    return f"{where} {os.getpid()} {Process.of(os.getpid()).created:.0f}"


def is_alive(name: str) -> bool | None:
    """Whether the process with this `this_process` text runs; None for one of another machine or container."""
    where, _, numbers = name.partition(" ")
    pid, _, created = numbers.partition(" ")
    host, *namespace = where.split("/")
    here = _namespace()
    if host != socket.gethostname() or not pid.isdigit():
        return None
    if namespace and here and tuple(namespace) != here:
        is_from_before = namespace[-1] == here[-1] == _OF_THE_HOST and float(created) < psutil.boot_time()
        return False if is_from_before else None  # the machine was started again
    return Process(int(pid), float(created)).is_living()


def is_watched(watched_by: str) -> bool:
    """Whether another process, given by its `this_process` text, runs; False where that is not known, as elsewhere."""
    return watched_by != this_process() and bool(is_alive(watched_by))


def _namespace() -> tuple[str, ...]:
    """Boot of the machine and PID namespace that this process is in; nothing where the system does not tell both."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").partition("-")[0], str(_NAMESPACE.stat().st_ino)
    except OSError:
        return ()
