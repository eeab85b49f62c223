"""When a running job is hopeless: against curves and sums worked out by hand."""

from dataclasses import replace

import pytest

from paretune.specification.container import Event
from paretune.studies.definition.quality import F1
from paretune.studies.search.joint import is_hopeless, optimistic_end
from paretune.studies.search.trial_job import TrainingProgress

FINISHED = [
    [(0.5, 0.6), (1.0, 0.8)],
    [(0.5, 0.7), (1.0, 0.75)],
    [(0.5, 0.5), (1.0, 0.6)],
]
COST_AND_F1 = {"cost_usd": "minimize", "f1": "maximize"}


def test_the_optimistic_end_is_the_largest_gain_that_any_job_has_made_and_two_deviations_of_noise() -> None:
    assert optimistic_end([(0.5, 0.4)], FINISHED, replace(F1, noise=0.01)) == pytest.approx(0.4 + 0.2 + 0.02)


def test_curves_are_read_between_their_points() -> None:
    # At 0.75 of the training: 0.7, 0.725 and 0.55; the largest gain from there is 0.1.
    assert optimistic_end([(0.75, 0.4)], FINISHED, replace(F1, noise=0.0)) == pytest.approx(0.5)


def test_the_gain_is_counted_to_the_last_point_of_a_curve() -> None:
    longer = [[(0.5, 0.4), (0.75, 0.5), (1.0, 0.8)]] * 3
    assert optimistic_end([(0.5, 0.1)], longer, replace(F1, noise=0.0)) == pytest.approx(0.5)


def test_a_curve_that_only_falls_may_at_best_stay_where_it_is() -> None:
    falling = [[(0.5, 0.9), (1.0, 0.8)]] * 3
    assert optimistic_end([(0.5, 0.4)], falling, replace(F1, noise=0.0)) == pytest.approx(0.4)


def test_no_end_is_above_one() -> None:
    assert optimistic_end([(0.5, 0.95)], FINISHED, replace(F1, noise=0.01)) == 1.0


@pytest.mark.parametrize(
    ("curve", "finished"),
    [
        ([], FINISHED),
        ([(0.5, 0.4)], FINISHED[:2]),
        ([(0.4, 0.4)], FINISHED),  # none of them had been measured so early
        ([(1.1, 0.4)], FINISHED),  # nor so late
        ([(0.5, 0.4)], [*FINISHED[:2], [(0.5, 0.5)]]),  # a curve that was cut off has no end
    ],
)
def test_with_fewer_than_three_curves_nothing_is_known(
    curve: list[tuple[float, float]], finished: list[list[tuple[float, float]]]
) -> None:
    assert optimistic_end(curve, finished, replace(F1, noise=0.0)) is None


def test_a_job_is_hopeless_when_a_point_of_the_front_is_as_good_in_everything() -> None:
    front = [{"cost_usd": 1.0, "f1": 0.8}, {"cost_usd": 3.0, "f1": 0.9}]

    assert is_hopeless({"cost_usd": 1.0, "f1": 0.8}, front, COST_AND_F1)
    assert is_hopeless({"cost_usd": 4.0, "f1": 0.85}, front, COST_AND_F1)
    assert not is_hopeless({"cost_usd": 2.0, "f1": 0.85}, front, COST_AND_F1)
    assert not is_hopeless({"cost_usd": 0.5, "f1": 0.1}, front, COST_AND_F1)


def test_a_job_at_the_end_of_the_only_front_is_judged_in_both_directions() -> None:
    assert is_hopeless({"f1": 0.8}, [{"f1": 0.8}], {"f1": "maximize"})
    assert not is_hopeless({"f1": 0.81}, [{"f1": 0.8}], {"f1": "maximize"})
    assert is_hopeless({"perplexity": 2.0}, [{"perplexity": 2.0}], {"perplexity": "minimize"})
    assert not is_hopeless({"perplexity": 1.9}, [{"perplexity": 2.0}], {"perplexity": "minimize"})
    assert not is_hopeless({"f1": 0.1}, [], {"f1": "maximize"})


def test_a_job_of_which_an_objective_is_unknown_is_never_hopeless() -> None:
    assert is_hopeless({"f1": 0.1}, [{"cost_usd": 1.0, "f1": 0.8}], COST_AND_F1) is False


def _progress(*events: Event) -> TrainingProgress:
    progress = TrainingProgress()
    for event in events:
        progress.add(event)
    return progress


def test_start_up_is_not_taken_for_training() -> None:
    # 100 s of start-up, then a quarter of the steps in 50 s: 150 s are left.
    progress = _progress(
        Event(time=1000.0, step=0, message="starting"),
        Event(time=1100.0, step=0, total_steps=100, message="training"),
        Event(time=1150.0, step=25, total_steps=100),
    )

    assert progress.seconds_left() == pytest.approx(150.0)
    assert progress.last == 1150.0


def test_an_event_that_is_told_again_changes_nothing() -> None:
    report = [Event(time=0.0, step=0), Event(time=50.0, step=50, total_steps=100)]
    later = Event(time=80.0, step=50, total_steps=100)
    progress = _progress(*report, report[1], later, Event(time=90.0, step=0, message="restarted"))

    assert progress.seconds_left() == pytest.approx(50.0)
    assert progress.last == 50.0


def test_the_first_step_counts() -> None:
    progress = _progress(Event(time=0.0, step=0), Event(time=2.0, step=1, total_steps=10))
    assert progress.seconds_left() == pytest.approx(18.0)


def test_steps_beyond_the_last_one_leave_no_seconds() -> None:
    assert _progress(Event(time=0.0, step=0), Event(time=50.0, step=11, total_steps=10)).seconds_left() == 0.0


def test_without_a_beginning_or_a_step_nothing_is_known() -> None:
    assert _progress().seconds_left() is None
    assert _progress().last == 0.0
    assert _progress(Event(time=0.0, step=0), Event(time=1.0, step=5)).seconds_left() is None  # of how many?
    assert _progress(Event(time=1.0, step=0)).seconds_left() is None
    assert _progress(Event(time=1.0, step=5, total_steps=10)).seconds_left() is None
