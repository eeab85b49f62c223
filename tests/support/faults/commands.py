"""Commands that tests start, kill and wait for, as forks of a process that has imported everything.

A command starts within a tenth of a second instead of three seconds, so that a test can kill many of them.
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

REPOSITORY = Path(__file__).parents[3]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.support.faults.everything"])


@dataclass
class Forked:
    """A running command.

    Attributes:
        signals: how many signals it received while it ran.
    """

    process: Any
    words: list[str]
    log: Path
    signals: int = 0

    @property
    def text(self) -> str:
        """The text that it has printed so far."""
        return self.log.read_text(errors="replace")

    @property
    def code(self) -> int | None:
        """Its exit code, which is negative if a signal ended it; None while it runs."""
        return self.process.exitcode  # type: ignore[no-any-return]

    def has_ended_within(self, seconds: float) -> bool:
        """Wait for at most this many seconds, and return whether it has ended."""
        self.process.join(seconds)
        return self.code is not None

    def send(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self.code is None:
                os.kill(self.process.pid, number)
                self.signals += 1

    def wait(self, within_s: float = 1200.0) -> int:
        """Wait for its end, and return its exit code. Fail if it does not end in time."""
        if not self.has_ended_within(within_s):
            self.send(signal.SIGABRT)
            raise AssertionError(f"{' '.join(self.words)}: did not end within {within_s:g} s:\n{self.text}")
        return int(self.process.exitcode)


def begin(
    words: list[str], *, cwd: Path, environment: Mapping[str, str], pace: float = 1.0, ahead_s: float = 0.0
) -> Forked:
    """Start a paretune or mlflow command.

    Paretune's clock and boto's pauses and limits run `pace` times as fast as real time. The time of day is `ahead_s`
    ahead.
    """
    log = cwd / f"printed-{len(list(cwd.glob('printed-*'))):04}"
    log.touch()
    with contextlib.chdir(REPOSITORY):  # so that a fork server that is started here finds its modules
        forkserver.ensure_running()
        arguments = (words, str(cwd), dict(environment), str(log), pace, ahead_s)
        process = FORKS.Process(target=_run, args=arguments, daemon=True)
        process.start()
    return Forked(process, words, log)


def _run(words: list[str], cwd: str, environment: dict[str, str], log: str, pace: float, ahead_s: float) -> None:
    """Turn this process into the command. Never returns."""
    os.setsid()
    code: Any = 70
    try:
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (os.open(log, os.O_WRONLY | os.O_APPEND), 1)):
            os.dup2(source, target)
        os.dup2(1, 2)
        sys.stdout = sys.stderr = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  # open as long as the process
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
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


def _change_time(pace: float, ahead_s: float) -> None:
    """Speed up paretune's clock and boto's pauses and limits by `pace`, and shift the time of day by `ahead_s`."""
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
