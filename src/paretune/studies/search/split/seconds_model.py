"""Seconds of a row, as `method: split` learns them from probes and trainings: a step's latency, its rows, its exchange.

    seconds of a step = latency + per-device batch x seconds of a row on one device + exchange x share
    share             = 2 (n - 1) / n x (n / 2) ^ growth

for n instances. An all-reduce over a ring moves 2 (n - 1) / n of the gradients: growth 0. Where instances share a link
or wait for the slowest one it takes longer the more there are: with growth 1 further instances gain nothing once the
exchange is most of a step, above it they make a job slower. Each kind of cluster has its own four numbers, the first
three fitted in their logarithms; what they leave unexplained is a Gaussian process, as large as what they miss. Two
probes, with a small and a large batch, thus tell all batches of a type; how long n instances take is not known from
fewer than three numbers of instances.

`estimating.timing` has another model of a step, for another question: a job before anything of its kind has run. It
needs the model's architecture and the instance's data sheet, which a study of somebody's own model, or on a table of
recorded runs, may not have; and it shares its constants between all clusters, where a study can measure each one.
Both are fitted by `estimating.posterior.fit`.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from paretune.estimating.noise import SECONDS_DEGREES, SECONDS_NOISE
from paretune.estimating.posterior import Noise, covariance_of, fit
from paretune.studies.results.quality_model import ALIKE, LENGTH, Key, NormalPrediction, Prior, Surface

_USUAL = np.array([*np.log([0.03, 0.01, 0.02]), 0.0])  # seconds: latency, a row, an exchange; growth
_SPREAD = np.array([1.5, 2.0, 1.5, 1.0])  # of three logarithms and growth between clusters
Fitted = Mapping[tuple[str, ...], tuple[np.ndarray, np.ndarray]]
"""Kinds of clusters to their four numbers and the covariance of these."""
_UNEXPLAINED = 0.05  # relative, at the least
_NOISE = math.hypot(SECONDS_NOISE, _UNEXPLAINED / 2)  # of what was measured around the four numbers, at the least
_OF_SECONDS: Mapping[str, Any] = {"noise": SECONDS_NOISE, "degrees": SECONDS_DEGREES, "is_ragged": False}
_USUAL_JOB_S, _JOB_SPREAD = 300.0, 1.5  # of a whole job before any has run: a minute to 25, at two in three
_NOISE_WEIGHT = 2.0  # measurements that it counts like: those of a study soon say how much they scatter


class Earlier(Protocol):
    """A prior for kinds of clusters from earlier studies; `noise` as that of `SecondsModel`."""

    noise: float

    def given(self, keys: Sequence[Key], log_seconds: Sequence[float]) -> Fitted:
        """Kinds to their likely four numbers and covariance, after N own jobs."""
        ...


class SecondsModel:
    """Logarithms of the seconds a row takes on N clusters: kinds, and log2 of instances and of the per-device batch.

    `earlier` is a prior for some kinds; others get the usual one. `noise` is the relative deviation of one value.
    """

    def __init__(
        self, keys: Sequence[Key], log_seconds_per_row: Sequence[float], earlier: Earlier | None = None
    ) -> None:
        self._keys, self._values = list(keys), list(log_seconds_per_row)
        values = np.array(log_seconds_per_row, dtype=float)
        self.noise = self._usual_noise = _NOISE if earlier is None else max(_NOISE, earlier.noise)
        self._priors = earlier.given(keys, log_seconds_per_row) if earlier is not None else {}
        self.fitted = self._by_kind(keys, values, learn=True)
        usual = np.mean([parts for parts, _ in self.fitted.values()], axis=0) if keys else _USUAL
        self._unseen = usual, np.diag(_SPREAD**2)
        missed = values - self._explained(keys).mean
        spread = max(_UNEXPLAINED, float(np.sqrt(np.mean(missed**2)))) if keys else _UNEXPLAINED
        prior = Prior(lengths=(2.0, 2.0), spread=spread, alike=0.2, level=0.0, **_OF_SECONDS)
        self._rest = Surface(keys, list(missed), prior)

    def condition_on(self, keys: Sequence[Key]) -> "SecondsModel":
        """A copy fitted as if N further clusters had taken their expected seconds."""
        other = copy.copy(self)
        values = np.append(self._values, self.predict(keys).mean)
        other.fitted = self._by_kind([*self._keys, *keys], values)
        other._rest = self._rest.condition_on(keys)
        return other

    def predict(self, keys: Sequence[Key]) -> NormalPrediction:
        """Predict N clusters, without the noise of a single new value."""
        explained, rest = self._explained(keys), self._rest.predict(keys)
        return NormalPrediction(explained.mean + rest.mean, np.hypot(explained.deviation, rest.deviation))

    def _explained(self, keys: Sequence[Key]) -> NormalPrediction:
        """Predict N clusters by the four numbers of each kind alone."""
        mean, deviation = np.zeros(len(keys)), np.zeros(len(keys))
        for kinds in dict.fromkeys(kinds for kinds, _ in keys):
            at = [index for index, key in enumerate(keys) if key[0] == kinds]
            parts, covariance = self.fitted.get(kinds) or self._priors.get(kinds) or self._unseen
            mean[at], slopes = seconds_with(np.array([keys[index][1] for index in at]), parts)
            deviation[at] = np.sqrt(np.einsum("ij,jk,ik->i", slopes, covariance, slopes))
        return NormalPrediction(mean, deviation)

    def _prior(self, kinds: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The four numbers that are likely of a kind, and what makes independent unit deviations of theirs."""
        if kinds not in self._priors:
            return _USUAL, np.diag(1 / _SPREAD)
        parts, covariance = self._priors[kinds]
        return parts, np.linalg.inv(np.linalg.cholesky(covariance))

    def _by_kind(self, keys: Sequence[Key], values: np.ndarray, *, learn: bool = False) -> Fitted:
        """The four numbers of each kind of cluster, and their covariance; `learn` how much measurements scatter."""
        numbers = np.array([numbers for _, numbers in keys], dtype=float).reshape(len(keys), 2)
        indices = {kinds: [at for at, key in enumerate(keys) if key[0] == kinds] for kinds, _ in keys}
        priors = {kinds: self._prior(kinds) for kinds in indices}
        parts = {kinds: _fit(numbers[at], values[at], *priors[kinds]) for kinds, at in indices.items()}
        slopes = {kinds: seconds_with(numbers[at], parts[kinds])[1] for kinds, at in indices.items()}
        if learn and keys:
            misfits = [seconds_with(numbers[at], parts[kinds])[0] - values[at] for kinds, at in indices.items()]
            fitted = sum(_effective(slope, priors[kinds][1]) for kinds, slope in slopes.items())
            usual = Noise(value=self._usual_noise, weight=_NOISE_WEIGHT)
            self.noise = max(_NOISE, usual.updated(np.concatenate(misfits), fitted))
        return {
            kinds: (parts[kinds], _covariance(slope, self.noise, priors[kinds][1])) for kinds, slope in slopes.items()
        }


def job_seconds_model(keys: Sequence[Key], log_seconds: Sequence[float], width: int) -> Surface:
    """Logarithms of the seconds of whole jobs over `width` searched numbers, for a training of the user's own."""
    lengths = (LENGTH,) * width
    prior = Prior(
        lengths=lengths, spread=_JOB_SPREAD, usual=math.log(_USUAL_JOB_S), level=_JOB_SPREAD, alike=ALIKE, **_OF_SECONDS
    )
    return Surface(keys, log_seconds, prior)


def seconds_with(numbers: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the seconds of a row on N clusters, and their derivatives by the four numbers, N by 4."""
    instances, batch = 2.0 ** numbers[:, 0], 2.0 ** numbers[:, 1]
    moved = 2 * (instances - 1) / instances * (instances / 2) ** parts[3]
    terms = np.exp(parts[:3]) * np.stack([np.ones(len(numbers)), batch, moved], axis=1)
    step = terms.sum(axis=1)
    slopes = np.column_stack([terms, terms[:, 2] * np.log(instances / 2)]) / step[:, None]
    return np.log(step / (batch * instances)), slopes


def _fit(numbers: np.ndarray, values: np.ndarray, usual: np.ndarray, whitening: np.ndarray) -> np.ndarray:
    def residuals(parts: np.ndarray) -> np.ndarray:
        return np.concatenate([(seconds_with(numbers, parts)[0] - values) / _NOISE, whitening @ (parts - usual)])

    def slopes(parts: np.ndarray) -> np.ndarray:
        return _with_priors(seconds_with(numbers, parts)[1], _NOISE, whitening)

    # Where to begin: as fast as the values say, split between latency and rows as is usual.
    start = usual + np.array([1, 1, 1, 0]) * np.median(values - seconds_with(numbers, usual)[0])
    return fit(residuals, start, _SPREAD, slopes)


def _with_priors(slopes: np.ndarray, noise: float, whitening: np.ndarray) -> np.ndarray:
    """Derivatives of all residuals by the four numbers, in standard deviations: those of the priors below."""
    return np.concatenate([slopes / noise, whitening])


def _covariance(slopes: np.ndarray, noise: float, whitening: np.ndarray) -> np.ndarray:
    return covariance_of(_with_priors(slopes, noise, whitening))


def _effective(slopes: np.ndarray, whitening: np.ndarray) -> float:
    """The number of the four constants that N measurements have fixed, from N by 4 derivatives."""
    return float(np.einsum("ij,jk,ik->", slopes, _covariance(slopes, _NOISE, whitening), slopes)) / _NOISE**2
