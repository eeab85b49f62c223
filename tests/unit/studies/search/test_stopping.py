"""When a study ends by itself: on trials made up so that it is known what they add."""

from typing import Any

import pytest

from paretune.ledger.trial_entry import TrialStatus
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Choices
from paretune.studies.results.trials import Trial
from paretune.studies.search.stopping import FEWEST_HALVES, PATIENCE, costs_too_much, has_stalled
from tests.study_examples import COST_AND_F1, failed, trial_of


def study(**terms: Any) -> StudyFile:
    standard: dict[str, Any] = {
        "name": "one",
        "job": {},
        "search": {"learning_rate": Choices(values=(1e-5, 1e-4))},
        "objectives": COST_AND_F1,
        "n_trials": 100,
    }
    return StudyFile(**{**standard, **terms})


def flat(count: int, first: int = 0) -> list[Trial]:
    """Trials none of which is better than the one before."""
    return [trial_of(first + number, 10.0, 0.9) for number in range(count)]


def test_a_front_that_has_not_grown_for_long_has_stalled() -> None:
    assert has_stalled(flat(25), study()) == ""
    assert "the last 25 trials added nothing" in has_stalled(flat(26), study())


def test_that_a_front_has_stalled_is_told_without_comparing_all_points_with_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("paretune.studies.results.front.ranks", None)  # it takes 100 MB of 10,000 points
    assert has_stalled(flat(26), study())


@pytest.mark.parametrize(("cost", "f1"), [(5.0, 0.9), (10.0, 0.95), (2.0, 0.5)])
def test_a_late_trial_that_adds_to_the_front_keeps_the_study_going(cost: float, f1: float) -> None:
    late = trial_of(90, cost, f1)
    assert has_stalled([*flat(PATIENCE), late, *flat(PATIENCE - 1, 100)], study()) == ""
    assert has_stalled([*flat(PATIENCE), late, *flat(PATIENCE, 100)], study())


@pytest.mark.parametrize(("cost", "f1"), [(9.99, 0.9), (10.0, 0.901), (12.0, 0.9)])
def test_what_is_better_by_noise_alone_adds_nothing(cost: float, f1: float) -> None:
    assert has_stalled([*flat(PATIENCE), trial_of(90, cost, f1)], study())


def test_trials_that_run_out_of_memory_add_nothing_and_failed_ones_do_not_count() -> None:
    full = [failed(100 + number, TrialStatus.OUT_OF_MEMORY, "too large") for number in range(PATIENCE)]
    broken = [failed(100 + number, TrialStatus.FAILED, "broken") for number in range(PATIENCE)]
    assert has_stalled([*flat(1), *full], study())
    assert has_stalled(full, study()) == ""
    assert not has_stalled([*flat(1), *broken], study())


def test_a_trial_that_misses_a_constraint_adds_nothing() -> None:
    cheap = trial_of(90, 1.0, 0.3)
    trials = [*flat(PATIENCE), cheap]
    assert not has_stalled(trials, study())
    assert has_stalled(trials, study(constraints={"f1": {"min": 0.8}}))


def halves(first_usd: float, second_usd: float, second_f1: float = 0.9) -> list[Trial]:
    """Two halves of trials; the recommended run of each costs so much."""
    count = FEWEST_HALVES
    first = [trial_of(number, first_usd, 0.9) for number in range(count)]
    return first + [trial_of(count + number, second_usd, second_f1) for number in range(count)]


def test_searching_on_costs_too_much_once_it_saves_less_than_it_costs() -> None:
    trials = halves(12.0, 10.0)  # the second half has cost 80 dollars and saves 2 a run
    assert costs_too_much(trials, study(later_runs=40)) == ""
    message = costs_too_much(trials, study(later_runs=39))
    assert "the last 8 trials have cost 80 USD and saved 78 USD over 39 later runs" in message


def test_a_better_model_is_worth_any_price() -> None:
    assert costs_too_much(halves(12.0, 13.0, second_f1=0.95), study(later_runs=1)) == ""
    assert costs_too_much(halves(12.0, 13.0, second_f1=0.901), study(later_runs=1))


def test_without_later_runs_or_with_few_trials_nothing_is_said() -> None:
    trials = halves(12.0, 12.0)
    assert costs_too_much(trials, study(later_runs=0)) == ""
    assert costs_too_much(trials[1:], study(later_runs=1)) == ""
    assert not costs_too_much(
        [failed(number, TrialStatus.FAILED, "broken") for number in range(40)], study(later_runs=1)
    )


def test_a_small_saving_is_multiplied_by_the_later_runs_as_it_is() -> None:
    assert "saved 60 USD" in costs_too_much(halves(10.5, 10.0), study(later_runs=120))  # half a dollar a run
    assert "saved 0 USD" in costs_too_much(halves(10.0, 10.0), study(later_runs=120))


def test_a_trial_whose_price_is_not_known_adds_no_dollars() -> None:
    unpriced = trial_of(99, 0.0, 0.0, values={}, cost_usd=None, status=TrialStatus.FAILED)
    message = costs_too_much([*halves(12.0, 10.0), unpriced], study(later_runs=39))
    assert "the last 9 trials have cost 80 USD" in message


def test_completed_trials_in_which_an_objective_was_not_measured_do_not_fill_the_halves() -> None:
    count = 2 * FEWEST_HALVES
    unmeasured = [trial_of(count + number, 10.0, 0.9, values={"cost_usd": 10.0}) for number in range(count)]
    assert costs_too_much([*halves(12.0, 12.0)[1:], *unmeasured], study(later_runs=1)) == ""


def test_a_study_without_an_objective_that_measures_the_model_ends_by_its_dollars_too() -> None:
    objectives = {"cost_usd": "minimize", "job_seconds": "minimize"}
    trials = [
        trial_of(number, 10.0, 0.9, values={"cost_usd": 10.0, "job_seconds": 100.0})
        for number in range(2 * FEWEST_HALVES)
    ]
    assert "saved 0 USD" in costs_too_much(trials, study(objectives=objectives, later_runs=1))


@pytest.mark.parametrize("priced", [range(FEWEST_HALVES), range(FEWEST_HALVES, 2 * FEWEST_HALVES)])
def test_without_the_price_of_a_recommended_run_nothing_is_said(priced: range) -> None:
    # The second half is faster: the run recommended before it is of the first half, the one recommended now of it.
    trials = [
        trial_of(
            number,
            10.0,
            0.9,
            values={"f1": 0.9, "job_seconds": 100.0 if number < FEWEST_HALVES else 50.0},
            cost_usd=10.0 if number in priced else None,
        )
        for number in range(2 * FEWEST_HALVES)
    ]
    unfinished = failed(99, TrialStatus.FAILED, "broken", cost=5.0)
    objectives = {"f1": "maximize", "job_seconds": "minimize"}
    assert costs_too_much([*trials, unfinished], study(objectives=objectives, later_runs=1)) == ""
