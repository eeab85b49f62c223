"""A value that depends on a job's setting and drifts from night to night: a Gaussian process over both.

    value = level + walk(night) + line(setting) + shape(setting) + shift(group) + wander(setting, night) + noise

`walk` is a random walk that all settings share, as when the data become harder or more; `shape` is what settings
differ by beyond a straight `line` over such numbers as epochs; `shift` is what all settings of a group, such as a
cluster, have in common; `wander` is how shapes change: it forgets within WANDER_NIGHTS. So an old night counts the
less, the more nights have shown that values drift. How large noise, walk, shape and shift are is not known: a grid of
them is tried, each weighted by how likely it makes what was seen (Rasmussen and Williams, Gaussian Processes for
Machine Learning, 2006, section 5.2).
"""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import logsumexp, ndtr

from paretune.studies.results.f1_model import Key

WANDER_NIGHTS = 15.0
_LEAST_WEIGHT = 0.01  # of a hypothesis, against that of the most likely one
_JITTER = 1e-9


@dataclass(frozen=True, kw_only=True)
class Usual:
    """What is likely of a value before any night has been seen; standard deviations.

    Attributes:
        level: of the value of any setting at all.
        noise: of one run.
        noises: factors of `noise` that are possible, to how surprising each is, a negative logarithm.
        walks: of the drift in one night, in `noise`.
        shapes: of what settings differ by, to how surprising each is.
        lengths: over which the numbers of a setting change the value; the last one holds for all further numbers.
        kinds_alike: correlation of two settings that differ in one kind.
        slopes: of a straight line over each number, as far as there are any.
        shifts: of what groups differ by, to how surprising each is.
    """

    level: float
    noise: float
    noises: Mapping[float, float]
    walks: Sequence[float]
    shapes: Mapping[float, float]
    lengths: Sequence[float]
    kinds_alike: float
    slopes: Sequence[float] = ()
    shifts: Mapping[float, float] = field(default_factory=lambda: {0.0: 0.0})


@dataclass(frozen=True)
class _Hypothesis:
    """Noise, walk, shape and shift of one row of the grid, with what was fitted to the values."""

    noise: float
    walk: float
    shape: float
    shift: float
    share: float
    cholesky: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class _Pairs:
    """N by M pairs of settings: how alike they are, 0 to 1, the covariance of straight lines, and 1 in one group."""

    likeness: np.ndarray
    lines: np.ndarray
    same: np.ndarray


@dataclass(frozen=True)
class Mixture:
    """N values as each of H hypotheses expects them: H shares, H by N means and deviations, H noises of a new run."""

    shares: np.ndarray
    means: np.ndarray
    deviations: np.ndarray
    noises: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """N expected values."""
        return np.asarray(self.shares @ self.means)

    def chance_below(self, limit: float | np.ndarray) -> np.ndarray:
        """N chances that a new run's value, its noise included, lies below a limit, or each below its own."""
        spread = np.hypot(self.deviations, self.noises[:, None])
        return np.asarray(self.shares @ ndtr((limit - self.means) / spread))


class DriftingProcess:
    """The process, given V values of settings `keys` on `nights`, each less what was expected of it anyway.

    `groups` are those of the V settings; without them all are of one.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        nights: Sequence[float],
        values: Sequence[float],
        usual: Usual,
        groups: Sequence[Hashable] = (),
    ) -> None:
        self._usual = usual
        self._keys, self._groups = list(keys), list(groups)
        self._nights = np.array(nights, dtype=float)
        values_ = np.array(values, dtype=float)
        self._offset = float(np.median(values_)) if len(values_) else 0.0
        self._hypotheses = self._fit(values_ - self._offset)

    def predict(self, keys: Sequence[Key], night: float, groups: Sequence[Hashable] = ()) -> Mixture:
        """What N settings, each of its group, show on a night."""
        across, nights = self._pairs(keys, self._keys, groups, self._groups), np.full(len(keys), night)
        lines = (self._centred(keys) ** 2).sum(axis=1)
        means, deviations = [], []
        for one in self._hypotheses:
            prior = self._covariance(one, across, nights, self._nights)
            mean = prior @ one.weights
            half = solve_triangular(one.cholesky, prior.T, lower=True) if len(self._keys) else np.zeros((0, len(keys)))
            alone = self._usual.level**2 + one.walk**2 * (night + WANDER_NIGHTS) + one.shape**2 + one.shift**2 + lines
            means.append(mean + self._offset)
            deviations.append(np.sqrt(np.maximum(alone - (half**2).sum(axis=0), 1e-12)))
        shares = np.array([one.share for one in self._hypotheses])
        noises = np.array([one.noise for one in self._hypotheses])
        return Mixture(shares, np.array(means), np.array(deviations), noises)

    def draw(self, keys: Sequence[Key], night: float, rng: np.random.Generator) -> np.ndarray:
        """One of the possible truths about N settings on a night, noise left out: drawn for all of them together."""
        one = self._hypotheses[int(rng.choice(len(self._hypotheses), p=[one.share for one in self._hypotheses]))]
        nights = np.full(len(keys), night)
        own = self._covariance(one, self._pairs(keys, keys), nights, nights)
        across = self._covariance(one, self._pairs(keys, self._keys), nights, self._nights)
        half = solve_triangular(one.cholesky, across.T, lower=True) if len(self._keys) else np.zeros((0, len(keys)))
        scatter = own - half.T @ half + _JITTER * np.eye(len(keys))
        values, vectors = np.linalg.eigh(scatter)
        off = vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(keys)))
        return np.asarray(across @ one.weights + self._offset + off)

    def _fit(self, values: np.ndarray) -> list[_Hypothesis]:
        """The grid's rows that explain the values, with their shares."""
        usual, count = self._usual, len(values)
        pairs = self._pairs(self._keys, self._keys, self._groups, self._groups)
        found, evidence = [], []
        grid = itertools.product(usual.noises.items(), usual.walks, usual.shapes.items(), usual.shifts.items())
        for (factor, surprise), walk, (shape, more), (shift, most) in grid:
            noise = usual.noise * factor
            one = _Hypothesis(noise, walk * usual.noise, shape, shift, 1.0, np.zeros((0, 0)), np.zeros(0))
            covariance = self._covariance(one, pairs, self._nights, self._nights)
            cholesky = np.linalg.cholesky(covariance + (noise**2 + _JITTER) * np.eye(count))
            weights = cho_solve((cholesky, True), values) if count else np.zeros(0)
            logarithm = -0.5 * float(values @ weights) - float(np.log(np.diag(cholesky)).sum())
            logarithm -= surprise + more + most
            found.append((one, cholesky, weights))
            evidence.append(logarithm)
        shares = np.exp(np.array(evidence) - logsumexp(evidence))
        kept = shares >= _LEAST_WEIGHT * shares.max()
        total = float(shares[kept].sum())
        return [
            replace(one, share=float(share) / total, cholesky=cholesky, weights=weights)
            for (one, cholesky, weights), share, is_kept in zip(found, shares, kept, strict=True)
            if is_kept
        ]

    def _covariance(self, one: _Hypothesis, pairs: _Pairs, nights: np.ndarray, others: np.ndarray) -> np.ndarray:
        """N by M covariances of the values of pairs of settings on N and M nights."""
        shared = np.minimum(nights[:, None], others[None, :])
        apart = np.exp(-np.abs(nights[:, None] - others[None, :]) / WANDER_NIGHTS)
        own = pairs.likeness * (one.shape**2 + one.walk**2 * WANDER_NIGHTS * apart)
        shift = one.shift**2 * pairs.same
        return np.asarray(self._usual.level**2 + one.walk**2 * shared + own + shift + pairs.lines)

    def _pairs(
        self,
        keys: Sequence[Key],
        others: Sequence[Key],
        groups: Sequence[Hashable] = (),
        other_groups: Sequence[Hashable] = (),
    ) -> _Pairs:
        alike = likeness(keys, others, self._usual.lengths, self._usual.kinds_alike)
        same = [[one == other for other in other_groups] for one in groups]
        lines = self._centred(keys) @ self._centred(others).T
        return _Pairs(alike, lines, np.array(same, dtype=float) if groups and other_groups else np.ones_like(alike))

    def _centred(self, keys: Sequence[Key]) -> np.ndarray:
        """N by S numbers that have a line, from those of the first setting on, times the deviations of the slopes."""
        count = len(self._usual.slopes)
        if not keys or not self._keys:
            return np.zeros((len(keys), count))
        numbers = np.array([key[1][:count] for key in keys], dtype=float)
        return np.asarray(
            (numbers - np.array(self._keys[0][1][:count])) * np.array(self._usual.slopes)[: numbers.shape[1]]
        )


def likeness(keys: Sequence[Key], others: Sequence[Key], lengths: Sequence[float], kinds_alike: float) -> np.ndarray:
    """N by M correlations of settings by their kinds and numbers; `lengths` and `kinds_alike` as in `Usual`."""
    if not keys or not others:
        return np.zeros((len(keys), len(others)))
    numbers, other_numbers = (np.array([key[1] for key in some], dtype=float) for some in (keys, others))
    widths = [lengths[min(at, len(lengths) - 1)] for at in range(numbers.shape[1])]
    apart = (numbers[:, None, :] - other_numbers[None, :, :]) / np.array(widths)
    ids: dict[tuple[int, str], int] = {}
    kinds, other_kinds = (
        np.array([[ids.setdefault((at, kind), len(ids)) for at, kind in enumerate(key[0])] for key in some])
        for some in (keys, others)
    )
    differing = (kinds[:, None, :] != other_kinds[None, :, :]).sum(axis=2)
    return np.asarray(np.exp(-0.5 * (apart**2).sum(axis=2)) * kinds_alike**differing)
