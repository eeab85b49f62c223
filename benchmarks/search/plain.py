"""A plain rival for measured runs: Gaussian processes for log dollars and for quality, and gain per dollar.

It expects dollars to grow with the square root of a job's price per second. It begins in the middle of the space. Then
it always runs the job with the most expected hypervolume per expected dollar, both of which are uncertain. It never
stops by itself.

Its model, `PlainModel`, has a length scale for each parameter. The hyperparameters (length scales, noise and signal
variance) are first drawn from a prior. Two more rounds then add draws near those with the highest posterior density.
Predictions average over the draws, weighted by their posterior densities; draws with little weight are dropped.
"""

import math
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.spatial.distance import cdist

from paretune.core.pareto import front
from paretune.studies.sampler.process import Axes, Axis
from search.grids import Grid
from search.improvement import expected_improvement
from search.peers import Asking
from search.tables import Costs, Outcome, Point

_DRAWS, _ROUNDS, _PARENTS = 24, 2, 8  # draws from the prior; further rounds; best draws that each round perturbs
# The scatter is the standard deviation of quality across the runs.
_LENGTH, _LENGTH_SD = math.log(0.8), 0.8  # prior mean and deviation of log(length scale / span of the parameter)
_NOISE, _NOISE_SD = math.log(0.05), 1.2  # prior mean and deviation of log(noise / scatter)
_SCALE_SD = 0.4  # prior deviation of log(signal deviation / scatter), whose mean is 0
_LEVEL = 3.0  # prior deviation of the constant level, in scatters
_STEP = 0.35  # deviation of the random step from one of the best draws to a new draw, in deviations of the prior
_LEAST = 0.03  # draws with less than this share of the largest weight are dropped
# Minimum scatter as a share of the largest absolute value: _FEW_SCATTER if there are fewer than _FEW runs, else
# _LEAST_SCATTER.
_FEW, _FEW_SCATTER, _LEAST_SCATTER = 5, 0.1, 1e-3
_FAR = 4.0  # values more than this many widths below the median of the better half are compressed, see `_tamed`
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(3)


class PlainModel:
    """A Gaussian process with a Matern 5/2 kernel, fitted to the quality of N runs.

    Args:
        keys: parameters of the runs, shape (N, D), from 0 to 1.
        axes: index of the parameter that each column belongs to, shape (D,). A categorical parameter has one column for
            each category.
        values: quality of the runs, shape (N,); more is better.

    The attribute `noise` is the standard deviation of the noise of a single run.
    """

    def __init__(self, keys: np.ndarray, axes: np.ndarray, values: np.ndarray) -> None:
        self._keys, self._axes, self._n_axes = keys, axes, int(axes.max(initial=-1)) + 1
        self._values = _tamed(np.asarray(values, dtype=float))
        least = _FEW_SCATTER if len(values) < _FEW else _LEAST_SCATTER
        self._scatter = max(float(self._values.std()), least * float(np.abs(self._values).max(initial=0.0)), 1e-9)
        self._level = float(np.median(self._values))
        self._center = np.array([_LENGTH] * self._n_axes + [_NOISE, 0.0])
        self._spread = np.array([_LENGTH_SD] * self._n_axes + [_NOISE_SD, _SCALE_SD])
        random = np.random.default_rng(0)
        draws = list(self._center + self._spread * random.standard_normal((_DRAWS, len(self._center))))
        fits = [self._fit(draw) for draw in draws]
        for _ in range(_ROUNDS):
            best = np.argsort([-fit[0] for fit in fits], kind="stable")[:_PARENTS]
            steps = _STEP * self._spread * random.standard_normal((_PARENTS, len(self._center)))
            new = [draws[i] + step for i, step in zip(best, steps, strict=False)]
            draws, fits = draws + new, fits + [self._fit(draw) for draw in new]
        weights = np.exp(np.array([fit[0] for fit in fits]) - max(fit[0] for fit in fits))
        weights[weights < _LEAST] = 0.0
        self._weights = weights / weights.sum()
        self._draws, self._fits = draws, fits
        noise = np.exp([draw[-2] for draw in draws]) * self._scatter
        self.noise = math.sqrt(float(self._weights @ noise**2))

    def predict(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations at M keys, each of shape (M,), without the noise of a single run."""
        mean, square = np.zeros(len(keys)), np.zeros(len(keys))
        for draw, (_, root, solved), weight in zip(self._draws, self._fits, self._weights, strict=True):
            if weight:
                across = self._covariance(draw, keys, self._keys)
                means = self._level + across @ solved
                explained = (solve_triangular(root, across.T, lower=True, check_finite=False) ** 2).sum(axis=0)
                variance = self._scatter**2 * (_LEVEL**2 + math.exp(2.0 * draw[-1])) - explained
                mean += weight * means
                square += weight * (np.maximum(variance, 0.0) + means**2)
        return mean, np.sqrt(np.maximum(square - mean**2, 1e-12))

    def _fit(self, draw: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return a draw's log posterior density up to a constant, and two arrays that predictions with this draw need.

        The arrays are the Cholesky factor of the covariance of the runs, shape (N, N), and the product of the inverse
        covariance and the residuals, shape (N,).
        """
        covariance = self._covariance(draw, self._keys, self._keys)
        covariance[np.diag_indices_from(covariance)] += self._scatter**2 * (math.exp(2.0 * draw[-2]) + 1e-6)
        root = np.linalg.cholesky(covariance)
        residuals = self._values - self._level
        solved = cho_solve((root, True), residuals, check_finite=False)
        evidence = -0.5 * float(residuals @ solved) - float(np.log(np.diag(root)).sum())
        return evidence - 0.5 * float((((draw - self._center) / self._spread) ** 2).sum()), root, solved

    def _covariance(self, draw: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        lengths = np.exp(draw[self._axes])
        far = math.sqrt(5.0) * cdist(left / lengths, right / lengths)
        smooth = (1.0 + far + far**2 / 3.0) * np.exp(-far)
        return np.asarray(self._scatter**2 * (_LEVEL**2 + math.exp(2.0 * draw[-1]) * smooth))


def _tamed(values: np.ndarray) -> np.ndarray:
    """Compress values far below the better half, so that one collapsed run does not distort the surface.

    The width of the better half is the distance from its median to the best value, but at least 5 % of the largest
    absolute value. Fewer than `_FEW` values stay as they are.
    """
    if len(values) < _FEW:
        return values
    middle = float(np.median(values[values >= np.median(values)]))
    width = max(float(values.max()) - middle, 0.05 * float(np.abs(values).max()))
    low = middle - _FAR * width
    return np.where(values < low, low + 0.1 * (values - low), values)


class Plain(Asking):
    """The rival on a grid; it asks for every point at most once."""

    def __init__(self, table: Grid) -> None:
        axes = Axes({name: Axis(tuple(values)) for name, values in table.axes.items()})
        self._keys, self._axes = axes.keys(table.points), axes.of_columns
        price = np.log(table.prices)
        self._usual = 0.5 * (price - np.median(price))
        self._points, self._ran = table.points, list[int]()
        self._results = dict[int, tuple[float, float]]()  # of the jobs that completed; the models know no others

    def ask(self) -> tuple[Any, Point] | None:
        """Return first the job in the middle, on the cheapest cluster, then the one with the most gain per dollar."""
        if len(self._ran) == len(self._points):
            return None
        off = np.abs(self._keys - np.median(self._keys, axis=0)).sum(axis=1) + self._usual / max(
            np.ptp(self._usual), 1e-9
        )
        off[self._ran] = math.inf
        index = self._best() if self._results else int(np.argmin(off))
        return index, self._points[index]

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Record that a job has ended and, if it completed, its dollars and quality."""
        self._ran.append(handle)
        if costs is not None:
            self._results[handle] = costs

    def _best(self) -> int:
        paid, completed = np.array([*self._results.values()]), [*self._results]
        ran = self._keys[completed]
        log_usd, usd_sd = self._predict(ran, np.log(paid[:, 0]) - self._usual[completed])
        log_usd = log_usd + self._usual
        mean, deviation = self._predict(ran, -paid[:, 1])
        usd = np.exp(log_usd)
        hoped = np.vstack([paid, np.column_stack([usd, -(mean + deviation)])])
        hoped = hoped[front(hoped.tolist(), [False, False])]
        reference = hoped.max(axis=0) + 0.1 * np.ptp(hoped, axis=0)
        best = paid[front(paid.tolist(), [False, False])]
        gains = sum(
            weight * expected_improvement((usd * np.exp(node * usd_sd))[:, None], mean, deviation, best, reference)
            for node, weight in zip(_NODES, _WEIGHTS, strict=True)
        )
        worth = gains / (usd * np.exp(0.5 * np.minimum(usd_sd, 1.5) ** 2))
        worth[self._ran] = -1.0
        return int(np.argmax(worth))

    def _predict(self, ran: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return PlainModel(ran, self._axes, values).predict(self._keys)
