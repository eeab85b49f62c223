"""Standard deviations of one run: pooled, assumed, and what they decide."""

import math

import pytest

from paretune.estimating.noise import SECONDS_NOISE
from paretune.studies.results.noise import are_alike, pooled


def test_deviations_are_pooled_over_groups_with_one_degree_of_freedom_for_the_assumption() -> None:
    noise = pooled("f1", [[0.90, 0.92], [0.80, 0.80, 0.83], [0.7]])

    # sums of squares: 0.0002 and 0.0006; degrees of freedom: 1 and 2, and one of the assumed 0.004
    assert noise.deviation == pytest.approx(math.sqrt((0.0002 + 0.0006 + 0.004**2) / 4))
    assert noise.basis.startswith("pooled from 3 repeats, with one degree of freedom for what is assumed without: ")
    assert not noise.is_relative


def test_dollars_and_seconds_scatter_in_proportion() -> None:
    noise = pooled("cost_usd", [[99.0, 101.0], [9.9, 10.1]])

    assert noise.deviation == pytest.approx(math.sqrt((2 * 0.0002 + SECONDS_NOISE**2) / 3))
    assert noise.of_one_run(50.0) == pytest.approx(50 * noise.deviation)
    assert noise.standard_error(50.0, 4) == pytest.approx(25 * noise.deviation)


def test_repeated_sagemaker_jobs_stand_in_for_repeats_of_seconds() -> None:
    noise = pooled("train_seconds", [[100.0], [50.0]])

    # half of all pairs of runs with this deviation differ by less than 1.4 %
    assert noise.deviation * math.sqrt(2) * 0.6745 == pytest.approx(0.014)
    assert noise.basis.startswith("1.4 %")


def test_f1_without_repeats_has_the_binomial_error_of_its_validation_rows() -> None:
    assert pooled("f1", [[0.9]], validation_rows=900).deviation == pytest.approx(0.01)
    assert pooled("f1", [[1.0]], validation_rows=50).deviation == pytest.approx(0.02)
    assert pooled("f1", [[0.9]]).deviation == 0.004


def test_two_means_are_alike_within_two_standard_errors_of_their_difference() -> None:
    assert are_alike(1.0, 1.99, 0.3, 0.4)  # 2 x 0.5
    assert not are_alike(1.0, 2.01, 0.3, 0.4)
    assert are_alike(1.0, 1.0, 0.0, 0.0)
