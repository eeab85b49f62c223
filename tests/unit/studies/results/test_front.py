"""Configurations of a study, their ranks and what beats them, and the errors of their means."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from paretune.specification.metrics import OF_THE_CLUSTER
from paretune.studies.results.configurations import model_inputs
from paretune.studies.results.figures import Figures
from paretune.studies.results.front import StudyFront, hypervolume
from paretune.studies.results.trials import Trial
from paretune.studies.sampler.candidates import Jobs, Space
from paretune.studies.sampler.decision import expected_improvement
from paretune.studies.sampler.process import Axis
from paretune.studies.trial_status import TrialStatus
from tests.support.study_examples import COST_AND_F1, failed, many_trials, trial_of

pairs = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12)


def brute_ranks(points: list[tuple[int, int]]) -> list[int]:
    """Return ranks by definition: one more than the worst rank of what dominates a point (lower cost, higher speed)."""

    def dominates(item: tuple[int, int], other: tuple[int, int]) -> bool:
        return item[0] <= other[0] and item[1] >= other[1] and item != other

    def rank(point: tuple[int, int]) -> int:
        return max((rank(other) + 1 for other in points if dominates(other, point)), default=0)

    return [rank(point) for point in points]


@given(pairs)
def test_ranks_are_those_of_the_definition(points: list[tuple[int, int]]) -> None:
    speed = "throughput_samples_per_second"
    trials = [trial_of(number, cost, 0.9, more={speed: value}) for number, (cost, value) in enumerate(points)]
    front = StudyFront.of(trials, {"cost_usd": "minimize", speed: "maximize"}, {})

    assert [front.rank(trial) for trial in trials] == brute_ranks(points)


def test_repeats_are_merged_into_their_first_trial() -> None:
    first = trial_of(0, 2.0, 0.90)
    trials = [
        first,
        trial_of(1, 2.2, 0.92, repeats=0),
        trial_of(2, 1.0, 0.95),
        trial_of(3, 2.1, 0.94, repeats=0, given=first.given),
    ]
    front = StudyFront.of(trials, COST_AND_F1, {})

    merged, alone = front.points
    assert (merged.number, len(merged.trials), alone.number) == (0, 3, 2)
    assert merged.means["f1"] == pytest.approx(0.92)
    assert merged.means["cost_usd"] == pytest.approx(2.1)
    assert merged.errors["f1"] == pytest.approx(alone.errors["f1"] / 3**0.5)
    assert [front.rank(trial) for trial in trials] == [1, 1, 0, 1]


def test_replicates_of_a_designed_experiment_are_runs_of_one_configuration() -> None:
    given = {"learning_rate": "1e-5", "instance_type": "ml.g5.xlarge"}
    trials = [
        trial_of(n, 1.0, 0.90 + n / 100, point={"row": n + 1}, given=given | ({"seed": f"{42 + n}"} if n else {}))
        for n in range(3)
    ]
    (point,) = StudyFront.of([failed(9, TrialStatus.FAILED, "broken"), *trials], COST_AND_F1, {}).points

    assert (point.number, len(point.trials)) == (0, 3)
    assert point.means["f1"] == pytest.approx(0.91)
    assert point.errors.keys() == {"cost_usd", "f1"}


def test_no_stated_value_lies_outside_all_runs_of_its_own_point() -> None:
    trials = many_trials(40)
    trials += [replace(trial, number=100 + trial.number, repeats=trial.number) for trial in many_trials(20)]
    points = StudyFront.of(trials, {**COST_AND_F1, "train_seconds": "minimize"}, {}).points

    assert max(len(point.trials) for point in points) == 2
    for point in points:
        for name in point.means.keys() - OF_THE_CLUSTER:
            values = [trial.values[name] for trial in point.trials]
            assert min(values) - 1e-12 <= point.means[name] <= max(values) + 1e-12


def test_what_does_not_meet_a_constraint_has_no_rank_and_leaves_the_front_to_others() -> None:
    trials = [trial_of(0, 1.0, 0.5), trial_of(1, 2.0, 0.9), trial_of(2, 40.0, 0.95), trial_of(3, 3.0, 0.9)]
    front = StudyFront.of(trials, COST_AND_F1, {"f1": {"min": 0.8}, "cost_usd": {"max": 30}})

    assert [front.rank(trial) for trial in trials] == [None, 0, None, 1]
    assert Figures(front).unmet(front.points[0]) == ["F1 is 0.500, below 0.8"]
    assert Figures(front).unmet(front.points[2]) == ["cost is 40.00 USD, above 30 USD"]


def at(kind: str, batch: int, rate: float) -> dict[str, str | int | float]:
    return {"instance_type": kind, "per_device_train_batch_size": batch, "learning_rate": rate}


def test_two_clusters_of_equal_precision_are_alike_for_the_page_as_for_the_search() -> None:
    """The page's model once got the instance type where the search's model got the precision."""
    types, rates = ("ml.g5.xlarge", "ml.g6.xlarge"), (1e-5, 1e-4, 1e-3)
    searched: dict[str, Any] = {
        "instance_type": CategoricalDistribution(types),
        "learning_rate": FloatDistribution(rates[0], rates[-1], log=True),
        "max_seq_length": IntDistribution(64, 256),
    }
    space = Space({"per_device_train_batch_size": 8}, searched, rows=None)
    jobs = [
        space.job({"instance_type": kind, "learning_rate": rate, "max_seq_length": 64 + n})
        for kind in types
        for n, rate in enumerate(rates)
    ]
    trials = [
        trial_of(number, 1.0, 0.9, point=job.point, given=job.spec.given_text())
        for number, job in enumerate(jobs)
        if job is not None
    ]
    axes = {
        "instance_type": Axis(values=types),
        "learning_rate": Axis(values=(rates[0], rates[-1]), is_log=True),
        "max_seq_length": Axis(values=(64, 256)),
    }

    _, of_page = model_inputs(trials, axes)
    of_search = Jobs(space, [job for job in jobs if job is not None]).quality

    assert len(trials) == 6
    assert of_page.keys.tolist() == of_search.keys.tolist()
    assert of_page.terms.tolist() == of_search.terms.tolist()
    half = len(trials) // 2  # the second half of the trials differs from the first in its type only
    for _, points in (model_inputs(trials, axes), model_inputs(trials)):  # also if the search is not known
        assert points.keys[:half].tolist() == points.keys[half:].tolist()


def test_exact_ties_share_a_rank() -> None:
    points = [at("ml.g5.xlarge", 16, 1e-5 * 2**step) for step in range(8)]
    trials = [trial_of(n, 1.0, 0.9 if 2 <= n <= 4 else 0.85, point=point) for n, point in enumerate(points)]

    front = StudyFront.of(trials, COST_AND_F1, {})

    assert [front.rank(trial) for trial in trials[2:5]] == [0, 0, 0]


@pytest.mark.parametrize("width", [2, 3])
@given(data=st.data())
def test_an_improvement_is_the_hypervolume_with_the_point_less_that_without_it(width: int, data: st.DataObject) -> None:
    points = st.lists(st.tuples(*[st.floats(0, 1)] * width), min_size=1, max_size=6)
    candidates, base = data.draw(points), data.draw(points)
    reference = (0.9, 0.8, 0.7)[:width]

    costs, quality = np.array(candidates)[:, :-1], -np.array(candidates)[:, -1]
    nearly_certain = np.full(len(quality), 1e-10)
    improvements = expected_improvement(costs, quality, nearly_certain, np.array(base), np.array(reference))

    before = hypervolume(base, reference)
    for point, gained in zip(candidates, improvements, strict=True):
        assert gained == pytest.approx(hypervolume([*base, point], reference) - before, abs=1e-9)


def noise_of(values: list[list[float]], name: str = "own", rows: int | None = None) -> float:
    """Return the stated noise of a metric of the model, of configurations with these values of their runs."""
    given = {} if rows is None else {"max_eval_samples": str(rows)}
    trials = list[Trial]()
    for runs in values:
        first = len(trials)
        for value in runs:
            repeats = None if len(trials) == first else first
            point = {"learning_rate": 1e-5 * (first + 1)}
            trial = trial_of(len(trials), 1.0, 0.0, point=point, repeats=repeats, values={"cost_usd": 1.0, name: value})
            trials.append(replace(trial, given={**trial.given, **given}))
    return StudyFront.of(trials, {"cost_usd": "minimize", name: "maximize"}, {}).noises[name].deviation


def test_repeats_that_are_all_equal_leave_no_noise_but_one_of_them_may_be_a_coincidence() -> None:
    assert noise_of([[0.8, 0.8, 0.8], [0.7]]) == 0.0
    assert noise_of([[0.8, 0.8], [0.7]]) > 0.0
    assert noise_of([[0.8], [0.8], [0.8]]) > 0.0


def test_few_validation_rows_make_f1_uncertain_and_many_do_not_make_it_certain() -> None:
    values = [[0.90], [0.91], [0.89]]

    assert noise_of(values, "f1", rows=50) > 2 * noise_of(values, "f1", rows=20_000) > 0.001


def test_repeats_of_a_script_that_agree_count_more_than_how_far_apart_its_settings_are() -> None:
    settings = [[0.2], [0.4], [0.6], [0.8]]

    assert noise_of([*settings, [0.900, 0.902, 0.901], [0.880, 0.881, 0.879]]) < 0.2 * noise_of(settings)


def test_quality_has_an_error_after_one_run_and_seconds_and_dollars_after_two() -> None:
    trials = [trial_of(0, 1.0, 0.90), trial_of(1, 1.1, 0.92, repeats=0), trial_of(2, 3.0, 0.95)]
    twice, once = StudyFront.of(trials, COST_AND_F1, {}).points

    assert (twice.errors.keys(), once.errors.keys()) == ({"cost_usd", "f1"}, {"f1"})
    assert once.errors["f1"] == pytest.approx(2**0.5 * twice.errors["f1"])


def test_dollars_whose_runs_disagree_are_stated_with_their_own_error_although_all_others_agree() -> None:
    busy = [trial_of(0, 1.0, 0.9), trial_of(1, 1.9, 0.9, repeats=0), trial_of(2, 1.1, 0.9, repeats=0)]
    calm = [
        trial_of(first + n, usd * (1 + 0.01 * n), 0.9, repeats=first if n else None)
        for first, usd in ((10, 2.0), (20, 3.0), (30, 4.0), (40, 5.0))
        for n in range(3)
    ]
    points = StudyFront.of([*busy, *calm], COST_AND_F1, {}).points

    standard_error = np.std([1.0, 1.9, 1.1], ddof=1) / math.sqrt(3)
    assert points[0].errors["cost_usd"] == pytest.approx(standard_error, rel=0.1)
    assert all(point.errors["cost_usd"] < 0.1 * point.means["cost_usd"] for point in points[1:])
