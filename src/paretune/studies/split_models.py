"""What `method: split` knows of seconds and of F1: two Gaussian processes, and batches that did not fit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

Key = tuple[tuple[str, ...], tuple[float, ...]]
"""Kinds that are equal or not, and numbers."""

SECONDS_NOISE = 0.015
"""Relative; repeats of a SageMaker job differ by 1.4 % (median)."""
F1_NOISE = 0.004
"""Between seeds, until repeats have shown it; SageMaker repeats differed by 0.0005 (median) to 0.0052."""


@dataclass(frozen=True)
class Guess:
    """Means and standard deviations of N values."""

    mean: np.ndarray
    deviation: np.ndarray


class Regression:
    """A Gaussian process over kinds and numbers, with a straight line as its mean.

    Args:
        keys: N points.
        values: N values.
        noise: standard deviation of one value.
        slopes: of the mean, one per number, from experience; 0 where nothing is known.
        scale: standard deviation of what the line does not explain, before anything is known.
        lengths: over which such deviations change, one per number.
        kinds_alike: correlation of two points that differ in kind.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        values: Sequence[float],
        *,
        noise: float,
        slopes: Sequence[float],
        scale: float,
        lengths: Sequence[float],
        kinds_alike: float,
    ) -> None:
        self._kinds = {kinds: place for place, kinds in enumerate(dict.fromkeys(kinds for kinds, _ in keys))}
        self._slopes, self._noise = np.array(slopes), noise
        self._prior_lengths, self._alike = np.array(lengths), kinds_alike
        self._places, self._numbers = self._split(keys)
        self._values = np.array(values, dtype=float)
        self._scale, self._lengths = scale, self._prior_lengths
        self._offset = 0.0
        if len(values):
            residual = self._values - self._numbers @ self._slopes
            self._offset = float(np.median(residual))
            self._residual = residual - self._offset
            self._fit()

    def guess(self, keys: Sequence[Key]) -> Guess:
        """What N points are, a single new value's noise not included."""
        places, numbers = self._split(keys)
        mean = numbers @ self._slopes + self._offset
        if not len(self._values):
            return Guess(mean, np.full(len(keys), self._scale))
        across = self._kernel(places, numbers, self._places, self._numbers)
        mean = mean + across @ self._weights
        half = solve_triangular(self._cholesky, across.T, lower=True)
        variance = np.maximum(self._scale**2 - (half**2).sum(axis=0), 1e-12)
        return Guess(mean, np.sqrt(variance))

    def _split(self, keys: Sequence[Key]) -> tuple[np.ndarray, np.ndarray]:
        for kinds, _ in keys:
            self._kinds.setdefault(kinds, len(self._kinds))
        width = len(self._slopes)
        numbers = np.array([numbers for _, numbers in keys], dtype=float).reshape(len(keys), width)
        return np.array([self._kinds[kinds] for kinds, _ in keys], dtype=int), numbers

    def _kernel(self, one: np.ndarray, at: np.ndarray, other: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Matérn 5/2 over the numbers; alike in part where the kinds differ."""
        distance = np.sqrt((((at[:, None, :] - there[None, :, :]) / self._lengths) ** 2).sum(axis=2))
        shape = (1 + math.sqrt(5) * distance + 5 / 3 * distance**2) * np.exp(-math.sqrt(5) * distance)
        alike = np.where(one[:, None] == other[None, :], 1.0, self._alike)
        return np.asarray(self._scale**2 * alike * shape)

    def _fit(self) -> None:
        """Scale and lengths by maximum of the posterior over a small grid, then the weights."""
        best = -math.inf
        chosen = (self._scale, self._prior_lengths)
        if len(self._values) >= 4:
            base = self._scale
            for scale in (0.35 * base, 0.6 * base, base, 1.6 * base):
                for stretch in (0.6, 1.0, 1.7):
                    self._scale, self._lengths = scale, self._prior_lengths * stretch
                    likelihood = self._likelihood() - 0.5 * (math.log(scale / base) ** 2 + math.log(stretch) ** 2)
                    if likelihood > best:
                        best, chosen = likelihood, (scale, self._lengths)
        self._scale, self._lengths = chosen
        self._likelihood()

    def _likelihood(self) -> float:
        covariance = self._kernel(self._places, self._numbers, self._places, self._numbers)
        covariance[np.diag_indices_from(covariance)] += self._noise**2 + 1e-10
        self._cholesky = np.linalg.cholesky(covariance)
        half = solve_triangular(self._cholesky, self._residual, lower=True)
        self._weights = solve_triangular(self._cholesky.T, half, lower=False)
        return float(-0.5 * half @ half - np.log(np.diag(self._cholesky)).sum())


def seconds_model(keys: Sequence[Key], log_seconds_per_row: Sequence[float]) -> Regression:
    """Logarithms of the seconds a row takes: halved by each doubling of the instances but for losses.

    Slopes of ln seconds per row over log2 instances and log2 per-device batch: -0.85 ln 2, and -0.1 for the latency
    that a larger batch shares among more rows.
    """
    return Regression(
        keys,
        log_seconds_per_row,
        noise=SECONDS_NOISE,
        slopes=(-0.85 * math.log(2), -0.1),
        scale=0.6,
        lengths=(3.0, 3.0),
        kinds_alike=0.3,
    )


def f1_model(keys: Sequence[Key], f1: Sequence[float]) -> Regression:
    """F1 over log2 global batch size, log learning rate and log epochs."""
    return Regression(
        keys, f1, noise=F1_NOISE, slopes=(0.0, 0.0, 0.0), scale=0.05, lengths=(3.0, 1.5, 1.0), kinds_alike=0.5
    )


def improvements(points: np.ndarray, front: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Hypervolume that each of N points adds to a front, for two objectives, both minimised.

    Args:
        points: N by 2.
        front: K by 2, non-dominated.
        reference: 2; what lies beyond it counts nothing.
    """
    inside = front[(front < reference).all(axis=1)]
    order = inside[np.argsort(inside[:, 0])]
    lefts = np.concatenate([[-np.inf], order[:, 0]])
    rights = np.concatenate([order[:, 0], [reference[0]]])
    tops = np.concatenate([[reference[1]], order[:, 1]])
    gained = np.zeros(len(points))
    for left, right, top in zip(lefts, rights, tops, strict=True):
        width = np.clip(right - np.maximum(points[:, 0], left), 0.0, None)
        gained += width * np.clip(np.minimum(top, reference[1]) - points[:, 1], 0.0, None)
    return gained
