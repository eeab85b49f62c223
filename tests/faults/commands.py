"""Commands that tests begin, kill and wait for: forks of a process that has imported everything.

A command begins a tenth of a second after it was asked for, not three seconds, so that hundreds can be killed.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil

from tests.processes import wait_until

REPOSITORY = Path(__file__).parents[2]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.faults.everything"])


@dataclass
class Forked:
    """A command under way.

    Attributes:
        process: it, or the process that waits for it, where it has such a parent.
        child: the file with the process id of the command itself, where it has such a parent.
    """

    process: Any
    words: list[str]
    log: Path
    child: Path | None

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def code(self) -> int | None:
        """Its exit code, negative where a signal has ended it; None while it runs."""
        return self.process.exitcode  # type: ignore[no-any-return]

    def has_ended_within(self, seconds: float) -> bool:
        """Whether it ends by itself in that time."""
        self.process.join(seconds)
        return self.code is not None

    def send(self, number: int) -> None:
        """Send it a signal; nothing when it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.code is None:
                os.kill(self.process.pid, number)

    def wait(self, within_s: float = 120.0) -> int:
        """Its exit code, once it has ended, and the command too that its parent has left alone."""
        try:
            wait_until(self._are_over, within_s=within_s, what="the command ends")
        except AssertionError:
            self.send(signal.SIGABRT)
            raise AssertionError(f"{' '.join(self.words)}: not ended within {within_s:g} s:\n{self.text}") from None
        return int(self.process.exitcode)

    def _are_over(self) -> bool:
        if self.code is None or self.child is None:
            return self.code is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(int(self.child.read_text())).status() == psutil.STATUS_ZOMBIE
        return True


def begin(
    words: list[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    under_parent: bool = False,
    pace: float = 1.0,
    ahead_s: float = 0.0,
) -> Forked:
    """Begin a command of paretune or mlflow.

    With `under_parent` it is the child of a process that only waits for it, as with `mlflow run`. In a real second,
    `pace` seconds pass for paretune's clock and for boto's pauses and limits; the time of day is ahead by `ahead_s`.
    """
    log = cwd / f"printed-{len(list(cwd.glob('printed-*'))):04}"
    log.touch()
    child = log.with_suffix(".child") if under_parent else None
    with contextlib.chdir(REPOSITORY):  # where a server of forks finds its modules, should it begin now
        forkserver.ensure_running()
        arguments = (words, str(cwd), dict(environment), str(log), child and str(child), pace, ahead_s)
        process = FORKS.Process(target=_run, args=arguments, daemon=True)
        process.start()
    if child is not None:
        wait_until(lambda: child.exists() and child.read_text(), within_s=60, what="the parent has begun its child")
    return Forked(process, words, log, child)


def _run(
    words: list[str], cwd: str, environment: dict[str, str], log: str, child: str | None, pace: float, ahead_s: float
) -> None:
    """Be the command, or the parent of it; never returns."""
    os.setsid()
    if child and (number := os.fork()):
        Path(child).write_text(str(number))
        os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])))
    code: Any = 70
    try:
        _redirect(log)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        _change_time(pace, ahead_s)
        try:
            sys.argv = words
            program = sys.modules["paretune.cli"].main if words[0] == "paretune" else sys.modules["mlflow.cli"].cli
            code = int(program(words[1:]) or 0)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
    finally:
        os._exit(code)


def _redirect(log: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.stdout = sys.stderr = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  # as long as the process lives
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _change_time(pace: float, ahead_s: float) -> None:
    """Make paretune's clock, boto's pauses and boto's limits faster; its time of day only later."""
    import botocore.config
    import botocore.endpoint

    from paretune.core.clock import SystemClock
    from paretune.launchers.sagemaker import account

    if ahead_s:
        SystemClock.now = staticmethod(lambda: time.time() + ahead_s)
    if pace == 1.0:
        return
    SystemClock.monotonic = staticmethod(lambda: time.monotonic() * pace)
    SystemClock.sleep = staticmethod(lambda seconds: time.sleep(seconds / pace))
    botocore.endpoint.time = type("Hurried", (), {"sleep": staticmethod(lambda seconds: time.sleep(seconds / pace))})

    def hurried(**options: Any) -> Any:
        limits = {name: options[name] / pace for name in ("connect_timeout", "read_timeout") if name in options}
        return botocore.config.Config(**(options | limits))

    account.Config = hurried
