"""A Gaussian process over a job's setting and the night, for a value that drifts from night to night.

    value = level + walk(night) + line(setting) + shape(setting) + shift(group) + wander(setting, night) + noise

`walk` is a random walk that all settings share, for example because the data grow or become harder. `shape` is the
difference between settings beyond a straight `line` over numbers such as epochs. `shift` is shared by all settings of a
group, such as a cluster. `wander` changes the shapes and forgets within WANDER_NIGHTS, so that old nights count less
the more the values drift. The sizes of noise, walk, shape and shift are not known: a grid of hypotheses is tried, each
weighted by its marginal likelihood (Rasmussen, Williams, Gaussian Processes for Machine Learning, 2006, section 5.2).
"""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import logsumexp, ndtr

from paretune.studies.results.quality_model import Key

WANDER_NIGHTS = 15.0
_LEAST_WEIGHT = 0.01  # share of a hypothesis relative to that of the most likely one
_JITTER = 1e-9


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Assumptions about a value before any night: standard deviations, and surprises (negative log densities)."""

    level: float  # deviation of the value of any setting
    noise: float  # deviation of one run
    noises: Mapping[float, float]  # possible factors of `noise`, with the surprise of each
    walks: Sequence[float]  # possible deviations of the drift in one night, in units of `noise`
    shapes: Mapping[float, float]  # possible deviations between settings, with the surprise of each
    lengths: Sequence[float]
    """Length over which each number of a setting changes the value; the last holds for all further numbers."""
    kinds_alike: float  # correlation of two settings that differ in one categorical value
    slopes: Sequence[float] = ()  # deviations of the slope of a straight line over each number
    shifts: Mapping[float, float] = field(default_factory=lambda: {0.0: 0.0})
    """Possible deviations between groups, with the surprise of each."""


@dataclass(frozen=True)
class _Hypothesis:
    """Noise, walk, shape and shift of one point of the grid, with its fit to the values."""

    noise: float
    walk: float
    shape: float
    shift: float
    share: float
    cholesky: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class _Pairs:
    """Pairs of settings, shape (N, M): correlations, covariances of straight lines, and 1 within one group."""

    correlation: np.ndarray
    lines: np.ndarray
    same: np.ndarray


@dataclass(frozen=True)
class Mixture:
    """Predictions of N values by H hypotheses: H shares, means and deviations of shape (H, N), H noises of a run."""

    shares: np.ndarray
    means: np.ndarray
    deviations: np.ndarray
    noises: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """N expected values."""
        return np.asarray(self.shares @ self.means)

    def chance_below(self, limit: float | np.ndarray) -> np.ndarray:
        """N chances that the value of a new run, noise included, lies below the limit, or below N limits."""
        spread = np.hypot(self.deviations, self.noises[:, None])
        return np.asarray(self.shares @ ndtr((limit - self.means) / spread))


class DriftingProcess:
    """The process, fitted to V values of settings `keys` on `nights`, each relative to its expected value.

    `groups` are those of the V settings; by default all are in one group.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        nights: Sequence[float],
        values: Sequence[float],
        prior: Prior,
        groups: Sequence[Hashable] = (),
    ) -> None:
        self._prior = prior
        self._keys, self._groups = list(keys), list(groups)
        self._nights = np.array(nights, dtype=float)
        values_ = np.array(values, dtype=float)
        self._offset = float(np.median(values_)) if len(values_) else 0.0
        self._hypotheses = self._fit(values_ - self._offset)

    def predict(self, keys: Sequence[Key], night: float, groups: Sequence[Hashable] = ()) -> Mixture:
        """Predictions for N settings, each in its group, on a night."""
        across, nights = self._pairs(keys, self._keys, groups, self._groups), np.full(len(keys), night)
        lines = (self._centred(keys) ** 2).sum(axis=1)
        means, deviations = [], []
        for fit in self._hypotheses:
            covariance = self._covariance(fit, across, nights, self._nights)
            mean = covariance @ fit.weights
            half = self._half(fit, covariance)
            alone = self._prior.level**2 + fit.walk**2 * (night + WANDER_NIGHTS) + fit.shape**2 + fit.shift**2 + lines
            means.append(mean + self._offset)
            deviations.append(np.sqrt(np.maximum(alone - (half**2).sum(axis=0), 1e-12)))
        shares = np.array([fit.share for fit in self._hypotheses])
        noises = np.array([fit.noise for fit in self._hypotheses])
        return Mixture(shares, np.array(means), np.array(deviations), noises)

    def draw(self, keys: Sequence[Key], night: float, rng: np.random.Generator) -> np.ndarray:
        """One joint draw of N settings' values on a night, without noise."""
        shares = [fit.share for fit in self._hypotheses]
        fit = self._hypotheses[int(rng.choice(len(shares), p=shares))]
        nights = np.full(len(keys), night)
        within = self._covariance(fit, self._pairs(keys, keys), nights, nights)
        across = self._covariance(fit, self._pairs(keys, self._keys), nights, self._nights)
        half = self._half(fit, across)
        scatter = within - half.T @ half + _JITTER * np.eye(len(keys))
        values, vectors = np.linalg.eigh(scatter)
        deviation = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(keys)))
        return np.asarray(across @ fit.weights + self._offset + deviation)

    def _half(self, fit: _Hypothesis, across: np.ndarray) -> np.ndarray:
        if not self._keys:
            return np.zeros((0, len(across)))
        return np.asarray(solve_triangular(fit.cholesky, across.T, lower=True))

    def _fit(self, values: np.ndarray) -> list[_Hypothesis]:
        """The hypotheses that explain the values, with their shares."""
        prior, count = self._prior, len(values)
        pairs = self._pairs(self._keys, self._keys, self._groups, self._groups)
        fits, evidence = [], []
        grid = itertools.product(prior.noises.items(), prior.walks, prior.shapes.items(), prior.shifts.items())
        for (factor, surprise), walk, (shape, more), (shift, most) in grid:
            noise = prior.noise * factor
            fit = _Hypothesis(noise, walk * prior.noise, shape, shift, 1.0, np.zeros((0, 0)), np.zeros(0))
            covariance = self._covariance(fit, pairs, self._nights, self._nights)
            cholesky = np.linalg.cholesky(covariance + (noise**2 + _JITTER) * np.eye(count))
            weights = cho_solve((cholesky, True), values) if count else np.zeros(0)
            logarithm = -0.5 * float(values @ weights) - float(np.log(np.diag(cholesky)).sum())
            logarithm -= surprise + more + most
            fits.append(replace(fit, cholesky=cholesky, weights=weights))
            evidence.append(logarithm)
        shares = np.exp(np.array(evidence) - logsumexp(evidence))
        is_likely = shares >= _LEAST_WEIGHT * shares.max()
        total = float(shares[is_likely].sum())
        return [replace(fits[index], share=float(shares[index]) / total) for index in np.flatnonzero(is_likely)]

    def _covariance(self, fit: _Hypothesis, pairs: _Pairs, nights: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Covariances, shape (N, M), of the values of pairs of settings on N and M nights."""
        walk = fit.walk**2 * np.minimum(nights[:, None], others[None, :])
        wander = fit.walk**2 * WANDER_NIGHTS * np.exp(-np.abs(nights[:, None] - others[None, :]) / WANDER_NIGHTS)
        shape = pairs.correlation * (fit.shape**2 + wander)
        return np.asarray(self._prior.level**2 + walk + shape + fit.shift**2 * pairs.same + pairs.lines)

    def _pairs(
        self,
        keys: Sequence[Key],
        others: Sequence[Key],
        groups: Sequence[Hashable] = (),
        other_groups: Sequence[Hashable] = (),
    ) -> _Pairs:
        alike = correlations(keys, others, self._prior.lengths, self._prior.kinds_alike)
        same = [[group == other for other in other_groups] for group in groups]
        lines = self._centred(keys) @ self._centred(others).T
        return _Pairs(alike, lines, np.array(same, dtype=float) if groups and other_groups else np.ones_like(alike))

    def _centred(self, keys: Sequence[Key]) -> np.ndarray:
        """Numbers with a straight line, shape (N, S), relative to the first setting, times the slopes' deviations."""
        count = len(self._prior.slopes)
        if not keys or not self._keys:
            return np.zeros((len(keys), count))
        numbers = np.array([key[1][:count] for key in keys], dtype=float)
        return np.asarray(
            (numbers - np.array(self._keys[0][1][:count])) * np.array(self._prior.slopes)[: numbers.shape[1]]
        )


def correlations(
    keys: Sequence[Key], others: Sequence[Key], lengths: Sequence[float], kinds_alike: float
) -> np.ndarray:
    """Correlations of settings, shape (N, M), by their categorical values and numbers; arguments as in `Prior`."""
    if not keys or not others:
        return np.zeros((len(keys), len(others)))
    numbers, other_numbers = (np.array([key[1] for key in some], dtype=float) for some in (keys, others))
    widths = [lengths[min(index, len(lengths) - 1)] for index in range(numbers.shape[1])]
    distances = (numbers[:, None, :] - other_numbers[None, :, :]) / np.array(widths)
    ids: dict[tuple[int, str], int] = {}
    kinds, other_kinds = (
        np.array([[ids.setdefault((index, kind), len(ids)) for index, kind in enumerate(key[0])] for key in some])
        for some in (keys, others)
    )
    differing = (kinds[:, None, :] != other_kinds[None, :, :]).sum(axis=2)
    return np.asarray(np.exp(-0.5 * (distances**2).sum(axis=2)) * kinds_alike**differing)
