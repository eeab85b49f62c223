"""How far a training has come, read from the lines that real programs have printed."""

from typing import Any

import pytest

from paretune.specification.container import Progress
from paretune.user_code.script_metrics import ProgressReader, totals_in
from tests.support.timed_logs import PROGRAMS, log_of


def read(lines: list[tuple[float, str]], arguments: dict[str, Any] | None = None) -> ProgressReader:
    reader = ProgressReader(totals_in(arguments or {}))
    for at_s, line in lines:
        reader.read(line, at_s)
    return reader


def shown(reader: ProgressReader, now_s: float | None = None) -> Progress | None:
    counted = reader.progress(now_s)
    return None if counted is None else Progress(**counted._asdict())


def known(reader: ProgressReader, now_s: float | None = None) -> Progress:
    progress = shown(reader, now_s)
    assert progress is not None
    return progress


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_counter_of_a_real_program_is_read_with_its_total(name: str) -> None:
    arguments, kind, total = PROGRAMS[name]
    lines = log_of(name)

    shares = []
    for end in range(1, len(lines) + 1):
        progress = shown(read(lines[:end], arguments))
        if progress is not None:
            assert progress.evidence.startswith(kind)
            assert progress.total == total
            shares.append(progress.share or 0.0)
    assert shares == sorted(shares)
    assert shares[0] <= 0.25
    assert shares[-1] >= 0.9
    assert len(shares) >= 4


def test_seconds_left_follow_from_the_speed_after_the_first_epochs_not_from_the_start() -> None:
    ends = [60.0, 65.0, 70.0, 75.0, 80.0]  # the program starts, and its first epoch compiles
    reader = read([(at_s, f"Epoch {epoch}/10 - loss: 0.{epoch}") for epoch, at_s in enumerate(ends, start=1)])

    progress = known(reader)
    assert (progress.done, progress.total, progress.evidence) == (5.0, 10.0, "epoch 5 of 10")
    assert progress.share == 0.5
    assert progress.left_s == pytest.approx(25.0)


def test_the_total_is_an_argument_of_the_training() -> None:
    lines = [(float(step), f"iter {step}: loss 0.5, time 12.00ms") for step in range(0, 60, 10)]

    assert known(read(lines, {"max-iters": "200"})).left_s == pytest.approx(150.0)
    without = known(read(lines, {"max_steps": -1}))
    assert (without.done, without.total, without.share, without.left_s) == (50.0, None, None, None)


def test_a_counter_that_stands_still_takes_time() -> None:
    reader = read([(10.0 * step, f"step {step}/100") for step in range(1, 11)])

    assert known(reader, now_s=110.0).left_s == pytest.approx(900.0)
    stalled = known(reader, now_s=400.0)
    assert stalled.evidence == "step 10 of 100, standing still"
    assert stalled.left_s == pytest.approx(9.0 * (100.0 + 300.0))


def test_a_training_that_restarts_is_counted_anew() -> None:
    first = [(float(step), f"step {step}/100") for step in range(1, 41)]
    second = [(100.0 + 2.0 * step, f"step {step}/100") for step in range(1, 11)]

    progress = known(read([*first, *second]))
    assert progress.done == 10
    assert progress.left_s == pytest.approx(180.0)


def test_a_training_that_counts_down_never_seems_nearly_done() -> None:
    reader = read([(float(at_s), f"step {100 - at_s}/100") for at_s in range(1, 90)])

    assert reader.progress() is None


def test_a_total_that_is_passed_is_no_total() -> None:
    reader = read([(float(step), f"step {step}/20") for step in range(1, 31)])

    progress = known(reader)
    assert (progress.done, progress.total, progress.left_s) == (30.0, None, None)


def test_bars_of_downloads_and_evaluations_are_not_the_training() -> None:
    lines = [(0.1, "vocab.txt: 100%|##########| 232k/232k [00:00<00:00]"), (0.2, "Map:   0%|     | 0/500 [00:00<?]")]
    lines += [(0.5, "Map: 100%|#####| 500/500 [00:00<00:00]")]
    for step in range(0, 50, 5):
        lines.append((1.0 + step, f" {step}%|#    | {step}/200 [00:00<00:00, 1.0it/s]"))
        lines.append((1.5 + step, "Evaluating:  50%|#####     | 2/4 [00:00<00:00]"))
        lines.append((1.6 + step, "Evaluating: 100%|##########| 4/4 [00:00<00:00]"))

    progress = known(read(lines))
    assert (progress.done, progress.total) == (45.0, 200.0)
    assert progress.left_s == pytest.approx(155.0)


@pytest.mark.parametrize(
    "line",
    [
        "loss 0.41, accuracy 0.9",
        "2026-11-30 14:02:11 INFO read 10/10 files from s3://bucket/epoch-2/part-3",
        "accuracy after 5 epochs: 0.9",
        "Test set: Average loss: 0.0417, Accuracy: 9859/10000 (99%)",
        '{"loss": 0.4, "learning_rate": 0.1}',
    ],
)
def test_a_program_without_a_counter_says_nothing(line: str) -> None:
    assert read([(1.0, line), (2.0, line), (3.0, line)]).progress(now_s=4.0) is None
