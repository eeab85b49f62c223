"""The seconds that a training has left, predicted while it runs, compared with what real programs then took."""

import math
import statistics

import pytest

from paretune.core.noise import Z80
from paretune.jobs.remaining import DEVIATION
from paretune.user_code.script_metrics import ProgressReader, totals_in
from tests.support.timed_logs import PROGRAMS, log_of

LONG = ("bars", "factory_sft", "keras_fit", "mnist", "onebar")
"""Programs that train for longer than a second, so that the times in their logs are exact enough."""


def left_at(name: str, share: float) -> tuple[float, float, float]:
    """Return when this share of a training was done, and the seconds that were left then: predicted and true."""
    lines, reader = log_of(name), ProgressReader(totals_in(PROGRAMS[name][0]))
    for at_s, line in lines:
        reader.read(line, at_s)
        counted = reader.progress()
        if counted is not None and counted.total and counted.done >= share * counted.total:
            predicted_s = counted.seconds * (counted.total - counted.done) / counted.done
            return at_s, predicted_s, lines[-1][0] - at_s
    raise AssertionError(f"{name} never gets there")


def test_the_seconds_of_four_in_five_programs_are_known_within_15_percent_after_a_tenth_of_their_steps() -> None:
    errors = []
    for name in PROGRAMS:
        at_s, predicted_s, true_s = left_at(name, 0.1)
        errors.append(abs((at_s + predicted_s) / (at_s + true_s) - 1.0))
    assert sum(error <= 0.15 for error in errors) >= 0.8 * len(errors)


def test_the_deviation_of_the_seconds_left_is_that_of_real_programs() -> None:
    off = [math.log(predicted / true) for _, predicted, true in (left_at(name, 0.1) for name in LONG)]
    assert math.sqrt(statistics.fmean(each**2 for each in off)) == pytest.approx(DEVIATION, abs=0.05)


def test_four_in_five_programs_end_within_the_interval() -> None:
    is_inside = []
    for name in LONG:
        for share in (0.2, 0.3, 0.5, 0.7):
            _, predicted, true = left_at(name, share)
            is_inside.append(abs(math.log(predicted / true)) <= Z80 * DEVIATION * math.sqrt(1.0 - share))
    assert statistics.fmean(is_inside) >= 0.7
