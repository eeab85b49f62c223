"""What split knows of seconds and F1: Gaussian processes against a library's, hypervolume against a definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from paretune.pareto import front
from paretune.studies.hypervolume import hypervolume
from paretune.studies.split_models import F1_NOISE, Key, Regression, f1_model, improvements, seconds_model

KEYS: list[Key] = [(("a",), (4.0, -9.0, 0.0)), (("a",), (6.0, -8.0, 0.0)), (("a",), (9.0, -10.0, 0.0))]
VALUES = [0.80, 0.90, 0.70]


def test_the_process_is_that_of_a_library_with_the_same_kernel() -> None:
    own = Regression(
        KEYS, VALUES, noise=0.01, slopes=(0.0, 0.0, 0.0), scale=0.1, lengths=(3.0, 1.5, 1.0), kinds_alike=0.5
    )
    kernel = ConstantKernel(0.1**2, "fixed") * Matern((3.0, 1.5, 1.0), "fixed", nu=2.5)
    library = GaussianProcessRegressor(kernel, alpha=0.01**2 + 1e-10, optimizer=None)
    numbers = np.array([key[1] for key in KEYS])
    library.fit(numbers, np.array(VALUES) - np.median(VALUES))
    asked: list[Key] = [(("a",), (5.0, -8.5, 0.0)), (("a",), (12.0, -4.0, 0.5))]

    found = own.guess(asked)

    mean, deviation = library.predict(np.array([key[1] for key in asked]), return_std=True)
    assert found.mean == pytest.approx(mean + np.median(VALUES), abs=1e-9)
    assert found.deviation == pytest.approx(deviation, abs=1e-6)


def test_what_was_measured_is_known_and_what_is_far_away_is_not() -> None:
    found = f1_model(KEYS, VALUES).guess([KEYS[0], (("a",), (30.0, 5.0, 3.0))])

    assert found.mean[0] == pytest.approx(0.80, abs=F1_NOISE)
    assert found.deviation[0] < F1_NOISE < found.deviation[1]


def test_another_kind_is_alike_but_not_the_same() -> None:
    same, other = f1_model(KEYS, VALUES).guess([(("a",), KEYS[0][1]), (("b",), KEYS[0][1])]).deviation

    assert same < other


def test_before_any_job_a_doubling_of_instances_nearly_halves_the_seconds_of_a_row() -> None:
    one, two = seconds_model([], []).guess([(("t",), (0.0, 4.0)), (("t",), (1.0, 4.0))]).mean

    assert math.exp(two - one) == pytest.approx(0.5**0.85)


def test_one_measurement_sets_the_level_of_its_type() -> None:
    model = seconds_model([(("t",), (0.0, 4.0))], [math.log(0.02)])

    here, twice = model.guess([(("t",), (0.0, 4.0)), (("t",), (1.0, 4.0))]).mean

    assert math.exp(here) == pytest.approx(0.02, rel=1e-3)
    assert math.exp(twice) == pytest.approx(0.02 * 0.5**0.85, rel=1e-3)


points = st.lists(st.tuples(*[st.floats(0, 1)] * 2), min_size=1, max_size=8)


@given(points, st.lists(st.tuples(*[st.floats(0, 1)] * 2), max_size=8))
def test_an_improvement_is_the_hypervolume_with_the_point_less_that_without_it(
    asked: list[tuple[float, float]], known: list[tuple[float, float]]
) -> None:
    reference = (0.9, 0.8)
    marks = front(known, (False, False))
    best = np.array([point for point, is_best in zip(known, marks, strict=True) if is_best]).reshape(-1, 2)

    found = improvements(np.array(asked), best, np.array(reference))

    before = hypervolume(known, reference) if known else 0.0
    for point, gained in zip(asked, found, strict=True):
        assert gained == pytest.approx(hypervolume([*known, point], reference) - before, abs=1e-9)


def test_noise_is_what_the_values_show_where_they_show_another_than_is_usual() -> None:
    keys: list[Key] = [(("a",), (4.0 + number % 4, -9.0 + number // 4, 0.0)) for number in range(24)]
    source = np.random.default_rng(1)
    rough = [0.8 + source.normal(0, 0.015) for _ in keys]
    smooth_values = [0.8 + 0.01 * key[1][0] for key in keys]

    assert f1_model(keys, smooth_values).noise < F1_NOISE < f1_model(keys, rough).noise
