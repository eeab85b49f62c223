"""A Gaussian process with a learned length scale for each parameter, and the columns that parameters become.

The process is the sum of a mean with uncertain weights, a surface and the noise of a single run:

    value    = basis @ weights + surface(key) + noise
    weights  ~ normal, with the means and deviations of `Basis`: what is believed before any run, and how firmly
    surface  : Matern 5/2, a length scale for each parameter
    lengths, scale of the surface, noise: the mode of their posterior (MAP), by L-BFGS

The logarithms of the length scales have normal priors. That of a number grows with the square root of the number of
parameters, because the distance between two points does, too (Hvarfner et al., Vanilla Bayesian Optimization Performs
Great in High Dimensions, 2024). That of a category is shorter, so that a category says little about the others until
runs show that it does. The noise has its own prior, so what the surface cannot follow is not taken for noise.

In shapes, N is the number of runs, M that of other keys, D that of columns, P that of parameters, B that of weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

_RATIO = 10.0  # numbers whose largest is at least this many times the smallest are compared by their logarithms
# Users may enqueue numbers outside of a range. For logarithms, a number counts as at least this share of the range's
# low end, because 0 has no logarithm.
_LEAST_SHARE = 0.1
_NUMBER, _CATEGORY = math.log(0.5), math.log(0.7)
"""Prior medians of log length scales: of a number, for one parameter and as a share of its span; of a category, where
two different ones are 1 apart, so that their surfaces have a correlation of about 0.3."""
_LENGTH_SD = 1.0  # prior deviation of the logarithm of a length scale
_SCALE_SD = 0.6  # prior deviation of log(deviation of the surface / `scale`)
_NOISE_SD = 1.0  # prior deviation of log(noise / its usual value)
_MOST_FITTED = 160  # length scales are fitted to at most this many runs; all runs count in predictions
_STEPS = 30  # limit on the iterations of the fit
_DIGITS = 3  # of fitted logarithms
_JITTER = 1e-6  # share of the surface's variance that keeps the covariance of equal keys invertible


@dataclass(frozen=True)
class Axis:
    """One parameter as columns: a number from 0 to 1, or a column for each category.

    `values` are all values of the parameter, or the ends of its range. `name` is its full name if the study calls it by
    another one, such as that of an argument of a script. Numbers are scaled by their logarithms if all
    are positive, and either `is_log` is true or the largest is at least `_RATIO` times the smallest.
    """

    values: Sequence[Any]
    is_log: bool = False
    name: str = ""

    @property
    def is_number(self) -> bool:
        """Whether all values are numbers; strings and booleans are not."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    @property
    def width(self) -> int:
        """The number of columns."""
        return 1 if self.is_number else len(self.values)

    def columns(self, values: Sequence[Any]) -> np.ndarray:
        """Return the columns of N values, shape (N, `width`). Two different categories are 1 apart."""
        if not self.is_number:
            is_it = [[value == each for each in self.values] for value in values]
            return math.sqrt(0.5) * np.array(is_it, dtype=float).reshape(len(values), self.width)
        numbers, low, high = np.array(values, dtype=float)[:, None], float(min(self.values)), float(max(self.values))
        if high == low:
            return np.zeros_like(numbers)
        if low > 0 and (self.is_log or high / low >= _RATIO):
            return np.asarray(np.log(np.maximum(numbers / low, _LEAST_SHARE)) / math.log(high / low))
        return np.asarray((numbers - low) / (high - low))


@dataclass(frozen=True)
class Axes:
    """The parameters that a process depends on, by name."""

    axes: Mapping[str, Axis]

    @classmethod
    def of(cls, axes: Mapping[str, Axis]) -> "Axes":
        """Return the axes that have more than one value."""
        return cls({name: axis for name, axis in axes.items() if len(set(axis.values)) > 1})

    @property
    def of_columns(self) -> np.ndarray:
        """The index of each column's parameter, shape (D,)."""
        return np.repeat(np.arange(len(self.axes)), [axis.width for axis in self.axes.values()])

    @property
    def are_numbers(self) -> np.ndarray:
        """Whether each parameter is a number, shape (P,)."""
        return np.array([axis.is_number for axis in self.axes.values()], dtype=bool)

    def keys(self, settings: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Return the keys of N settings, shape (N, D)."""
        columns = [axis.columns([each.get(name, "") for each in settings]) for name, axis in self.axes.items()]
        return np.hstack([np.empty((len(settings), 0)), *columns])


@dataclass(frozen=True)
class Basis:
    """The beliefs before any run: names of the weights, and their prior means and deviations, each shape (B,)."""

    names: tuple[str, ...]
    means: np.ndarray
    deviations: np.ndarray

    @classmethod
    def of(cls, beliefs: Mapping[str, tuple[float, float]]) -> "Basis":
        """Return the basis of weights with these means and deviations, by name."""
        means, deviations = np.array(list(beliefs.values()), dtype=float).reshape(-1, 2).T
        return cls(tuple(beliefs), means, deviations)


class Points(NamedTuple):
    """The inputs of a process for N jobs: keys, shape (N, D), see `Axes.keys`; terms of the basis, shape (N, B)."""

    keys: np.ndarray
    terms: np.ndarray

    def at(self, chosen: np.ndarray) -> "Points":
        """Return the points of the chosen jobs, given by index or by a mask."""
        return Points(self.keys[chosen], self.terms[chosen])


class Process:
    """A Gaussian process fitted to N values.

    Args:
        axes: the parameters.
        runs: the N runs.
        values: shape (N,).
        basis: the weights of the terms.
        scale: usual standard deviation of the surface.
        noise: usual standard deviation of the noise of a single run.
        logs: logarithms of the length scales, the scale and the noise; None to fit them.

    Attributes:
        noise: standard deviation of the noise of a single run.
    """

    def __init__(
        self,
        axes: Axes,
        runs: Points,
        values: np.ndarray,
        basis: Basis,
        *,
        scale: float,
        noise: float,
        logs: np.ndarray | None = None,
    ) -> None:
        self._axes, self._runs, self._basis, self._columns = axes, runs, basis, axes.of_columns
        n_axes, n_numbers = len(axes.axes), max(int(axes.are_numbers.sum()), 1)
        lengths = np.where(axes.are_numbers, _NUMBER + 0.5 * math.log(n_numbers), _CATEGORY)
        self._center = np.array([*lengths, math.log(scale), math.log(noise)])
        self._spread = np.array([*[_LENGTH_SD] * n_axes, _SCALE_SD, _NOISE_SD])
        self._residuals = values - runs.terms @ basis.means
        self.logs = self._center if logs is None else logs
        if logs is None and len(values) > 1:
            self.logs = self._mode()
        covariance = self._covariance(runs, runs)
        covariance[np.diag_indices_from(covariance)] += math.exp(2.0 * self.logs[-1]) + _JITTER * self._variance
        self._root = np.linalg.cholesky(covariance)
        self._solved = cho_solve((self._root, True), self._residuals, check_finite=False)
        self.noise = math.exp(self.logs[-1])

    def expecting(self, points: Points) -> "Process":
        """Return the process after further runs at M points that give exactly what it expects of them."""
        runs = Points(*map(np.vstack, zip(self._runs, points, strict=True)))
        values = np.append(self._residuals + self._runs.terms @ self._basis.means, self.predict(points)[0])
        return Process(self._axes, runs, values, self._basis, scale=1.0, noise=1.0, logs=self.logs)

    def predict(self, points: Points) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations at M points, each of shape (M,), without the noise of a single run."""
        across = self._covariance(points, self._runs)
        explained = solve_triangular(self._root, across.T, lower=True, check_finite=False)
        variance = self._variance + points.terms**2 @ self._basis.deviations**2 - (explained**2).sum(axis=0)
        deviation = np.sqrt(np.maximum(variance, 1e-9 * self._variance))
        return points.terms @ self._basis.means + across @ self._solved, deviation

    def beliefs(self) -> dict[str, tuple[float, float, float, float]]:
        """Return what is believed of each weight, by name: mean and standard deviation before and after the runs."""
        basis = self._basis
        variances = basis.deviations**2
        across = self._runs.terms * variances
        explained = solve_triangular(self._root, across, lower=True, check_finite=False)
        deviations = np.sqrt(np.maximum(variances - (explained**2).sum(axis=0), 0.0))
        columns = (basis.means, basis.deviations, basis.means + across.T @ self._solved, deviations)
        return dict(zip(basis.names, zip(*(each.tolist() for each in columns), strict=True), strict=True))

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how far each value is above its leave-one-out prediction, and that difference's standard deviation.

        Both have shape (N,).
        """
        precision = np.diag(cho_solve((self._root, True), np.eye(len(self._root)), check_finite=False))
        return self._solved / precision, 1.0 / np.sqrt(precision)

    def _mode(self) -> np.ndarray:
        """Return the logarithms of the length scales, the scale and the noise at the mode of their posterior.

        They are rounded, so that they do not depend on how a processor rounds sums.
        """
        chosen = _spread_out(len(self._residuals), _MOST_FITTED)
        (keys, terms), residuals = self._runs.at(chosen), self._residuals[chosen]
        linear = (terms * self._basis.deviations**2) @ terms.T
        count = len(residuals)
        parts = [keys[:, self._columns == axis] for axis in range(len(self._center) - 2)]
        squares = np.array([cdist(part, part, "sqeuclidean").ravel() for part in parts]).reshape(-1, count * count)
        at = np.diag_indices(count)

        def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
            shares = np.exp(-2.0 * logs[:-2])
            far = np.sqrt(5.0 * (shares @ squares).reshape(count, count))
            fall = np.exp(2.0 * logs[-2] - far)
            surface, noise = (1.0 + far * (1.0 + far / 3.0)) * fall, math.exp(2.0 * logs[-1])
            covariance = surface + linear
            covariance[at] += noise + _JITTER * math.exp(2.0 * logs[-2])
            root, fault = dpotrf(covariance, lower=1, clean=1)
            if fault:
                return 1e10, np.zeros_like(logs)
            inverse = dpotri(root, lower=1)[0]
            inverse += inverse.T
            inverse[at] *= 0.5
            solved, off = inverse @ residuals, (logs - self._center) / self._spread
            pull = inverse - np.outer(solved, solved)
            bent = 5.0 / 6.0 * shares * (squares @ (pull * (1.0 + far) * fall).ravel())
            slopes = np.append(bent, [(pull * surface).sum(), np.trace(pull) * noise]) + off / self._spread
            evidence = 0.5 * residuals @ solved + np.log(root[at]).sum()
            return float(evidence + 0.5 * (off**2).sum()), slopes

        bounds = [(c - 4.0 * s, c + 4.0 * s) for c, s in zip(self._center, self._spread, strict=True)]
        options = {"maxiter": _STEPS, "ftol": 1e-7}
        found = minimize(loss, self._center, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return np.asarray(found.x).round(_DIGITS)

    @property
    def _variance(self) -> float:
        """Variance of the surface."""
        return math.exp(2.0 * self.logs[-2])

    def _covariance(self, left: Points, right: Points) -> np.ndarray:
        """Return the prior covariances between N and M points, shape (N, M)."""
        scales = math.sqrt(5.0) * np.exp(-self.logs[self._columns])
        far = cdist(left.keys * scales, right.keys * scales)
        surface = self._variance * (1.0 + far + far**2 / 3.0) * np.exp(-far)
        return np.asarray(surface + (left.terms * self._basis.deviations**2) @ right.terms.T)


def _spread_out(count: int, most: int) -> np.ndarray:
    """Return at most `most` indices below `count`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
