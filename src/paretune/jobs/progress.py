"""What a running job tells, shown on standard error: a bar in a terminal, lines in a log file or a notebook."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from tqdm import tqdm

from paretune.core.interruption import Interruption
from paretune.spec.container import Event


class ProgressPrinter:
    """A bar in a terminal; in a log file only evaluations and messages, one line each. On standard error by default."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar: tqdm | None = None

    def __call__(self, events: list[Event]) -> None:
        """Show what these events tell."""
        for event in events:
            if self._stream.isatty():
                self._draw(event)
            evaluation = {name: value for name, value in event.metrics.items() if name.startswith("eval/")}
            if event.message or evaluation:
                evaluation.pop("eval/epoch", None)
                shown = [f"{name.removeprefix('eval/')} {value:.4f}" for name, value in evaluation.items()]
                self._line(event.message or f"step {event.step}: {', '.join(shown)}")

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self, event: Event) -> None:
        if event.total_steps is None:
            return
        if self._bar is None:
            self._bar = tqdm(total=event.total_steps, unit="step", desc="training", file=self._stream, leave=False)
        self._bar.update(event.step - self._bar.n)
        if "train/loss" in event.metrics:
            self._bar.set_postfix(loss=f"{event.metrics['train/loss']:.3f}")

    def _line(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)


def say_on_stderr(text: str) -> None:
    """Print one line on standard error, at once."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def watched(interruption: Interruption, *, quiet: bool = False) -> Iterator[Callable[[list[Event]], None]]:
    """What to call with the events of jobs that run in the block; SIGINT and SIGTERM stop them meanwhile."""
    progress = ProgressPrinter()
    with interruption.listening():
        try:
            yield (lambda _: None) if quiet else progress
        finally:
            progress.close()
