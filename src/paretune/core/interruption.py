"""Ctrl-C, SIGTERM and a dead parent, seen as one thing: a reason to stop what was started.

MLflow forwards Ctrl-C to the entry point as SIGTERM, but a SIGTERM sent to `mlflow run` itself ends MLflow at once and
leaves the entry point alive as an orphan (MLflow 3.17.2, observed). So the parent is watched as well.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from paretune.core.errors import Interrupted


class Interruption:
    """Remembers that somebody wants this command to end; `check` raises at a safe moment.

    Args:
        watch_parent: also count the death of the parent process.
    """

    def __init__(self, *, watch_parent: bool = False) -> None:
        self._parent = os.getppid() if watch_parent else None
        self.reason: str | None = None

    def check(self) -> None:
        """Raise `Interrupted` if a signal has arrived or the watched parent has gone."""
        if self.reason is None and self._parent is not None and os.getppid() != self._parent:
            self.reason = "the process that started this command has ended"
        if self.reason is not None:
            raise Interrupted(self.reason)

    @contextmanager
    def listening(self) -> Iterator["Interruption"]:
        """Turn SIGINT and SIGTERM into `reason` while the block runs; the previous handlers come back after it.

        Python delivers signals to the main thread only: in another thread this changes nothing, and Ctrl-C is the main
        thread's KeyboardInterrupt.
        """
        if threading.current_thread() is not threading.main_thread():
            yield self
            return

        def remember(signum: int, _frame: FrameType | None) -> None:
            self.reason = f"interrupted by {signal.Signals(signum).name}"

        previous = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
