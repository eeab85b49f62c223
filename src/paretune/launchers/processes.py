"""Processes of this machine, identified by process id and start time: whether they run, and how to end them."""

import json
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

_CLOCK_STEP_S = 5.0  # tolerance for corrections of the system clock, from which start times are computed


def living(pid: int, created: float) -> psutil.Process | None:
    """The process with this id and start (seconds since the epoch, because ids are reused); None if it has ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        same = abs(process.create_time() - created) < _CLOCK_STEP_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    return None


class WarmStart:
    """Forks of a process that has imported the libraries of a training, so that a job begins seconds sooner.

    Not on a machine with GPUs: CUDA does not survive a fork.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "paretune.training"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            text=True,
        )
        weakref.finalize(self, _close, self._server)

    def start(self, folder: Path, environment: Mapping[str, str]) -> "Fork | None":
        """The job of a folder as a process; None if the process that forks has ended."""
        assert self._server.stdin is not None  # both are pipes
        assert self._server.stdout is not None
        with suppress(OSError, ValueError):
            job = json.dumps({"folder": str(folder), "environment": dict(environment)})
            print(job, file=self._server.stdin, flush=True)
            return Fork(int(self._server.stdout.readline()), folder, self._server)
        return None


class Fork:
    """A job that `WarmStart` has started, with what a launcher asks of a process of its own."""

    def __init__(self, pid: int, folder: Path, parent: "subprocess.Popen[str]") -> None:
        self.pid = pid
        self._created, self._code, self._parent = psutil.Process(pid).create_time(), folder / "exit_code", parent

    def poll(self) -> int | None:
        """Its exit code, negative if a signal has ended it; None while it runs."""
        with suppress(FileNotFoundError):
            return int(self._code.read_text())
        has_ended = self._parent.poll() is not None and living(self.pid, self._created) is None
        return -signal.SIGKILL if has_ended else None


def _close(server: "subprocess.Popen[str]") -> None:
    with server:
        server.kill()


def out_of_memory_kills() -> int:
    """Number of processes that Linux has killed for lack of memory since it booted; 0 if it is unknown."""
    path = Path("/proc/vmstat")
    counters = dict(line.split() for line in path.read_text().splitlines()) if path.exists() else {}
    return int(counters.get("oom_kill", 0))


def process_text(pid: int | None = None) -> str:
    """A process of this machine, by default this one, as text for `is_alive`: `HOST PID START`."""
    process = psutil.Process(pid)
    return f"{socket.gethostname()} {process.pid} {process.create_time():.0f}"


def is_alive(name: str) -> bool | None:
    """Whether the process with a `process_text` runs; None if it is on another machine."""
    host, _, numbers = name.partition(" ")
    pid, _, created = numbers.partition(" ")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    return living(int(pid), float(created)) is not None
