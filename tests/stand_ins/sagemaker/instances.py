"""The running instances of one attempt at a training job."""

import contextlib
import os
import selectors
import socket
import subprocess
import sys
from pathlib import Path

import psutil

from tests.stand_ins.sagemaker.forward import Door, Forwarder

HERE = Path(__file__).parent
_NAMESPACES = ["unshare", "-Urmnupf", "--mount-proc", "--kill-child", "--propagation", "private"]


class Instances:
    """Containers on a network of their own.

    Attributes:
        exits: host to exit code, in the order in which they ended; None where the machine itself broke.
    """

    def __init__(self, folder: Path, hosts: list[str], forwarder: Forwarder) -> None:
        self.exits: dict[str, int | None] = {}
        self._up: set[str] = set()
        self._forwarder = forwarder
        self._doors: list[Door] = []
        self._lines: dict[str, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        reference = {}
        for host in hosts:
            actual, reference[host] = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._lines[host] = actual
            self._selector.register(actual, selectors.EVENT_READ, host)
        numbers = {host: line.fileno() for host, line in reference.items()}
        # The first word ends everything with the thread that runs this, and so with the service, however it ends.
        with (folder / "job.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    *_NAMESPACES,
                    "bash",
                    str(HERE / "job.sh"),
                    sys.executable,
                    str(folder),
                ]
                + [f"{host}={number}" for host, number in numbers.items()],
                pass_fds=list(numbers.values()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
            )
        for line in reference.values():
            line.close()

    @property
    def are_over(self) -> bool:
        """Whether every container has ended."""
        return len(self.exits) == len(self._lines)

    @property
    def are_up(self) -> bool:
        """Whether every container has been started."""
        return len(self._up) == len(self._lines)

    def poll(self, timeout_s: float) -> None:
        """Wait for news, at most so long, and take them in."""
        for key, _ in self._selector.select(timeout_s):
            host = key.data
            with contextlib.suppress(ConnectionError):
                self._hear(host, self._lines[host])
                continue
            self._lost(host)

    def send(self, word: str, host: str | None = None) -> None:
        """`TERM` or `KILL` to process 1 of one container or of all."""
        for name, line in self._lines.items():
            if host in (None, name) and name not in self.exits:
                with contextlib.suppress(OSError):
                    line.send(word.encode())

    def end(self) -> None:
        """Leave nothing of them."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for first in psutil.Process(self._process.pid).children():
                first.kill()  # process 1 of the job: the kernel ends all others before this one is gone
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        for door in self._doors:
            door.close()
        self._selector.close()
        for line in self._lines.values():
            line.close()

    def _hear(self, host: str, line: socket.socket) -> None:
        content, descriptors, _, _ = socket.recv_fds(line, 256, 1)
        word, _, value = content.decode().partition(" ")
        if word == "port":
            self._doors.append(self._forwarder.adopt(socket.socket(fileno=descriptors[0]), int(value)))
        elif word == "up":
            self._up.add(host)
        elif word == "exit":
            self.exits[host] = int(value)
            self._selector.unregister(line)
        else:
            self._lost(host)

    def _lost(self, host: str) -> None:
        self.exits.setdefault(host, None)
        self._selector.unregister(self._lines[host])
