"""Shows the progress of running jobs on standard error: a bar in a terminal, lines in a notebook or a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from tqdm import tqdm

from paretune.core.interruption import Interruption
from paretune.core.secrets import printable
from paretune.specification.container import Event
from paretune.tracking import giving_up_soon


class ProgressPrinter:
    """Shows a progress bar in a terminal, and a line for each evaluation and message everywhere.

    A message that comes from the job itself begins with `job: `.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._bar: tqdm | None = None

    def __call__(self, events: list[Event]) -> None:
        """Show these events."""
        for event in events:
            if self._stream.isatty() and event.total_steps is not None:
                self._draw(event, event.total_steps)
            # The Trainer of a user's own script names its metrics eval_loss and loss.
            evaluation = {
                name[5:]: value for name, value in event.metrics.items() if name.startswith(("eval/", "eval_"))
            }
            evaluation.pop("epoch", None)
            values = [f"{_in_one_line(name)} {value:.4f}" for name, value in evaluation.items()]
            text = f"step {event.step}: {', '.join(values)}" if values else ""
            if event.message:
                text = f"job: {_in_one_line(event.message)}" if event.is_from_job else event.message
            if text:
                tqdm.write(printable(text), file=self._stream)  # above the bar
                self._stream.flush()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _draw(self, event: Event, total_steps: int) -> None:
        if self._bar is None:
            self._bar = tqdm(desc="training", total=total_steps, unit="step", leave=False, file=self._stream)
        self._bar.n = event.step
        if (loss := event.metrics.get("train/loss", event.metrics.get("loss"))) is not None:
            self._bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        self._bar.refresh()


def _in_one_line(text: str) -> str:
    """Return text of a job in one line, so that no further line looks like one of paretune's."""
    return " ".join(text.splitlines())


def say_on_stderr(text: str) -> None:
    """Print `text` on standard error, at once and without control characters."""
    print(printable(text), file=sys.stderr, flush=True)


@contextmanager
def watched(interruption: Interruption, *, quiet: bool = False) -> Iterator[Callable[[list[Event]], None]]:
    """Yield a function that shows events of jobs unless `quiet`. In the block, `interruption` records signals."""
    progress = ProgressPrinter()
    with interruption.listening(), giving_up_soon():
        try:
            yield (lambda _: None) if quiet else progress
        finally:
            progress.close()
