"""Standard deviations of one run: pooled, assumed, and what they decide."""

import math

import numpy as np
import pytest

from paretune.studies.results.front import INTERVAL, StudyFront, pooled_noise
from tests.study_examples import COST_AND_F1, trial_of


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
    assert pooled_noise("f1", [[0.8, 0.8], [0.8]]).deviation == 0.0
    assert pooled_noise("own", [[0.8], [0.8], [0.8]]).deviation > 1e-3
    assert pooled_noise("f1", [[1.0, 1.0, 1.0]], validation_rows=30, is_sure=False).deviation > 0.01
    assert pooled_noise("job_seconds", [[60.0, 60.0, 60.0]]).deviation > 0.0


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
