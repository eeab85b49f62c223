"""Unknown positive constants with priors, fitted to measurements: the maximum of the posterior and its curvature.

Constants live in logarithms. A prior is a median and the standard deviation of the logarithm; a measurement is a
residual in its own standard deviations. The maximum is found by least squares; the inverse of its curvature is the
covariance.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Z80 = 1.2816  # half width of a central 80 % interval of a normal distribution, in standard deviations

Array = np.ndarray
_STEP = 1e-4  # of a central difference; logarithms of constants vary over about 1


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Relative standard deviation of a measurement: a first value that counts like `weight` measurements."""

    value: float
    weight: float

    def updated(self, misfits: Array, fitted: float = 0.0) -> float:
        """Return the value after `misfits`: logarithms of predicted over measured, with this many `fitted` constants.

        A constant that is fixed by one measurement absorbs that measurement's deviation (MacKay, Neural Computation
        4, 1992: the effective number of parameters).
        """
        free = max(0.0, len(misfits) - fitted)
        return math.sqrt((self.weight * self.value**2 + float(misfits @ misfits)) / (self.weight + free))


class Posterior:
    """K constants, in logarithms."""

    def __init__(
        self,
        # name of a constant up to a colon, to median and deviation; the part after the colon distinguishes constants
        # that share a prior
        priors: Mapping[str, tuple[float, float]],
        names: Sequence[str],  # the constants, each once
        *,
        noise: Noise,  # the noise before any measurement
        # from K logarithms and the noise to residuals; unused without `names`
        residuals: Callable[[Array, float], Array] | None = None,
        # from K logarithms to the errors that the noise is estimated from
        misfits: Callable[[Array], Array] | None = None,
    ) -> None:
        self._priors = priors
        self.indices = {name: index for index, name in enumerate(names)}
        self.mean, deviations = self._prior(names)
        self._covariance = np.diag(deviations**2)
        self.noise = noise.value
        if residuals is None or misfits is None or not names:
            return
        from scipy.optimize import least_squares  # takes a third of a second, which a launch without evidence saves

        medians = self.mean

        def all_residuals(theta: Array) -> Array:
            return np.concatenate([residuals(theta, self.noise), (theta - medians) / deviations])

        for _ in range(3):  # the noise and the constants settle together
            self.mean = least_squares(all_residuals, self.mean, x_scale=deviations).x
            slopes = gradient(all_residuals, self.mean)
            self._covariance = np.linalg.inv(slopes.T @ slopes)
            fitted = len(names) - float(np.sum(np.diag(self._covariance) / deviations**2))
            self.noise = noise.updated(misfits(self.mean), fitted)

    def with_names(self, names: Sequence[str]) -> tuple[dict[str, int], Array, Array]:
        """Return indices, logarithms and covariance of the constants, with those of `names` that have only a prior."""
        fresh = [name for name in dict.fromkeys(names) if name not in self.indices]
        indices = self.indices | {name: len(self.indices) + index for index, name in enumerate(fresh)}
        medians, deviations = self._prior(fresh)
        fitted_count = len(self.indices)
        covariance = np.zeros((len(indices), len(indices)))
        covariance[:fitted_count, :fitted_count] = self._covariance
        covariance[fitted_count:, fitted_count:] = np.diag(deviations**2)
        return indices, np.concatenate([self.mean, medians]), covariance

    def _prior(self, names: Sequence[str]) -> tuple[Array, Array]:
        pairs = [self._priors[name.partition(":")[0]] for name in names]
        medians, deviations = np.array(pairs, dtype=float).reshape(-1, 2).T
        return np.log(medians), deviations


def gradient(function: Callable[[Array], Array], at: Array) -> Array:
    """Return the derivatives of M values of `function` by K logarithms, by central differences."""
    steps = np.eye(len(at)) * _STEP
    return np.stack([(function(at + step) - function(at - step)) / (2 * _STEP) for step in steps], axis=1)


def interval(function: Callable[[Array], Array], mean: Array, covariance: Array, noise: float | Array) -> Array:
    """Return N half widths of 80 % intervals of the logarithms of `function`, with the `noise` of all or each."""
    slopes = gradient(function, mean)
    return np.asarray(Z80 * np.sqrt(np.einsum("nk,kl,nl->n", slopes, covariance, slopes) + noise**2))
