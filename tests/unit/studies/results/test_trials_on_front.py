"""Which trials are on the front, and what their constraints say: by hand."""

from paretune.studies.definition.objectives import violations
from paretune.studies.results.front import trials_on_front
from tests.study_examples import COST_AND_F1, trial_of


def test_the_front_holds_what_no_other_trial_beats_the_cheapest_first() -> None:
    trials = [trial_of(0, 3.0, 0.9), trial_of(1, 1.0, 0.8), trial_of(2, 2.0, 0.7), trial_of(3, 3.0, 0.85)]
    assert [trial.number for trial in trials_on_front(trials, COST_AND_F1)] == [1, 0]


def test_repeats_and_trials_that_lack_an_objective_are_not_on_the_front() -> None:
    trials = [trial_of(0, 3.0, 0.9), trial_of(1, 1.0, 0.95, repeats=0), trial_of(2, 1.0, 0.0, values={"cost_usd": 1.0})]
    assert [trial.number for trial in trials_on_front(trials, COST_AND_F1)] == [0]


def test_a_trial_that_misses_a_constraint_is_not_on_the_front_and_beats_nobody() -> None:
    trials = [trial_of(0, 1.0, 0.9, more={"job_seconds": 99.0}), trial_of(1, 2.0, 0.8, more={"job_seconds": 10.0})]
    result = trials_on_front(trials, COST_AND_F1, {"job_seconds": {"max": 50.0}})
    assert [trial.number for trial in result] == [1]


def test_constraints_are_missed_by_their_distance_and_unmeasured_ones_always() -> None:
    constraints = {"f1": {"min": 0.9}, "cost_usd": {"max": 3.0}, "job_seconds": {"min": 1.0, "max": 2.0}}
    assert violations({"f1": 0.85, "cost_usd": 1.0}, constraints) == {
        "f1 min": 0.9 - 0.85,
        "cost_usd max": -2.0,
        "job_seconds min": 1.0,
        "job_seconds max": 1.0,
    }
