"""F1 of any job of a study, from its own values and what earlier studies of the same model have shown.

Each earlier study is a hypothesis about this one, and so is that none of them tells anything:

    none        F1 is what `F1Model` says of the own values alone
    a study     F1 = what that study's `F1Model` says + a level + a difference, which is a Gaussian process

The size of the difference is the discount. Of each study there is one hypothesis for each size and each noise. Own
values give every hypothesis its posterior probability, by their likelihood; predictions are those of all hypotheses
(Hoeting et al., Bayesian Model Averaging, 1999), as `F1Model` does with powers. Probabilities before any own value are
sceptical, more so of other data. What a study does not know, its own deviation, is a part of the difference.
"""

import copy
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from paretune.estimating.noise import F1_NOISE
from paretune.studies.results.f1_model import DEPTH, F1_LENGTHS, F1Model, F1Prediction, Key, along, matern
from paretune.studies.search.split.earlier import FEWEST, EarlierStudy, thinned

_NONE = {True: 0.25, False: 0.4}
"""Probability that earlier studies tell nothing, where one of them is of the same data, and where none is."""
_DIFFERENCES = (0.003, 0.007, 0.02)  # of F1 between two studies: standard deviations, the level apart
_LIKELY = {
    True: np.array([0.5, 0.3, 0.2]),
    False: np.array([0.1, 0.4, 0.5]),
}  # probabilities of these, of the same data and of other data
_KIN = {True: 3.0, False: 1.0}  # times as likely as a study of other data is to be the one that tells most
_LEVEL = {True: 0.01, False: 0.1}  # standard deviation of the level that two studies differ by
_NOISES = (0.4, 1.0, 2.5)  # times F1_NOISE
_ALIKE = 0.5  # correlation of differences of jobs that differ in kind
_MOST = 80  # values that one study is fitted to
_LEAST_SHARE = 1e-3  # of the probability, below which a hypothesis is left out of predictions


class Source:
    """What one earlier study says of F1, fitted once."""

    def __init__(self, study: EarlierStudy) -> None:
        self.study = study
        self.model = F1Model([key for key, _ in study.worths], [worth for _, worth in study.worths])

    def told(self, keys: Sequence[Key], reference: float) -> tuple[np.ndarray, np.ndarray]:
        """N means and deviations of F1, warped as `F1Model` does below a reference value."""
        found = self.model.predict(keys)
        below = np.minimum(found.mean - reference, 0.0)
        warped = np.where(found.mean < reference, -DEPTH * np.log1p(-below / DEPTH), found.mean - reference)
        return warped, found.deviation / (1 - below / DEPTH)


def sources_of(studies: Sequence[EarlierStudy], kinds: set[tuple[str, ...]]) -> list[Source]:
    """Studies with enough values of F1 of jobs of these kinds, each fitted to those."""
    found = []
    for study in studies:
        worths = tuple((key, worth) for key, worth in study.worths if key[0] in kinds)
        if len(worths) >= FEWEST:
            found.append(Source(replace(study, worths=thinned(worths, _MOST))))
    return found


@dataclass
class _Points:
    """Keys as a difference sees them: kinds, places in units of its lengths, what the source says, and its doubt."""

    kinds: np.ndarray
    places: np.ndarray
    mean: np.ndarray
    doubt: np.ndarray


class _Difference:
    """One hypothesis: a source, how far this study is from it, and the noise of a value."""

    def __init__(self, source: Source, size: float, noise: float) -> None:
        self.source, self.size, self.noise = source, size, noise
        self._level = _LEVEL[source.study.is_same_data]
        self.evidence = 0.0
        self._cholesky = np.zeros((0, 0))

    def fit(self, points: _Points, values: np.ndarray) -> None:
        """Learn from N warped values."""
        self._points = points
        self._residual = values - points.mean
        if not len(values):
            return
        covariance = self._covariance(points, points)
        covariance[np.diag_indices_from(covariance)] += self.noise**2
        self._cholesky = np.linalg.cholesky(covariance)
        half = solve_triangular(self._cholesky, self._residual, lower=True)
        self._weights = solve_triangular(self._cholesky, half, trans="T", lower=True)
        self.evidence = float(-0.5 * half @ half - np.log(np.diag(self._cholesky)).sum())

    def predict(self, points: _Points) -> tuple[np.ndarray, np.ndarray]:
        """N warped means and variances."""
        variance = self.size**2 + points.doubt**2 + self._level**2
        if not len(self._residual):
            return points.mean, variance
        across = self._covariance(points, self._points)
        half = solve_triangular(self._cholesky, across.T, lower=True, check_finite=False)
        return points.mean + across @ self._weights, np.maximum(variance - (half**2).sum(axis=0), 1e-12)

    def condition_on(self, points: _Points) -> "_Difference":
        """The same, as if N further points had shown what is expected of them."""
        if not len(self._residual):
            return self
        other = copy.copy(self)
        known = self._points
        together = _Points(*(np.concatenate([getattr(known, name), getattr(points, name)]) for name in vars(known)))
        other.fit(together, np.append(known.mean + self._residual, self.predict(points)[0]))
        return other

    def _covariance(self, one: _Points, other: _Points) -> np.ndarray:
        alike = np.where(one.kinds[:, None] == other.kinds[None, :], 1.0, _ALIKE)
        own = self.size**2 + one.doubt[:, None] * other.doubt[None, :]
        return np.asarray(own * alike * matern(one.places, other.places) + self._level**2)


class BorrowedF1Model:
    """F1 of any job, as `F1Model` tells it, from N own values and from what is borrowed.

    Args:
        keys: N points.
        f1: N values, more being better.
        sources: at least one.
    """

    def __init__(self, keys: Sequence[Key], f1: Sequence[float], sources: Sequence[Source]) -> None:
        self._own = F1Model(keys, f1)
        self._kinds: dict[tuple[str, ...], int] = {}
        self._best = self._own.best if f1 else sources[0].model.best
        top = keys[f1.index(self._best)] if f1 else None
        self._references = {id(source): self._reference(source, top) for source in sources}
        values = np.array([_warped(value, self._best) for value in f1])
        is_same = any(source.study.is_same_data for source in sources)
        self._differences = [
            _Difference(source, size, times * F1_NOISE)
            for source, size, times in itertools.product(sources, _DIFFERENCES, _NOISES)
        ]
        points = {id(source): self._points(keys, source) for source in sources}
        for difference in self._differences:
            difference.fit(points[id(difference.source)], values)
        self._shares = self._posterior(sources, _NONE[is_same])

    def _posterior(self, sources: Sequence[Source], none: float) -> np.ndarray:
        """Probabilities: first that of nothing to borrow, then those of the hypotheses."""
        noises = np.exp([-0.5 * math.log(times) ** 2 for times in _NOISES])
        noises /= noises.sum()
        kin = [_KIN[source.study.is_same_data] for source in sources]
        sizes = [share * _LIKELY[source.study.is_same_data] for share, source in zip(kin, sources, strict=True)]
        prior = np.multiply.outer(np.array(sizes) / sum(kin), noises).ravel() * (1 - none)
        own = self._own.evidence_at_any_level() - 0.5 * math.log(2 * math.pi) - math.log(_LEVEL[False])
        has_values = any(len(one._residual) for one in self._differences)
        evidence = np.array([own if has_values else 0.0, *(one.evidence for one in self._differences)])
        likely = np.log([none, *prior]) + evidence
        return np.asarray(np.exp(likely - logsumexp(likely)))

    @property
    def noise(self) -> float:
        """Standard deviation of one value, near the best, of the most likely hypothesis."""
        place = int(np.argmax(self._shares))
        return self._own.noise if place == 0 else self._differences[place - 1].noise

    def weights(self) -> Mapping[tuple[frozenset[str], bool], float]:
        """Parents of each earlier study, and whether it is of the same data, to its probability."""
        found = Counter[tuple[frozenset[str], bool]]()
        for share, one in zip(self._shares[1:], self._differences, strict=True):
            found[one.source.study.parents, one.source.study.is_same_data] += float(share)  # type: ignore[assignment]
        return found

    def predict(self, keys: Sequence[Key]) -> F1Prediction:
        """What N points are, a single new value's noise not included."""
        own = self._own.predict(keys)
        has_values = bool(len(self._differences[0]._residual))
        unknown = 0.0 if has_values else _LEVEL[False]
        mean = self._shares[0] * own.warped
        square = self._shares[0] * (own.warped**2 + own.spread**2 + unknown**2)
        points: dict[int, _Points] = {}
        for share, one in zip(self._shares[1:], self._differences, strict=True):
            if share < _LEAST_SHARE:
                continue
            if id(one.source) not in points:
                points[id(one.source)] = self._points(keys, one.source)
            found, variance = one.predict(points[id(one.source)])
            mean, square = mean + share * found, square + share * (found**2 + variance)
        left_out = self._shares[1:][self._shares[1:] < _LEAST_SHARE].sum()
        mean, square = mean / (1 - left_out), square / (1 - left_out)
        return F1Prediction(mean, np.sqrt(np.maximum(square - mean**2, 1e-12)), self._best)

    def shift_evidence(self, clusters: Sequence[str]) -> float:
        """As that of `F1Model`, of the own values alone."""
        return self._own.shift_evidence(clusters)

    def condition_on(self, keys: Sequence[Key]) -> "BorrowedF1Model":
        """The same, as if N further points had shown what is expected of them."""
        other = copy.copy(self)
        other._own = self._own.condition_on(keys)
        other._differences = [one.condition_on(self._points(keys, one.source)) for one in self._differences]
        return other

    def _reference(self, source: Source, top: Key | None) -> float:
        """F1 in the source that the best own value stands for: of the same data that value itself."""
        if top is None:
            return source.model.best
        return self._best if source.study.is_same_data else float(source.model.predict([top]).mean[0])

    def _points(self, keys: Sequence[Key], source: Source) -> _Points:
        for kinds, _ in keys:
            self._kinds.setdefault(kinds, len(self._kinds))
        numbers = [numbers for _, numbers in along(keys, source.model.power)]
        mean, doubt = source.told(keys, self._references[id(source)])
        return _Points(
            kinds=np.array([self._kinds[kinds] for kinds, _ in keys], dtype=int),
            places=np.array(numbers, dtype=float).reshape(len(keys), len(F1_LENGTHS)) / F1_LENGTHS,
            mean=mean,
            doubt=doubt,
        )


def _warped(value: float, best: float) -> float:
    return -DEPTH * math.log1p((best - value) / DEPTH)
