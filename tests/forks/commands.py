"""Commands that tests begin, kill and wait for: forks of a server (`server`)."""

import atexit
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from tests.forks.server import Order, as_line
from tests.processes import Command, ended, wait_until

REPOSITORY = Path(__file__).parents[2]


@dataclass
class Forked:
    """A command under way.

    Attributes:
        pid: of the command; of the process that waits for it, where it has such a parent.
    """

    pid: int
    order: Order
    codes: Path

    @property
    def text(self) -> str:
        """What it has printed so far."""
        log = Path(self.order.log)
        return log.read_text(errors="replace") if log.exists() else ""

    @property
    def code(self) -> int | None:
        """Its exit code, negative where a signal has ended it; None while it runs."""
        return self._code_of(self.pid)

    def has_ended_within(self, seconds: float) -> bool:
        """Whether it ends by itself in that time."""
        until = time.monotonic() + seconds
        while self.code is None and time.monotonic() < until:
            time.sleep(0.005)
        return self.code is not None

    def send(self, number: int) -> None:
        """Send it a signal; nothing when it has ended."""
        with suppress(ProcessLookupError):
            if self.code is None:
                os.kill(self.pid, number)

    def wait(self, within_s: float = 120.0) -> int:
        """Its exit code, once it and its child have ended."""
        try:
            wait_until(lambda: self._are_over(), within_s=within_s, what="the command ends")
        except AssertionError:
            self.send(signal.SIGABRT)
            raise AssertionError(
                f"{' '.join(self.order.words)}: not ended within {within_s:g} s:\n{self.text}"
            ) from None
        return self.code  # type: ignore[return-value]  # it has ended

    def _are_over(self) -> bool:
        """Whether it has ended, and the command that its parent has left alone."""
        code = self.code
        if code is None or code >= 0 or not self.order.under_parent:
            return code is not None
        return self._code_of(int(Path(f"{self.order.log}.child").read_text())) is not None

    def _code_of(self, pid: int) -> int | None:
        path = self.codes / str(pid)
        return int(path.read_text()) if path.exists() else None


class Commands:
    """Begins commands."""

    def __init__(self, process: "subprocess.Popen[str]", codes: Path) -> None:
        self._process = process
        self._codes = codes
        self._numbers = count()

    def begin(
        self, words: list[str], *, cwd: Path, environment: Mapping[str, str], log: Path | None = None, **options: object
    ) -> Forked:
        """Begin a command, with a log of its own in `cwd` unless it is given one; `options` are those of `Order`."""
        order = Order(
            words=words,
            cwd=str(cwd),
            environment=dict(environment),
            log=str(log or cwd / f"printed-{next(self._numbers):04}"),
            **options,  # type: ignore[arg-type]
        )
        assert self._process.stdin is not None  # both are pipes
        assert self._process.stdout is not None
        self._process.stdin.write(as_line(order))
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        if order.under_parent:
            child = Path(f"{order.log}.child")
            wait_until(child.exists, within_s=30, what="the parent has begun its child")
        return Forked(pid, order, self._codes)


class ForkedProcess:
    """A command under way, asked and ended as a `subprocess.Popen` is; its folder has a file for what it prints."""

    def __init__(self, forked: Forked) -> None:
        self._forked = forked
        self.pid = forked.pid

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._forked.code

    def wait(self, timeout: float = math.inf) -> int:
        """Its exit code; subprocess.TimeoutExpired where it has not ended after `timeout` seconds."""
        if not self._forked.has_ended_within(timeout):
            raise subprocess.TimeoutExpired(self._forked.order.words, timeout)
        return self._forked.code  # type: ignore[return-value]  # it has ended

    def send_signal(self, number: int) -> None:
        """Send it a signal; nothing when it has ended."""
        self._forked.send(number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


@cache
def usual_server() -> Commands:
    """A server that is begun when it is asked for, and ends with this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(serving(Path(stack.enter_context(tempfile.TemporaryDirectory()))))


@contextmanager
def serving(folder: Path) -> Iterator[Commands]:
    """A server of forks; after the block it and all commands are gone."""
    codes = folder / "codes"
    codes.mkdir(parents=True)
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.forks.server", str(codes)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    assert process.stdin is not None  # both are pipes
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().strip()
        assert ready == "ready", (folder / "server.log").read_text()
        yield Commands(process, codes)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(30)


@contextmanager
def forked(words: list[str], *, home: Path, cwd: Path, environment: Mapping[str, str], log: Path) -> Iterator[Command]:
    """Run paretune with these words as `command` does, in a fork of a process that has imported it."""
    log.touch()
    process = ForkedProcess(usual_server().begin(["paretune", *words], cwd=cwd, environment=environment, log=log))
    with ended(process, home):
        yield Command(process, log)
