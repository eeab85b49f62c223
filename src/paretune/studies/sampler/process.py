"""A Gaussian process with a learned length scale for each parameter, and the columns that parameters become.

The process is the sum of a mean with uncertain weights, a surface and the noise of a single run:

    value    = basis @ weights + surface(key) + noise
    weights  ~ normal, with the means and deviations of `Basis`: what is believed before any run, and how firmly
    surface  : Matern 5/2, a length scale for each parameter
    lengths, scale of the surface, noise: the mode of their posterior (MAP), by L-BFGS; with few runs, also draws
               around the mode, weighted by their posterior, because few runs leave much open

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
from scipy.linalg import cho_factor, cho_solve, solve_triangular
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
_DRAWS, _FEW, _KEPT = 32, 100, 6
"""With at most `_FEW` runs, `_DRAWS` draws around the mode are weighed, and the `_KEPT` likeliest predict."""
_STEP = 0.5  # deviation of the draws around the mode, in deviations of the prior
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
        doubt: factor of all deviations.

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
        doubt: float = 1.0,
    ) -> None:
        self._runs, self._basis, self._doubt = runs, basis, doubt
        self._columns, n_axes = axes.of_columns, len(axes.axes)
        n_numbers = max(int(axes.are_numbers.sum()), 1)
        lengths = np.where(axes.are_numbers, _NUMBER + 0.5 * math.log(n_numbers), _CATEGORY)
        self._center = np.array([*lengths, math.log(scale), math.log(noise)])
        self._spread = np.array([*[_LENGTH_SD] * n_axes, _SCALE_SD, _NOISE_SD])
        self._residuals = values - runs.terms @ basis.means
        mode = self._mode() if len(values) > 1 else self._center
        draws, weights = self._around(mode) if len(values) <= _FEW else ([mode], np.ones(1))
        self._fits = [_Fit.of(self, logs) for logs in draws]
        self._weights = weights
        self.noise = math.sqrt(float(weights @ [math.exp(2.0 * fit.logs[-1]) for fit in self._fits]))

    def predict(self, points: Points) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations at M points, each of shape (M,), without the noise of a single run."""
        prior = points.terms**2 @ self._basis.deviations**2
        mean, square = np.zeros(len(prior)), np.zeros(len(prior))
        for fit, weight in zip(self._fits, self._weights, strict=True):
            across = self._covariance(fit.logs, points, self._runs)
            explained = solve_triangular(fit.root, across.T, lower=True, check_finite=False)
            means, variance = across @ fit.solved, fit.variance + prior - (explained**2).sum(axis=0)
            mean += weight * means
            square += weight * (np.maximum(variance, 1e-9 * fit.variance) + means**2)
        deviation = self._doubt * np.sqrt(np.maximum(square - mean**2, 1e-9 * self._fits[0].variance))
        return points.terms @ self._basis.means + mean, deviation

    def beliefs(self) -> dict[str, tuple[float, float, float, float]]:
        """Return what is believed of each weight, by name: mean and standard deviation before and after the runs."""
        basis, fit = self._basis, self._fits[0]
        variances = basis.deviations**2
        across = self._runs.terms * variances
        means = basis.means + across.T @ fit.solved
        explained = solve_triangular(fit.root, across, lower=True, check_finite=False)
        deviations = np.sqrt(np.maximum(variances - (explained**2).sum(axis=0), 0.0))
        columns = (each.tolist() for each in (basis.means, basis.deviations, means, deviations))
        return dict(zip(basis.names, zip(*columns, strict=True), strict=True))

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how far each value is above its leave-one-out prediction, and that difference's standard deviation.

        Both have shape (N,), without `doubt`. Only the mode of the lengths is used.
        """
        fit = self._fits[0]
        precision = np.diag(cho_solve((fit.root, True), np.eye(len(fit.root)), check_finite=False))
        return fit.solved / precision, 1.0 / np.sqrt(precision)

    def _mode(self) -> np.ndarray:
        """Return the logarithms of the length scales, the scale and the noise at the mode of their posterior."""
        chosen = _spread_out(len(self._residuals), _MOST_FITTED)
        (keys, terms), residuals = self._runs.at(chosen), self._residuals[chosen]
        linear = (terms * self._basis.deviations**2) @ terms.T
        count = len(residuals)
        parts = [keys[:, self._columns == axis] for axis in self._axes()]  # none if no parameter varies
        squares = np.array([cdist(part, part, "sqeuclidean") for part in parts]).reshape(-1, count, count)
        at = np.diag_indices(count)

        def loss(logs: np.ndarray) -> tuple[float, np.ndarray]:
            shares = np.exp(-2.0 * logs[:-2])[:, None, None] * squares
            far = np.sqrt(5.0 * shares.sum(axis=0))
            fall = np.exp(2.0 * logs[-2] - far)
            surface = (1.0 + far + far**2 / 3.0) * fall
            covariance = surface + linear
            covariance[at] += math.exp(2.0 * logs[-1]) + _JITTER * math.exp(2.0 * logs[-2])
            try:
                root = cho_factor(covariance, lower=True, check_finite=False)
            except np.linalg.LinAlgError:
                return 1e10, np.zeros_like(logs)
            solved = cho_solve(root, residuals, check_finite=False)
            pull = cho_solve(root, np.eye(count), check_finite=False) - np.outer(solved, solved)
            bent = pull * (5.0 / 3.0) * (1.0 + far) * fall
            slopes = np.array(
                [
                    *(0.5 * (share * bent).sum() for share in shares),
                    (pull * surface).sum(),
                    np.trace(pull) * math.exp(2.0 * logs[-1]),
                ]
            )
            off = (logs - self._center) / self._spread
            evidence = 0.5 * residuals @ solved + np.log(np.diag(root[0])).sum()
            return float(evidence + 0.5 * (off**2).sum()), slopes + off / self._spread

        bounds = [(c - 4.0 * s, c + 4.0 * s) for c, s in zip(self._center, self._spread, strict=True)]
        return np.asarray(
            minimize(loss, self._center, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS}).x
        )

    def _around(self, mode: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the mode and draws around it, and their weights: the ratios of posterior to proposal."""
        steps = np.random.default_rng(0).standard_normal((_DRAWS, len(mode)))
        draws = [mode, *(mode + _STEP * self._spread * step for step in steps)]
        unlikely = [fit.unlikely for fit in (_Fit.of(self, logs) for logs in draws)]
        log_weights = np.append(0.0, 0.5 * (steps**2).sum(axis=1)) - np.array(unlikely)
        log_weights[0] = -unlikely[0]
        kept = np.append(0, 1 + np.argsort(-log_weights[1:], kind="stable")[: _KEPT - 1])
        weights = np.exp(log_weights[kept] - log_weights[kept].max())
        return [draws[i] for i in kept], weights / weights.sum()

    def _axes(self) -> range:
        return range(len(self._center) - 2)

    def _covariance(self, logs: np.ndarray, left: Points, right: Points) -> np.ndarray:
        """Return the prior covariances between N and M points, shape (N, M)."""
        lengths = np.exp(logs[self._columns])
        far = math.sqrt(5.0) * cdist(left.keys / lengths, right.keys / lengths)
        surface = math.exp(2.0 * logs[-2]) * (1.0 + far + far**2 / 3.0) * np.exp(-far)
        return np.asarray(surface + (left.terms * self._basis.deviations**2) @ right.terms.T)


class _Fit(NamedTuple):
    """One draw of the logarithms of lengths, scale and noise, fitted to the N runs."""

    logs: np.ndarray
    root: np.ndarray  # Cholesky factor of the covariance of the runs, shape (N, N)
    solved: np.ndarray  # inverse covariance times residuals, shape (N,)
    unlikely: float  # negative logarithm of the posterior density, up to a constant

    @classmethod
    def of(cls, process: Process, logs: np.ndarray) -> "_Fit":
        """Fit a process with these hyperparameters to its runs."""
        covariance = process._covariance(logs, process._runs, process._runs)
        covariance[np.diag_indices_from(covariance)] += math.exp(2.0 * logs[-1]) + _JITTER * math.exp(2.0 * logs[-2])
        root = np.linalg.cholesky(covariance)
        solved = cho_solve((root, True), process._residuals, check_finite=False)
        off = (logs - process._center) / process._spread
        evidence = 0.5 * process._residuals @ solved + np.log(np.diag(root)).sum()
        return cls(logs, root, solved, float(evidence + 0.5 * (off**2).sum()))

    @property
    def variance(self) -> float:
        """Variance of the surface."""
        return math.exp(2.0 * self.logs[-2])


def _spread_out(count: int, most: int) -> np.ndarray:
    """Return at most `most` indices below `count`, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
