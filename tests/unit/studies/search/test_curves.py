"""What a job that searches trains next."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from paretune.studies.search.curves import RUNGS, CurveState, Plan, next_entries

TOTAL = 80


def state(key: str, *, usd: float = 1.0, steps: int = 0, value: float | None = None) -> CurveState:
    curve = ((steps / TOTAL, value),) if value is not None else ()
    return CurveState(key=key, usd_per_step=0.01, total_steps=TOTAL, own_job_usd=usd, steps=steps, curve=curve)


def play(finals: dict[str, float], usd: dict[str, float], *, ahead: int = 2) -> dict[str, int]:
    """Steps that each trial has done when the rule has nothing left to train; curves rise to their final value."""
    trials: list[CurveState] = []
    candidates = [state(key, usd=usd[key]) for key in finals]
    for _ in range(200):
        plan = next_entries(trials, candidates, [], ahead=ahead)
        if plan.is_done:
            return {trial.key: trial.steps for trial in trials}
        key, steps = plan.entries[0]
        by_key = {trial.key: trial for trial in [*trials, *candidates]}
        before, share = by_key[key], steps / TOTAL
        assert steps > before.steps
        after = replace(before, steps=steps, curve=(*before.curve, (share, finals[key] - 0.1 * (1 - share))))
        trials = [*(trial for trial in trials if trial.key != key), after]
        candidates = [trial for trial in candidates if trial.key != key]
    raise AssertionError("the rule does not end")


def test_begins_the_first_candidates_when_nothing_has_run() -> None:
    plan = next_entries([], [state("a"), state("b"), state("c")], [], ahead=2)

    first = int(RUNGS[0] * TOTAL)
    assert plan == Plan(entries=(("a", first), ("b", first)), begun=("a", "b"))


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


def test_trials_that_rest_are_given_up_at_the_end() -> None:
    better = replace(state("a", steps=TOTAL), curve=((RUNGS[0], 0.8), (1.0, 0.9)))
    trials = [better, state("b", steps=10, value=0.1)]

    plan = next_entries(trials, [], [])

    assert plan.is_done
    assert plan.given_up == {"b"}


def test_what_was_given_up_is_not_continued() -> None:
    trials = [replace(state("a", steps=10, value=0.9), is_given_up=True)]

    assert next_entries(trials, [], []).is_done


@pytest.mark.parametrize(("steps", "total"), [(-1, 10), (11, 10), (0, 0)])
def test_steps_beyond_the_training_are_refused(steps: int, total: int) -> None:
    with pytest.raises(ValueError, match="steps must be 0 to total_steps"):
        CurveState(key="a", usd_per_step=0.0, total_steps=total, own_job_usd=1.0, steps=steps)


def test_plans_no_more_entries_than_it_may() -> None:
    candidates: Sequence[CurveState] = [state(str(number)) for number in range(9)]

    assert len(next_entries([], candidates, [], ahead=3).entries) == 3
