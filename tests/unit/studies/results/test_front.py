"""Points and ranks of a study, and standard deviations of one run: pooled, assumed, and what depends on them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.specification.metrics import OF_THE_CLUSTER
from paretune.studies.results.front import INTERVAL, StudyFront, hypervolume, pooled_noise
from paretune.studies.results.trial_status import TrialStatus
from paretune.studies.sampler.decision import log_expected_improvement
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
    assert point.stated_errors.keys() == {"cost_usd", "f1"}


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
    assert front.unmet(front.points[0]) == ["F1 is 0.5000, below 0.8"]
    assert front.unmet(front.points[2]) == ["cost is 40.00 USD, above 30 USD"]


def at(kind: str, batch: int, rate: float) -> dict[str, str | int | float]:
    return {"instance_type": kind, "per_device_train_batch_size": batch, "learning_rate": rate}


def test_a_dollar_less_by_chance_keeps_no_bad_model_on_the_front() -> None:
    trials = [
        trial_of(0, 1.000, 0.93, point=at("ml.g5.xlarge", 16, 5e-5)),
        trial_of(1, 0.995, 0.38, point=at("ml.g6.xlarge", 16, 1e-2)),  # another type, cheaper by less than the noise
        trial_of(2, 0.500, 0.80, point=at("ml.g4dn.xlarge", 16, 1e-2)),
    ]
    front = StudyFront.of(trials, COST_AND_F1, {})

    assert [front.rank(trial) for trial in trials] == [0, 1, 0]


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
    improvements = np.exp(log_expected_improvement(costs, quality, nearly_certain, np.array(base), np.array(reference)))

    before = hypervolume(base, reference)
    for point, gained in zip(candidates, improvements, strict=True):
        assert gained == pytest.approx(hypervolume([*base, point], reference) - before, abs=1e-9)


def test_many_validation_rows_do_not_make_two_runs_alike_and_few_ones_make_them_differ() -> None:
    assert pooled_noise("f1", [[0.9]], validation_rows=20_000).deviation == 0.0016  # binomial: 0.0021
    assert pooled_noise("f1", [[0.9]], validation_rows=900).deviation == pytest.approx(0.01)
    assert pooled_noise("f1", [[1.0]], validation_rows=50).deviation == pytest.approx(0.02)
    assert pooled_noise("f1", [[0.9]]).deviation == 0.0016


def test_intervals_hold_their_probability_where_the_noise_is_as_uncertain_as_assumed() -> None:
    random = np.random.default_rng(7)
    inside = []
    for _ in range(4000):
        deviation = 0.0016 * math.sqrt(1 / random.chisquare(1))
        runs = [list(random.normal(mean, deviation, 2)) for mean in (0.7, 0.8, 0.9)]
        noise = pooled_noise("f1", runs)
        error = noise.standard_error(0.9, 2)
        inside.append(abs(float(np.mean(runs[2])) - 0.9) <= noise.margin(error))
    assert np.mean(inside) == pytest.approx(INTERVAL, abs=0.02)


def test_repeats_that_are_all_equal_leave_no_noise_but_one_of_them_may_be_a_coincidence() -> None:
    assert pooled_noise("f1", [[0.8, 0.8, 0.8], [0.7]]).deviation == 0.0
    assert pooled_noise("f1", [[0.8, 0.8], [0.7]]).deviation > 0.0
    assert pooled_noise("f1", [[0.8, 0.8], [0.7]], fewest=1).deviation == 0.0
    assert pooled_noise("own", [[0.8], [0.8], [0.8]]).deviation > 1e-3
    assert pooled_noise("f1", [[1.0, 1.0, 1.0]], validation_rows=30, fewest=math.inf).deviation > 0.01
    assert pooled_noise("job_seconds", [[60.0, 60.0, 60.0]]).deviation > 0.0


def test_repeats_of_a_script_that_agree_count_more_than_how_far_apart_its_settings_are() -> None:
    settings = [[0.2], [0.4], [0.6], [0.8]]

    noise = pooled_noise("own", [*settings, [0.900, 0.902, 0.901], [0.880, 0.881, 0.879]])

    assert noise.deviation < 0.005


def test_dollars_whose_runs_disagree_are_stated_with_their_own_error_although_all_others_agree() -> None:
    busy = [trial_of(0, 1.0, 0.9), trial_of(1, 1.9, 0.9, repeats=0), trial_of(2, 1.1, 0.9, repeats=0)]
    calm = [
        trial_of(first + n, usd * (1 + 0.01 * n), 0.9, repeats=first if n else None)
        for first, usd in ((10, 2.0), (20, 3.0), (30, 4.0), (40, 5.0))
        for n in range(3)
    ]
    points = StudyFront.of([*busy, *calm], COST_AND_F1, {}).points

    standard_error = np.std([1.0, 1.9, 1.1], ddof=1) / math.sqrt(3)
    assert points[0].stated_errors["cost_usd"] == pytest.approx(standard_error, rel=0.1)
    assert all(point.stated_errors["cost_usd"] < 0.1 * point.means["cost_usd"] for point in points[1:])
