"""Unknown constants, moved by measurements."""

import math

import numpy as np
import pytest

from paretune.estimating.posterior import Z80, Noise, Posterior, gradient, interval

PRIORS = {"a": (2.0, 0.5), "kin": (1.0, 0.2)}
QUIET = Noise(value=0.1, weight=1e12)  # measurements never move it


def constant(posterior: Posterior, name: str) -> float:
    indices, mean, _ = posterior.with_names([name])
    return float(np.exp(mean[indices[name]]))


def measured_once(value: float, prior: float = 0.5, noise: float = 0.1) -> Posterior:
    """The constant `a`, after one measurement of itself."""
    logarithm = math.log(value)
    return Posterior(
        {"a": (2.0, prior)},
        ["a"],
        noise=Noise(value=noise, weight=1e12),
        residuals=lambda theta, sigma: (theta - logarithm) / sigma,
        misfits=lambda theta: theta - logarithm,
    )


def test_without_measurements_the_priors_speak() -> None:
    posterior = Posterior(PRIORS, [], noise=QUIET)
    places, mean, covariance = posterior.with_names(["kin:x", "a", "kin:x", "kin:y"])

    assert places == {"kin:x": 0, "a": 1, "kin:y": 2}
    assert np.exp(mean) == pytest.approx([1.0, 2.0, 1.0])
    assert covariance == pytest.approx(np.diag([0.04, 0.25, 0.04]))
    assert constant(posterior, "a") == pytest.approx(2.0)
    assert constant(posterior, "kin:anything") == 1.0
    assert posterior.noise == 0.1


def test_named_constants_without_measurements_have_the_variances_of_their_priors() -> None:
    _, mean, covariance = Posterior(PRIORS, ["a", "kin:x"], noise=QUIET).with_names([])

    assert np.exp(mean) == pytest.approx([2.0, 1.0])
    assert covariance == pytest.approx(np.diag([0.25, 0.04]))


@pytest.mark.parametrize("arguments", ["residuals", "misfits"])
def test_residuals_without_misfits_or_misfits_without_residuals_move_nothing(arguments: str) -> None:
    posterior = Posterior(PRIORS, ["a"], noise=QUIET, **{arguments: lambda theta, *_: theta - 5.0})
    assert constant(posterior, "a") == pytest.approx(2.0)


def test_a_measurement_and_the_prior_are_weighed_by_their_precisions() -> None:
    posterior = measured_once(3.0)

    # precisions 1 / 0.5^2 = 4 of log 2 and 1 / 0.1^2 = 100 of log 3
    assert math.log(constant(posterior, "a")) == pytest.approx((4 * math.log(2) + 100 * math.log(3)) / 104, rel=1e-6)
    _, _, covariance = posterior.with_names([])
    assert covariance == pytest.approx(np.array([[1 / 104]]), rel=1e-6)


def test_noise_is_estimated_from_the_measurements_that_are_left_when_constants_are_fitted() -> None:
    noise = Noise(value=0.1, weight=2.0)

    assert noise.updated(np.array([0.3, -0.3])) == pytest.approx(math.sqrt((2 * 0.01 + 0.18) / 4))
    assert noise.updated(np.array([0.3, -0.3]), fitted=1.5) == pytest.approx(math.sqrt((2 * 0.01 + 0.18) / 2.5))
    assert noise.updated(np.zeros(3), fitted=3.0) == pytest.approx(0.1)  # each of three has fixed a constant


def test_a_constant_that_nothing_has_touched_keeps_its_prior_beside_measured_ones() -> None:
    places, mean, covariance = measured_once(3.0).with_names(["a", "a:kin"])

    assert places == {"a": 0, "a:kin": 1}
    assert math.exp(mean[1]) == pytest.approx(2.0)
    assert covariance[1, 1] == 0.25
    assert covariance[0, 1] == covariance[1, 0] == 0


def test_noise_is_an_average_of_its_first_value_and_the_misfits() -> None:
    # (6 x 0.03^2 + 0.1^2 + 0.2^2) / 8
    assert Noise(value=0.03, weight=6.0).updated(np.array([0.1, -0.2])) == pytest.approx(math.sqrt(0.0554 / 8))
    assert Noise(value=0.03, weight=6.0).updated(np.array([])) == pytest.approx(0.03)


def test_misfits_that_no_constant_explains_raise_the_noise() -> None:
    offsets = np.array([-0.5, 0.5, -0.5, 0.5])
    posterior = Posterior(
        PRIORS,
        ["a"],
        noise=Noise(value=0.03, weight=1.0),
        residuals=lambda theta, sigma: (theta - offsets) / sigma,
        misfits=lambda theta: theta - offsets,
    )

    assert 0.4 < posterior.noise < 0.7


def test_a_gradient_is_that_of_a_function_worked_out_by_hand() -> None:
    def function(theta: np.ndarray) -> np.ndarray:
        return np.array([theta[0] * theta[1], theta[1] ** 3, 7.0])

    assert gradient(function, np.array([2.0, 3.0])) == pytest.approx(np.array([[3, 2], [0, 27], [0, 0]]), abs=1e-6)


def test_an_interval_adds_the_variances_of_constants_and_noise() -> None:
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    (width,) = interval(lambda theta: theta[:1] + 2 * theta[1:], np.zeros(2), covariance, 0.1)

    # 0.04 + 2 x 2 x 0.01 + 4 x 0.09 + 0.01
    assert width == pytest.approx(Z80 * math.sqrt(0.45), rel=1e-6)


def test_eighty_per_cent_of_a_normal_distribution_lie_within() -> None:
    assert math.erf(Z80 / math.sqrt(2)) == pytest.approx(0.8, abs=1e-4)
