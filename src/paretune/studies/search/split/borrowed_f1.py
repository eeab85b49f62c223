"""F1 of any job of a study, from its own values and what earlier studies of the same model have shown.

Each earlier study is a hypothesis about this one; a further hypothesis is that none of them tells anything:

    none        F1 as `F1Model` predicts it from the own values alone
    a study     F1 = the prediction of that study's `F1Model` + a level + a difference, which is a Gaussian process

The size of the difference is the discount. Of each study there is one hypothesis for each size and each noise. Own
values give every hypothesis its posterior probability, by their likelihood; predictions are those of all hypotheses
(Hoeting et al., Bayesian Model Averaging, 1999), as `F1Model` does with powers. Probabilities before any own value are
sceptical, more so of other data. The deviation of a study's own prediction is a part of the difference.
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
_CORRELATION = 0.5  # correlation of differences of jobs that differ in kind
_MOST = 80  # values that one study is fitted to
_LEAST_SHARE = 1e-3  # of the probability, below which a hypothesis is left out of predictions


class Source:
    """One earlier study with a model of its F1, fitted once."""

    def __init__(self, study: EarlierStudy) -> None:
        self.study = study
        self.model = F1Model([key for key, _ in study.qualities], [quality for _, quality in study.qualities])

    def predict(self, keys: Sequence[Key], reference: float) -> tuple[np.ndarray, np.ndarray]:
        """N means and deviations of F1, warped as `F1Model` does below a reference value."""
        prediction = self.model.predict(keys)
        above = prediction.mean - reference
        below = np.minimum(above, 0.0)
        warped = np.where(prediction.mean < reference, -DEPTH * np.log1p(-below / DEPTH), above)
        return warped, prediction.deviation / (1 - below / DEPTH)


def sources_of(studies: Sequence[EarlierStudy], kinds: set[tuple[str, ...]]) -> list[Source]:
    """Models of the studies that have enough values of F1 of jobs of these kinds."""
    sources = []
    for study in studies:
        qualities = tuple((key, quality) for key, quality in study.qualities if key[0] in kinds)
        if len(qualities) >= FEWEST:
            sources.append(Source(replace(study, qualities=thinned(qualities, _MOST))))
    return sources


@dataclass
class _Points:
    """N keys: kinds, positions in units of the lengths, and mean and deviation that the source predicts."""

    kinds: np.ndarray
    positions: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


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
        variance = self.size**2 + points.deviation**2 + self._level**2
        if not len(self._residual):
            return points.mean, variance
        across = self._covariance(points, self._points)
        half = solve_triangular(self._cholesky, across.T, lower=True, check_finite=False)
        return points.mean + across @ self._weights, np.maximum(variance - (half**2).sum(axis=0), 1e-12)

    def condition_on(self, points: _Points) -> "_Difference":
        """A copy fitted as if N further points had their expected values."""
        if not len(self._residual):
            return self
        other = copy.copy(self)
        fitted = self._points
        both = _Points(*(np.concatenate([getattr(fitted, name), getattr(points, name)]) for name in vars(fitted)))
        other.fit(both, np.append(fitted.mean + self._residual, self.predict(points)[0]))
        return other

    def _covariance(self, left: _Points, right: _Points) -> np.ndarray:
        correlation = np.where(left.kinds[:, None] == right.kinds[None, :], 1.0, _CORRELATION)
        variance = self.size**2 + left.deviation[:, None] * right.deviation[None, :]
        return np.asarray(variance * correlation * matern(left.positions, right.positions) + self._level**2)


class BorrowedF1Model:
    """A model of F1 of any job, like `F1Model`, from N own values and from earlier studies.

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
        """Posterior probabilities: that of nothing to borrow, then those of the other hypotheses."""
        noises = np.exp([-0.5 * math.log(times) ** 2 for times in _NOISES])
        noises /= noises.sum()
        kin = [_KIN[source.study.is_same_data] for source in sources]
        sizes = [share * _LIKELY[source.study.is_same_data] for share, source in zip(kin, sources, strict=True)]
        prior = np.multiply.outer(np.array(sizes) / sum(kin), noises).ravel() * (1 - none)
        unborrowed = self._own.evidence_at_any_level() - 0.5 * math.log(2 * math.pi) - math.log(_LEVEL[False])
        has_values = any(len(difference._residual) for difference in self._differences)
        borrowed = (difference.evidence for difference in self._differences)
        posterior = np.log([none, *prior]) + np.array([unborrowed if has_values else 0.0, *borrowed])
        return np.asarray(np.exp(posterior - logsumexp(posterior)))

    @property
    def noise(self) -> float:
        """Standard deviation of one value, near the best, of the most likely hypothesis."""
        index = int(np.argmax(self._shares))
        return self._own.noise if index == 0 else self._differences[index - 1].noise

    def weights(self) -> Mapping[tuple[frozenset[str], bool], float]:
        """Parent runs of each earlier study, and whether its data are the same, to its probability."""
        weights = Counter[tuple[frozenset[str], bool]]()
        for share, difference in zip(self._shares[1:], self._differences, strict=True):
            study = difference.source.study
            weights[study.parents, study.is_same_data] += float(share)  # type: ignore[assignment]
        return weights

    def predict(self, keys: Sequence[Key]) -> F1Prediction:
        """Predict N points, without the noise of a single new value."""
        unborrowed = self._own.predict(keys)
        has_values = bool(len(self._differences[0]._residual))
        unknown = 0.0 if has_values else _LEVEL[False]
        mean = self._shares[0] * unborrowed.warped
        square = self._shares[0] * (unborrowed.warped**2 + unborrowed.spread**2 + unknown**2)
        points: dict[int, _Points] = {}
        for share, difference in zip(self._shares[1:], self._differences, strict=True):
            if share < _LEAST_SHARE:
                continue
            source = difference.source
            if id(source) not in points:
                points[id(source)] = self._points(keys, source)
            warped, variance = difference.predict(points[id(source)])
            mean, square = mean + share * warped, square + share * (warped**2 + variance)
        left_out = self._shares[1:][self._shares[1:] < _LEAST_SHARE].sum()
        mean, square = mean / (1 - left_out), square / (1 - left_out)
        return F1Prediction(mean, np.sqrt(np.maximum(square - mean**2, 1e-12)), self._best)

    def shift_evidence(self, clusters: Sequence[str]) -> float:
        """Return the evidence of `F1Model.shift_evidence` for the own values alone."""
        return self._own.shift_evidence(clusters)

    def condition_on(self, keys: Sequence[Key]) -> "BorrowedF1Model":
        """A copy fitted as if N further points had their expected values."""
        other = copy.copy(self)
        other._own = self._own.condition_on(keys)
        other._differences = [
            difference.condition_on(self._points(keys, difference.source)) for difference in self._differences
        ]
        return other

    def _reference(self, source: Source, top: Key | None) -> float:
        """F1 in the source that corresponds to the best own value; with the same data, that value itself."""
        if top is None:
            return source.model.best
        return self._best if source.study.is_same_data else float(source.model.predict([top]).mean[0])

    def _points(self, keys: Sequence[Key], source: Source) -> _Points:
        for kinds, _ in keys:
            self._kinds.setdefault(kinds, len(self._kinds))
        numbers = [numbers for _, numbers in along(keys, source.model.power)]
        mean, deviation = source.predict(keys, self._references[id(source)])
        return _Points(
            kinds=np.array([self._kinds[kinds] for kinds, _ in keys], dtype=int),
            positions=np.array(numbers, dtype=float).reshape(len(keys), len(F1_LENGTHS)) / F1_LENGTHS,
            mean=mean,
            deviation=deviation,
        )


def _warped(value: float, best: float) -> float:
    return -DEPTH * math.log1p((best - value) / DEPTH)
