"""The model of quality: a run collapses to what one answer for all rows gets, or it follows a smooth surface.

The surface is a Gaussian process over `Space.quality_keys`, averaged over hypotheses, each with its posterior
probability. Good learning rates lie along a ridge: they grow with a power of the global batch size. The instance type
may shift quality, which is likely only where runs say so by far. A run that has collapsed says nothing of the surface;
it raises the probability of a collapse around it.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

_RATIO = 10.0  # between the ends of numbers, from which on they are compared by their logarithms
_CATEGORY = 0.35  # the column of a text, as a share of the span of a number: two that differ are half of it apart
F1_SPREAD = 0.03  # standard deviation of F1 between configurations
F1_USUAL_RATE, F1_USUAL_BATCH = 3e-5, 32.0
"""Learning rate of full fine-tuning and global batch size at which BERT is usually trained: 2e-5 to 5e-5 at 16 and 32
(Devlin et al., 2019, appendix A.3)."""
_BATCH, _RATE, _EPOCHS, _OTHERS = 6.0, 1.5, 1.0, 0.7  # lengths over which quality changes
_FALL, _LARGE, _GAIN = 0.13, 0.02, 0.3
"""Of the spread, measured from the best run: lost at e times the ridge's rate, lost at twice or half the global batch,
gained by e times the epochs."""
_LEVEL = 3.0  # spreads that the common level may lie away from the median
_NOISE = 0.13  # usual standard deviation of one run, as a share of the spread
_POWERS, _SCALES, _NOISES = (0.5,), (0.5,), (1.0, 2.0, 4.0)
_TYPES, _BUMPS = (0.0, 0.5), (0.0, 1.0, 3.0)
"""What hypotheses combine: power of the ridge, and standard deviations of the surface, a run, an instance type, and a
point around all that, in spreads or in usual noises."""
_NOISES_OF_ANY = (0.1, 0.4, 1.0, 2.0)  # of a metric whose spread is learnt: a bad setting may be far below all others
_LEAST_SPREAD, _FEW_SPREAD, _FEW = 1e-3, 0.1, 5  # of the largest value, if learnt; while there are fewer than five runs
_UNSURE = (0.7, 1.4)  # times the noise that is known of runs: few repeats have shown it
_FAILED = 0.8  # of a collapse, that a failed run counts: it is tried again once something near it has trained
_UNLIKELY = 0.02  # of the likeliest hypothesis: left out


class QualityModel:
    """A surface through N runs, more being better.

    Args:
        keys: of the runs, shape (N, 4 + D), see `Space.quality_keys`.
        values: their quality.
        spread: between configurations, or None to learn it from the runs.
        noise: known standard deviations of the runs, shape (N,), or None to learn one for all. If they are known, a
            point may differ from the surface, as far as runs scatter more than they should.
        collapsed: runs that are known to have collapsed. The attribute of that name has those the model finds, too.

    `noise` becomes the deviation of one run, `type_probability` that the instance type matters.
    """

    def __init__(
        self,
        keys: np.ndarray,
        values: Sequence[float],
        spread: float | None,
        *,
        noise: np.ndarray | None = None,
        collapsed: np.ndarray | None = None,
    ) -> None:
        self._keys, self._values, self._known_noise = keys, np.array(values, dtype=float), noise
        least = _FEW_SPREAD if len(self._values) < _FEW else _LEAST_SPREAD
        scatter = max(float(np.std(self._values)), least * float(np.abs(self._values).max(initial=0.0)), 1e-9)
        self._spread = spread or scatter
        self._noises = _NOISES if spread else _NOISES_OF_ANY
        self.collapsed = np.zeros(len(self._values), dtype=bool) if collapsed is None else collapsed.copy()
        if self.collapsed.all():
            self.collapsed[:] = False
        self._fit()
        while noise is None and (found := self._find_collapsed()).any():  # one can hide another
            self.collapsed |= found
            self._fit()

    def predict(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations at M keys, without the noise of a single run."""
        mean, square = np.zeros(len(keys)), np.zeros(len(keys))
        means, kernel_of = self._beside_runs(keys)
        for index in np.flatnonzero(self._weights):
            weight, it = self._weights[index], self._hypotheses[index]
            kernel = kernel_of(it)
            prior = (it[[1, 3, 4]] ** 2).sum() + (_LEVEL * self._spread) ** 2
            variance = np.maximum(prior - ((kernel @ self._inverses[index]) * kernel).sum(axis=1), 1e-12)
            expected = means[it[0]] + kernel @ self._alphas[index]
            mean += weight * expected
            square += weight * (expected**2 + variance)
        return mean, np.sqrt(np.maximum(square - mean**2, 1e-12))

    def collapse_probability(self, keys: np.ndarray, failed: np.ndarray | None = None) -> np.ndarray:
        """The share of runs nearby that have collapsed, drawn towards that of all; runs that failed count, too."""
        failed = self._keys[:0] if failed is None else failed
        runs, lost = np.vstack([self._keys, failed]), np.append(self.collapsed, np.full(len(failed), _FAILED))
        overall = (lost.sum() + 0.5) / (len(lost) + 10.0)
        near = matern52(2.0 * _distances(_place(keys, 0.5), _place(runs, 0.5)))
        return np.asarray((near @ lost + overall) / (near.sum(axis=1) + 1.0))

    def _fit(self) -> None:
        runs = ~self.collapsed
        self._x, y = self._keys[runs], self._values[runs]
        self._centre, self._top = float(np.median(y)), self._x[[int(np.argmax(y))]]
        known = None if self._known_noise is None else self._known_noise[runs]
        usual = _NOISE * self._spread if known is None else float(np.mean(known))
        noises, bumps = (self._noises, (0.0,)) if known is None else (_UNSURE, _BUMPS)
        grid = np.array(list(itertools.product(_POWERS, _SCALES, noises, _TYPES, bumps)))
        power, scale, noise, type_sd, bump = grid.T
        self._hypotheses = grid * np.array([1.0, self._spread, usual, self._spread, usual])
        means, kernel_of = self._beside_runs(self._x)
        variances = (noise[:, None] * (np.full(len(y), usual) if known is None else known)) ** 2
        covariances = np.array([kernel_of(it) for it in self._hypotheses])
        covariances += np.maximum(variances, 1e-12)[..., None] * np.eye(len(y))
        self._inverses = np.linalg.inv(covariances)
        residuals = y - np.array([means[it] for it in power])
        self._alphas = (self._inverses @ residuals[..., None])[..., 0]
        fit = (residuals * self._alphas).sum(axis=1) + np.linalg.slogdet(covariances)[1]
        unlikely = 0.25 * np.log(scale) ** 2 + 2.0 * (power - 0.5) ** 2 + np.log(noise) ** 2 + 5.0 * type_sd + bump
        evidence = -unlikely - 0.5 * fit
        likelihood = np.exp(evidence - evidence.max())
        likelihood[likelihood < _UNLIKELY] = 0.0
        self._weights = likelihood / likelihood.sum()
        self.noise = math.sqrt(self._weights @ (noise * usual) ** 2)
        self.type_probability = float(self._weights @ (type_sd > 0))

    def _find_collapsed(self) -> np.ndarray:
        """The runs far below what all others say of them (leave one out), or far below the best."""
        is_low = np.zeros(len(self._values), dtype=bool)
        if (~self.collapsed).sum() >= 3:
            likeliest = int(np.argmax(self._weights))
            precision = np.diag(self._inverses[likeliest])
            residual = self._alphas[likeliest] / precision
            far = (residual < -4.0 / np.sqrt(precision)) & (residual < -1.6 * self._spread)
            is_low[np.flatnonzero(~self.collapsed)[far]] = True
        return np.asarray(is_low | (~self.collapsed & (self._values < self._values.max() - 10.0 * self._spread)))

    def _beside_runs(self, keys: np.ndarray) -> tuple[dict[float, np.ndarray], Callable[[Sequence[float]], np.ndarray]]:
        """Prior means of M points by the power of the ridge, and their covariances with the N runs by hypothesis."""
        means, distances = {}, {}
        for power in _POWERS:
            ours, theirs, top = (_place(each, power) for each in (keys, self._x, self._top))
            lost = _FALL * (_RATE * (ours[:, 1] - top[:, 1])) ** 2 + _LARGE * (keys[:, 1] - self._top[:, 1]) ** 2
            means[power] = self._centre + self._spread * (_GAIN * (keys[:, 3] - self._top[:, 3]) - lost)
            distances[power] = _distances(ours, theirs)
        near = {power: (matern52(apart), apart < 1e-9) for power, apart in distances.items()}
        is_same_type = keys[:, None, 0] == self._x[:, 0]

        def kernel_of(hypothesis: Sequence[float]) -> np.ndarray:
            power, scale, _, type_sd, bump = hypothesis
            similar, is_same = near[power]
            varying = scale**2 * similar + type_sd**2 * is_same_type + bump**2 * is_same
            return np.asarray(varying + (_LEVEL * self._spread) ** 2)

        return means, kernel_of


def _place(keys: np.ndarray, power: float) -> np.ndarray:
    """Keys without the type, in lengths, learning rates along the ridge of that power."""
    numbers = keys[:, 1:] / np.array([_BATCH, _RATE, _EPOCHS, *[_OTHERS] * (keys.shape[1] - 4)])
    numbers[:, 1] -= power * math.log(2.0) * keys[:, 1] / _RATE
    return np.asarray(numbers)


def _distances(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.norm(left[:, None] - right, axis=2))


def matern52(distance: np.ndarray) -> np.ndarray:
    """The Matern kernel of smoothness 5/2."""
    scaled = math.sqrt(5.0) * distance
    return np.asarray((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled))


def scaled(values: Sequence[Any], among: Sequence[Any], *, is_log: bool = False) -> np.ndarray:
    """N numbers scaled to 0 to 1 by their span among others, by logarithms over a wide one; of texts a column each."""
    if not are_numbers(among):
        is_it = [[value == each for each in among] for value in values]
        return _CATEGORY * np.array(is_it, dtype=float).reshape(len(values), len(among))
    numbers, low, high = np.array(values, dtype=float)[:, None], float(min(among)), float(max(among))
    if high == low:
        return np.zeros_like(numbers)
    if low > 0 and (is_log or high / low >= _RATIO):
        return np.asarray(np.log(numbers / low) / math.log(high / low))
    return np.asarray((numbers - low) / (high - low))


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether none of them is a text, true or false."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
