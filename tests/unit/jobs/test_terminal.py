"""What a running job shows."""

import io

from paretune.jobs.terminal import ProgressPrinter
from paretune.specification.container import Event

EVENTS = [
    Event(time=1.0, step=1, metrics={"train/loss": 0.7}, total_steps=4),
    Event(time=2.0, step=2, metrics={"train/loss": 0.5}, total_steps=4),
    Event(time=3.0, step=2, metrics={"eval/f1": 0.81239, "eval/loss": 0.4, "eval/epoch": 0.5}, total_steps=4),
    Event(time=4.0, step=2, message="continuing from checkpoint-2", is_from_job=True),
    Event(time=4.5, step=2, message="reading \x1b]0;title\x07[/x].gnp\u202efdp[/]"),
    Event(time=5.0, step=4, metrics={"train/loss": 0.25}, total_steps=4),
]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_steps_and_loss_and_names_that_look_like_its_commands_as_they_are() -> None:
    stream = Terminal()
    progress = ProgressPrinter(stream)
    progress(EVENTS)

    output = stream.getvalue()
    assert "training" in output
    assert "4/4" in output
    assert "loss 0.250" in output
    assert "step 2: f1 0.8124, loss 0.4000\n" in output
    assert "job: continuing from checkpoint-2\n" in output
    assert r"reading \x1b]0;title\x07[/x].gnp\u202efdp[/]" in output
    progress.close()


def test_a_file_gets_a_line_for_each_evaluation_and_message_and_no_bar() -> None:
    stream = io.StringIO()
    progress = ProgressPrinter(stream)
    progress(EVENTS)
    progress.close()

    evaluated, *messages = stream.getvalue().splitlines()
    assert evaluated == "step 2: f1 0.8124, loss 0.4000"
    assert messages == ["job: continuing from checkpoint-2", r"reading \x1b]0;title\x07[/x].gnp\u202efdp[/]"]


def test_no_message_of_a_job_begins_a_line_that_looks_like_one_of_paretune() -> None:
    stream = io.StringIO()
    messages = ("done\npaid twice", "done\rpaid twice", "done\x85paid twice")
    ProgressPrinter(stream)([Event(time=1.0, step=1, message=text, is_from_job=True) for text in messages])

    assert stream.getvalue().splitlines() == ["job: done paid twice"] * 3
