"""Progress of running jobs on standard error: a bar in a terminal, lines in a notebook or a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from paretune.core.clock import Interruption
from paretune.core.untrusted import printable
from paretune.specification.container import Event


class ProgressPrinter:
    """A bar in a terminal; lines for evaluations and messages everywhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._console = _console(stream)
        self._bar: Progress | None = None

    def __call__(self, events: list[Event]) -> None:
        """Show these events."""
        for event in events:
            if self._console.is_terminal and event.total_steps is not None:
                self._draw(event, event.total_steps)
            evaluation = {name: value for name, value in event.metrics.items() if name.startswith("eval/")}
            evaluation.pop("eval/epoch", None)
            values = [f"{name.removeprefix('eval/')} {value:.4f}" for name, value in evaluation.items()]
            if text := event.message or (f"step {event.step}: {', '.join(values)}" if values else ""):
                _print(self._console, text)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, event: Event, total_steps: int) -> None:
        if self._bar is None:
            steps = (MofNCompleteColumn(), TextColumn("steps, loss {task.fields[loss]}"), TimeElapsedColumn())
            # It is redrawn when there is news; anything printed meanwhile appears above it.
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                *steps,
                console=self._console,
                transient=True,
                auto_refresh=False,
                redirect_stdout=False,
            )
            self._bar.add_task("training", total=total_steps, loss="")
            self._bar.start()
        (task,) = self._bar.task_ids
        self._bar.update(task, completed=event.step)
        if (loss := event.metrics.get("train/loss")) is not None:
            self._bar.update(task, loss=f"{loss:.3f}")
        self._bar.refresh()


def say_on_stderr(text: str) -> None:
    """Print a text on standard error, at once, without control characters."""
    _print(_console(None), text)


def _console(stream: TextIO | None) -> Console:
    stream = stream or sys.stderr
    return Console(file=stream, force_terminal=stream.isatty())


def _print(console: Console, text: str) -> None:
    """Print between the edges of a terminal; lines of a log file, which is searched by line, are not broken."""
    console.print(Text(printable(text)), soft_wrap=not console.is_terminal)


@contextmanager
def watched(interruption: Interruption, *, quiet: bool = False) -> Iterator[Callable[[list[Event]], None]]:
    """A function that shows events of the jobs that run in the block; SIGINT and SIGTERM stop the jobs meanwhile."""
    progress = ProgressPrinter()
    with interruption.listening():
        try:
            yield (lambda _: None) if quiet else progress
        finally:
            progress.close()
