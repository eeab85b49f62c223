"""Interruptions of a command: Ctrl-C, SIGTERM, or the end of the parent process.

MLflow forwards Ctrl-C to the entry point as SIGTERM. But a SIGTERM to `mlflow run` itself ends MLflow at once, and the
entry point continues without a parent (MLflow 3.17.2, observed). So the parent can be watched as well.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from paretune.core.errors import Interrupted


class Interruption:
    """A request to end this command: recorded when it arrives, raised by `check`."""

    def __init__(self, *, watch_parent: bool = False) -> None:
        self._parent = os.getppid() if watch_parent else None
        self.reason: str | None = None
        self.on_check: list[Callable[[], None]] = []  # functions that `check` calls first, such as a heartbeat

    def check(self) -> None:
        """Raise `Interrupted` if a signal has arrived or the watched parent has ended."""
        for act in self.on_check:
            act()
        if self.reason is None and self._parent is not None and os.getppid() != self._parent:
            self.reason = "the process that started this command has ended"
        if self.reason is not None:
            raise Interrupted(self.reason)

    @contextmanager
    def listening(self) -> Iterator["Interruption"]:
        """Record SIGINT and SIGTERM as `reason` inside the block, and restore the previous handlers after it.

        Python handles signals only in the main thread. In any other thread, this method does nothing, and Ctrl-C raises
        KeyboardInterrupt in the main thread.
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
