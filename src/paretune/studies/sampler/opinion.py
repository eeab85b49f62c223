"""A second opinion on what is left to gain: a plain Gaussian process over all searched parameters.

It knows nothing of ridges, usual rates, clusters or collapses. The search asks it when it sees nothing more to gain
itself, and before a study ends, because a model that is sure too early never looks. Each parameter has its own length
over which quality changes; these lengths, the noise and the scale are drawn from a prior and weighed by how likely they
make the runs, then drawn again around the likeliest.
"""

import math

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.spatial.distance import cdist

_DRAWS, _ROUNDS, _PARENTS = 24, 2, 8
_LENGTH, _LENGTH_SD = math.log(0.8), 0.8  # of the logarithm, as a share of the span of a parameter
_NOISE, _NOISE_SD = math.log(0.05), 1.2  # of the logarithm, as a share of the scatter of the runs
_SCALE_SD = 0.4  # of the logarithm of the deviation, around that scatter
_LEVEL = 3.0  # deviation of the level, in scatters
_STEP = 0.35  # of the prior's deviations, from a likely draw to a new one
_LEAST = 0.03  # of the likeliest draw: less is left out
_FEW, _FEW_SCATTER, _LEAST_SCATTER = 5, 0.1, 1e-3  # of the largest value; while there are fewer than five runs
_FAR = 4.0  # spreads of the better half below its median, from which on a run says only that it is bad


class PlainModel:
    """Quality of N runs, more being better, predicted from all parameters alike.

    Args:
        keys: of the runs, shape (N, D), each column scaled to 0 to 1.
        axes: shape (D,), the number of the parameter that a column describes.
        values: their quality.
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
        """Return means and standard deviations at M keys, without the noise of a single run."""
        mean, square = np.zeros(len(keys)), np.zeros(len(keys))
        for draw, (_, root, solved), weight in zip(self._draws, self._fits, self._weights, strict=True):
            if weight:
                across = self._covariance(draw, keys, self._keys)
                means = self._level + across @ solved
                known = (solve_triangular(root, across.T, lower=True, check_finite=False) ** 2).sum(axis=0)
                variance = self._scatter**2 * (_LEVEL**2 + math.exp(2.0 * draw[-1])) - known
                mean += weight * means
                square += weight * (np.maximum(variance, 0.0) + means**2)
        return mean, np.sqrt(np.maximum(square - mean**2, 1e-12))

    def _fit(self, draw: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Log probability of a draw, the root of its covariance, and the residuals solved by it."""
        covariance = self._covariance(draw, self._keys, self._keys)
        covariance[np.diag_indices_from(covariance)] += self._scatter**2 * (math.exp(2.0 * draw[-2]) + 1e-6)
        root = np.linalg.cholesky(covariance)
        rest = self._values - self._level
        solved = cho_solve((root, True), rest, check_finite=False)
        evidence = -0.5 * float(rest @ solved) - float(np.log(np.diag(root)).sum())
        return evidence - 0.5 * float((((draw - self._center) / self._spread) ** 2).sum()), root, solved

    def _covariance(self, draw: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        lengths = np.exp(draw[self._axes])
        far = math.sqrt(5.0) * cdist(left / lengths, right / lengths)
        smooth = (1.0 + far + far**2 / 3.0) * np.exp(-far)
        return np.asarray(self._scatter**2 * (_LEVEL**2 + math.exp(2.0 * draw[-1]) * smooth))


def _tamed(values: np.ndarray) -> np.ndarray:
    """Compress values far below the better half, because one collapse explains no surface."""
    if len(values) < _FEW:
        return values
    middle = float(np.median(values[values >= np.median(values)]))
    width = max(float(values.max()) - middle, 0.05 * float(np.abs(values).max()))
    low = middle - _FAR * width
    return np.where(values < low, low + 0.1 * (values - low), values)
