"""Progress of running jobs on standard error: a bar in a terminal, lines in a notebook or a log."""

import itertools
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from paretune.core.interruption import Interruption
from paretune.core.untrusted import printable
from paretune.specification.container import Event

_NARROWEST = 40  # columns
_WRAPPED: dict[str, Any] = {"subsequent_indent": "    ", "break_long_words": False, "break_on_hyphens": False}
_QUIET_S = 15.0  # seconds between two lines about the same work in a log file


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which has imported IPython; its terminal has no kernel."""
    ipython = sys.modules.get("IPython")
    return hasattr(None if ipython is None else ipython.get_ipython(), "kernel")


class ProgressPrinter:
    """A bar in a terminal; lines for evaluations and messages everywhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar: Progress | None = None

    def __call__(self, events: list[Event]) -> None:
        """Show these events."""
        for event in events:
            if self._stream.isatty():
                self._draw(event)
            evaluation = {name: value for name, value in event.metrics.items() if name.startswith("eval/")}
            if evaluation:
                evaluation.pop("eval/epoch", None)
                values = [f"{name.removeprefix('eval/')} {value:.4f}" for name, value in evaluation.items()]
                self._line(event.message or f"step {event.step}: {', '.join(values)}")
            elif event.message:
                self._line(event.message)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, event: Event) -> None:
        if event.total_steps is None:
            return
        if self._bar is None:
            self._bar = _bar(self._stream, MofNCompleteColumn(), TextColumn("steps, loss {task.fields[loss]}"))
            self._bar.add_task("training", total=event.total_steps, loss="")
            self._bar.start()
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=event.step)
        if "train/loss" in event.metrics:
            self._bar.update(task, loss=f"{event.metrics['train/loss']:.3f}")
        self._bar.refresh()

    def _line(self, text: str) -> None:
        if self._bar is not None:
            self._bar.console.print(fitted(text, self._stream), markup=False, highlight=False, soft_wrap=True)
        else:
            print(fitted(text, self._stream), file=self._stream, flush=True)


class Work:
    """Work that takes a while: a spinner in a terminal; in a log file a line at its beginning and every _QUIET_S."""

    def __init__(self, title: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._title, self._stream, self._clock = printable(title), stream or sys.stderr, clock
        self._bar: Progress | None = None
        self._printed_at = clock()

    def __enter__(self) -> "Work":
        if self._stream.isatty():
            self._bar = _bar(self._stream)
            self._bar.add_task(self._title, total=None)
            self._bar.start()
        else:
            self._print("")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, detail: str = "") -> None:
        """Show how far the work is, in words."""
        detail = printable(detail)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=f"{self._title}: {detail}" if detail else self._title)
        elif self._clock() - self._printed_at >= _QUIET_S:
            self._print(detail or "still working")

    def _print(self, detail: str) -> None:
        self._printed_at = self._clock()
        print(f"{self._title}: {detail}" if detail else f"{self._title} ...", file=self._stream, flush=True)


def _bar(stream: TextIO, *columns: Any) -> Progress:
    """A moving line that is removed at the end; anything printed meanwhile appears above it."""
    console = Console(file=stream, force_terminal=True)
    all_columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *columns,
        TimeElapsedColumn(),
    )
    # A bar is redrawn when there is news; a spinner, which has none, is redrawn in a thread.
    return Progress(*all_columns, console=console, transient=True, auto_refresh=not columns, redirect_stdout=False)


def say_on_stderr(text: str) -> None:
    """Print a text on standard error, at once."""
    print(fitted(text, sys.stderr), file=sys.stderr, flush=True)


def fitted(text: str, stream: TextIO) -> str:
    """The text without control characters, wrapped to the width of a terminal; not wrapped for any other stream."""
    text = printable(text)
    if not stream.isatty():
        return text
    width = max(_NARROWEST, shutil.get_terminal_size().columns)
    lines = [textwrap.wrap(line, width, **_WRAPPED) or [""] for line in text.splitlines()]
    return "\n".join(itertools.chain.from_iterable(lines))


@contextmanager
def watched(interruption: Interruption, *, quiet: bool = False) -> Iterator[Callable[[list[Event]], None]]:
    """A function that shows events of the jobs that run in the block; SIGINT and SIGTERM stop the jobs meanwhile."""
    progress = ProgressPrinter()
    with interruption.listening():
        try:
            yield (lambda _: None) if quiet else progress
        finally:
            progress.close()
