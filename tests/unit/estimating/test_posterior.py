"""Unknown constants, moved by measurements."""

import math

import numpy as np
import pytest

from paretune.estimating.posterior import Z80, Noise, Posterior, interval

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


def test_an_interval_adds_the_variances_of_constants_and_noise() -> None:
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    (width,) = interval(lambda theta: theta[:1] + 2 * theta[1:], np.zeros(2), covariance, 0.1)

    # 0.04 + 2 x 2 x 0.01 + 4 x 0.09 + 0.01
    assert width == pytest.approx(Z80 * math.sqrt(0.45), rel=1e-6)
