"""What a job that searches trains next."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from paretune.studies.search.curves import RUNGS, CurveState, Plan, forecast, next_entries

TOTAL = 80


def state(
    key: str, *, usd: float = 1.0, steps: int = 0, final: float | None = None, point: tuple[float, ...] = ()
) -> CurveState:
    """A trial after so many steps, whose curve rises by 0.1 to its final value, most of it early."""
    shares = [share for share in RUNGS if steps >= share * TOTAL]
    curve = tuple((share, final - 0.1 * (1 - share) / (1 + 3 * share)) for share in shares) if final is not None else ()
    return CurveState(
        key=key, usd_per_step=0.01, total_steps=TOTAL, own_job_usd=usd, steps=steps, curve=curve, point=point
    )


def play(finals: dict[str, float], usd: dict[str, float]) -> dict[str, int]:
    """Steps that each trial has done when the rule has nothing left to train."""
    steps = dict.fromkeys(finals, 0)
    for _ in range(200):
        states = {key: state(key, usd=usd[key], steps=steps[key], final=finals[key]) for key in finals}
        trials = [states[key] for key in finals if steps[key]]
        plan = next_entries(trials, [states[key] for key in finals if not steps[key]], [], ahead=2)
        if plan.is_done:
            return steps
        key, step = plan.entries[0]
        assert step > steps[key]
        steps[key] = step
    raise AssertionError("the rule does not end")


def test_begins_the_first_candidates_when_nothing_has_run() -> None:
    plan = next_entries([], [state("a"), state("b"), state("c")], [], ahead=2)

    first = int(RUNGS[0] * TOTAL)
    assert plan == Plan(entries=(("a", first), ("b", first)), begun=("a", "b"))


def test_begins_no_further_trials_while_the_first_have_not_been_measured() -> None:
    trials, candidates = [state(key) for key in "abcd"], [state(key) for key in "efgh"]

    assert next_entries(trials, candidates, [], ahead=4).begun == ()


def test_is_done_without_trials_and_candidates() -> None:
    assert next_entries([], [], []).is_done


def test_the_best_of_equal_cost_is_trained_to_its_end_and_the_worst_is_not() -> None:
    finals = {"a": 0.7, "b": 0.9, "c": 0.6, "d": 0.5}

    steps = play(finals, dict.fromkeys(finals, 1.0))

    assert steps["b"] == TOTAL
    assert steps["d"] < TOTAL / 2


def test_a_cheap_configuration_survives_beside_a_better_and_dearer_one() -> None:
    finals = {"dear": 0.9, "cheap": 0.85, "worse": 0.6, "worst": 0.5}

    steps = play(finals, {"dear": 4.0, "cheap": 1.0, "worse": 4.0, "worst": 4.0})

    assert steps["dear"] == steps["cheap"] == TOTAL


def test_a_trial_that_cannot_reach_the_front_is_given_up() -> None:
    trials = [state("a", steps=TOTAL, final=0.9), state("b", steps=TOTAL, final=0.89)]

    plan = next_entries([*trials, state("c", usd=2.0, steps=40, final=0.3)], [], [])

    assert plan.is_done
    assert plan.given_up == {"c"}


def test_the_front_of_other_configurations_counts() -> None:
    trials = [state(key, usd=2.0, steps=40, final=0.7 + 0.001 * number) for number, key in enumerate("abcd")]

    assert not next_entries(trials, [], []).is_done
    assert next_entries(trials, [], [(1.0, 0.95)]).is_done


def test_what_was_given_up_is_not_continued() -> None:
    trials = [replace(state("a", steps=10, final=0.9), is_given_up=True)]

    assert next_entries(trials, [], []).is_done


def test_candidates_near_the_best_settings_begin_first() -> None:
    rates = {"a": 0.0, "b": 2.0, "c": 4.0, "d": 6.0}
    finals = {"a": 0.9, "b": 0.85, "c": 0.7, "d": 0.6}
    trials = [state(key, steps=TOTAL, final=finals[key], point=(rate,)) for key, rate in rates.items()]

    plan = next_entries(trials, [state("far", point=(7.0,)), state("near", point=(-1.0,))], [], ahead=1)

    assert plan.begun == ("near",)


def test_plans_no_more_entries_than_it_may() -> None:
    candidates: Sequence[CurveState] = [state(str(number)) for number in range(9)]

    assert len(next_entries([], candidates, [], ahead=3).entries) == 3


def test_forecasts_learn_what_remains_of_a_curve_from_curves_that_have_ended() -> None:
    ended = [state(key, steps=TOTAL, final=value) for key, value in {"a": 0.8, "b": 0.75, "c": 0.7, "d": 0.82}.items()]
    paused = state("e", steps=40, final=0.78)

    (mean,), (deviation,) = forecast([*ended, paused], [paused], [1.0])

    assert mean == pytest.approx(0.78, abs=0.008)  # its newest value is 0.76
    assert 0.0 < deviation < 0.03


def test_intervals_narrow_along_a_curve() -> None:
    ended = [state(key, steps=TOTAL, final=value) for key, value in {"a": 0.8, "b": 0.75, "c": 0.7}.items()]
    paused = [state("e", steps=steps, final=0.78) for steps in (10, 40, TOTAL)]

    deviations = [float(forecast([*ended, trial], [trial], [1.0])[1][0]) for trial in paused]

    assert deviations == sorted(deviations, reverse=True)


def test_a_training_that_diverged_does_not_spoil_the_forecasts_of_others() -> None:
    ended = [state(key, steps=TOTAL, final=value) for key, value in {"a": 0.8, "b": 0.79, "c": 0.78}.items()]
    paused = state("e", steps=40, final=0.79)

    (mean,), _ = forecast([*ended, state("diverged", steps=TOTAL, final=0.05), paused], [paused], [1.0])

    assert mean == pytest.approx(0.79, abs=0.03)


def test_one_measurement_is_enough_for_a_forecast() -> None:
    trial = state("a", steps=10, final=0.8)

    mean, deviation = forecast([trial], [trial, state("b")], [1.0, 1.0])

    assert np.isfinite(mean).all()
    assert all(math.isfinite(value) and value > 0 for value in deviation)


@pytest.mark.parametrize(("steps", "total"), [(-1, 10), (11, 10), (0, 0)])
def test_steps_beyond_the_training_are_refused(steps: int, total: int) -> None:
    with pytest.raises(ValueError, match="steps must be 0 to total_steps"):
        CurveState(key="a", usd_per_step=0.0, total_steps=total, own_job_usd=1.0, steps=steps)
