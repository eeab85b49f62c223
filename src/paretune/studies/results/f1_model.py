"""F1 of any job of a study, from those that have run: a Gaussian process along the ridge of good learning rates.

`method: split` chooses by it, and a study states F1 as this model estimates it: the best of many noisy values owes much
to its noise, so a value counts as far as its neighbours support it (shrinkage).
"""

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import logsumexp

from paretune.estimating.noise import F1_NOISE
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec

Key = tuple[tuple[str, ...], tuple[float, ...]]
"""Categorical values and numbers that a metric depends on."""

# Tried when a process is fitted, relative to what was likely before.
_FEWEST = 5  # values, before anything but their weights is fitted to them
_SCALES = (0.35, 0.6, 1.0, 1.6)
_STRETCHES = (0.6, 1.0, 1.7)
_NOISES = (0.4, 1.0, 2.0, 4.0)
_APART = {0.0: 0.0, 0.006: 1.0}
"""Standard deviations of a cluster's effect on F1, with the surprise (negative log prior) of each."""
_USUAL_F1 = 0.8  # before any is known
DEPTH = 0.05
"""Distance of F1 below the best beyond which differences count less and less."""
F1_LENGTHS = (6.0, 1.5, 1.0)
"""Lengths over which F1 changes: log2 global batch size, log learning rate along the ridge, log epochs."""
_FALL = 0.004  # of F1 by a rate that is e times the best one or an e-th of it; four times that for e squared
_MORE_EPOCHS = 0.01  # of F1, by e times as many epochs
_USUAL_PLACE = (4.0, math.log(5e-5), 0.0)  # of the best F1, before any is known
_RISE = 0.15  # of what the best F1 lacks to 1: the most that another setting is thought to add to it
_ROOT = 0.5
_POWERS = (0.0, _ROOT, 1.0)
_LEAST_SHARE = 0.02  # of a power's posterior probability, against that of the most likely one
_SHIFTS = (0.005, 0.015, 0.05)  # of F1 between clusters where it does depend on them: standard deviations
FREEDOM = 5.0
"""Degrees of freedom: the scale of all deviations is known about as well as from so many values."""


@dataclass(frozen=True)
class NormalPrediction:
    """Means and standard deviations of N values."""

    mean: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True)
class F1Prediction:
    """F1 of N values, from a fit to warped values, in which values far below the best count less.

    `warped` are N means, 0 for the best value, and `spread` their standard deviations; `best` is the largest F1 seen.
    """

    warped: np.ndarray
    spread: np.ndarray
    best: float

    @property
    def mean(self) -> np.ndarray:
        """N expected values."""
        return self.at(0.0)

    @property
    def deviation(self) -> np.ndarray:
        """N standard deviations."""
        return np.asarray(self.spread * np.exp(-np.minimum(self.warped, 0.0) / DEPTH))

    def at(self, deviations: float) -> np.ndarray:
        """N values this many standard deviations above the mean; not far above the best that was measured."""
        warped = self.warped + deviations * self.spread
        most = _RISE * (1.0 - self.best) + 1e-9
        above = most * (1 - np.exp(-np.maximum(warped, 0.0) / most))
        below = DEPTH * (np.exp(-np.minimum(warped, 0.0) / DEPTH) - 1)
        return np.clip(self.best + above - below, 0.0, 1.0)


class GaussianProcess:
    """A Gaussian process over kinds and numbers, with a straight line as its mean.

    `evidence` is the logarithm of the posterior of what was fitted, up to a constant.

    Args:
        keys: N points.
        values: N values.
        noise: standard deviation of one value, or of each.
        slopes: prior slopes of the mean, one per number; 0 if nothing is known.
        scale: prior standard deviation around that line.
        lengths: lengths over which such deviations change, one per number.
        kinds_alike: correlation of two points that differ in a categorical value.
        noises: possible factors of `noise` with the surprise of each; {1.0: 0.0} if the noise is known.
        groups: N groups, such as instance types, each with an effect of its own; None for no such effect.
        apart: standard deviation of a group's effect.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        values: Sequence[float],
        *,
        noise: float | np.ndarray,
        slopes: Sequence[float],
        scale: float,
        lengths: Sequence[float],
        kinds_alike: float,
        noises: Mapping[float, float] | None = None,
        groups: Sequence[str] | None = None,
        apart: float = 0.0,
    ) -> None:
        self._kinds = {kinds: index for index, kinds in enumerate(dict.fromkeys(kinds for kinds, _ in keys))}
        self._slopes, self.noise, self._usual_noise = np.array(slopes), noise, noise
        named = np.array(groups or ())
        self._shared: float | np.ndarray = apart**2 * (named[:, None] == named[None, :]) if apart else 0.0
        self._noises = noises or {1.0: 0.0}
        self._prior_lengths, self._alike = np.array(lengths), kinds_alike
        self._kind_indices, self._numbers = self._split(keys)
        self._values = np.array(values, dtype=float)
        self._scale, self._lengths = scale, self._prior_lengths
        self._offset = self.evidence = 0.0
        if len(values):
            residual = self._values - self._numbers @ self._slopes
            self._offset = float(np.median(residual))
            self._residual = residual - self._offset
            self._fit()

    def predict(self, keys: Sequence[Key]) -> NormalPrediction:
        """Predicted values of N points, without the noise of a new run."""
        indices, numbers = self._split(keys)
        mean = numbers @ self._slopes + self._offset
        if not len(self._values):
            return NormalPrediction(mean, np.full(len(keys), self._scale))
        across = self._kernel(indices, numbers, self._kind_indices, self._numbers)
        mean = mean + across @ self._weights
        half = solve_triangular(self._cholesky, across.T, lower=True)
        variance = np.maximum(self._scale**2 - (half**2).sum(axis=0), 1e-12)
        return NormalPrediction(mean, np.sqrt(variance))

    def condition_on(self, keys: Sequence[Key]) -> "GaussianProcess":
        """The process conditioned on N further points, as if each had shown its expected value.

        Only for a process with one noise for all values and without groups.
        """
        if not len(self._values):
            return self
        other = copy.copy(self)
        indices, numbers = self._split(keys)
        expected = self.predict(keys).mean - numbers @ self._slopes - self._offset
        other._kind_indices = np.append(self._kind_indices, indices)
        other._numbers = np.vstack([self._numbers, numbers])
        other._residual = np.append(self._residual, expected)
        other._likelihood()
        return other

    def at_its_values(self) -> NormalPrediction:
        """Estimated values of the N points that it was fitted to, without their noise."""
        noise = np.broadcast_to(np.asarray(self.noise) ** 2, self._values.shape)
        inverse = cho_solve((self._cholesky, True), np.eye(len(self._values)))
        variance = np.maximum(noise - noise**2 * np.diag(inverse), 1e-12)
        return NormalPrediction(self._values - noise * self._weights, np.sqrt(variance))

    def evidence_at_any_level(self) -> float:
        """`evidence` with the level of the values integrated out under a flat prior.

        A single value is then evidence for nothing but the level.
        """
        if not len(self._values):
            return 0.0
        ones = np.ones(len(self._values))
        precise = cho_solve((self._cholesky, True), ones)
        information = float(ones @ precise)
        off = float(precise @ self._residual) / information
        return self.evidence + 0.5 * information * off**2 + 0.5 * math.log(2 * math.pi / information)

    def shift_evidence(self, groups: Sequence[str]) -> float:
        """Logarithm of the Bayes factor for shifts between the groups of the N values, against no shifts.

        Both are joint marginal likelihoods with the covariance of the process, averaged over noise and shifts. The
        scale is uncertain, which makes them Student's t with `FREEDOM` degrees. Such a ratio is an e-process (Grünwald,
        de Heide, Koolen, Safe Testing, 2024): without shifts it exceeds log(1 / a) with probability a at most, however
        often it is computed. This holds approximately here, because lengths and scale are fitted to the same values.
        """
        if len(set(groups)) < 2:
            return 0.0
        names = np.array(groups)
        same = (names[:, None] == names[None, :]).astype(float)
        plain = self._kernel(self._kind_indices, self._numbers, self._kind_indices, self._numbers)
        noisy = [(times * self._usual_noise) ** 2 * np.eye(len(names)) for times in self._noises]
        logarithms = [[self._log_t(plain + spread**2 * same + noise) for spread in (0.0, *_SHIFTS)] for noise in noisy]
        surprises = np.array(list(self._noises.values()))
        likelihoods = logsumexp(np.array(logarithms) - surprises[:, None], axis=0)
        return float(logsumexp(likelihoods[1:]) - math.log(len(_SHIFTS)) - likelihoods[0])

    def _log_t(self, covariance: np.ndarray) -> float:
        """Logarithm of the values' density, up to a constant."""
        cholesky = np.linalg.cholesky(covariance)
        half = solve_triangular(cholesky, self._residual, lower=True)
        return float(-0.5 * (FREEDOM + len(half)) * math.log1p(half @ half / FREEDOM) - np.log(np.diag(cholesky)).sum())

    def _split(self, keys: Sequence[Key]) -> tuple[np.ndarray, np.ndarray]:
        for kinds, _ in keys:
            self._kinds.setdefault(kinds, len(self._kinds))
        width = len(self._slopes)
        numbers = np.array([numbers for _, numbers in keys], dtype=float).reshape(len(keys), width)
        return np.array([self._kinds[kinds] for kinds, _ in keys], dtype=int), numbers

    def _kernel(self, kinds: np.ndarray, x: np.ndarray, other_kinds: np.ndarray, other_x: np.ndarray) -> np.ndarray:
        return np.asarray(self._scale**2 * self._correlation(kinds, x, other_kinds, other_x))

    def _correlation(
        self, kinds: np.ndarray, x: np.ndarray, other_kinds: np.ndarray, other_x: np.ndarray
    ) -> np.ndarray:
        """Matérn 5/2 over the numbers, times `kinds_alike` if the categorical values differ."""
        alike = np.where(kinds[:, None] == other_kinds[None, :], 1.0, self._alike)
        return np.asarray(alike * matern(x / self._lengths, other_x / self._lengths))

    def _fit(self) -> None:
        """Scale, lengths and noise by maximum of the posterior over a small grid, then the weights."""
        base, usual = self._scale, self._usual_noise
        best, chosen = -math.inf, (base, self._prior_lengths, usual)
        if len(self._values) >= _FEWEST:
            for stretch in _STRETCHES:
                self._lengths = stretch * self._prior_lengths
                shape = self._own_correlation()
                for factor, (times, surprise) in itertools.product(_SCALES, self._noises.items()):
                    self._scale, self.noise = factor * base, times * usual
                    surprise += 0.5 * (math.log(factor) ** 2 + math.log(stretch) ** 2)
                    likelihood = self._likelihood(shape) - surprise
                    if likelihood > best:
                        best, chosen = likelihood, (self._scale, self._lengths, self.noise)
        self._scale, self._lengths, self.noise = chosen
        self.evidence = max(best, self._likelihood())

    def _own_correlation(self) -> np.ndarray:
        return self._correlation(self._kind_indices, self._numbers, self._kind_indices, self._numbers)

    def _likelihood(self, shape: np.ndarray | None = None) -> float:
        """Log likelihood up to a constant; `shape` is a precomputed `_own_correlation`."""
        covariance = self._scale**2 * (self._own_correlation() if shape is None else shape)
        covariance[np.diag_indices_from(covariance)] += self.noise**2 + 1e-10
        covariance += self._shared
        self._cholesky = np.linalg.cholesky(covariance)
        half = solve_triangular(self._cholesky, self._residual, lower=True, check_finite=False)
        self._weights = solve_triangular(self._cholesky, half, trans="T", lower=True, check_finite=False)
        return float(-0.5 * half @ half - np.log(np.diag(self._cholesky)).sum())


def matern(points: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Matérn 5/2 correlations, shape (N, M), of points in units of the length over which values change."""
    distance = np.sqrt(((points[:, None, :] - other[None, :, :]) ** 2).sum(axis=2))
    return np.asarray((1 + math.sqrt(5) * distance + 5 / 3 * distance**2) * np.exp(-math.sqrt(5) * distance))


class F1Model:
    """F1 over log2 global batch size, log learning rate and log epochs: a process along the ridge of good rates.

    The best learning rate follows some power of the global batch size (0: constant, 1/2: the root, 1: proportional),
    and distances are measured along that ridge. Few values do not determine the power, so predictions average over all
    powers with their posterior probabilities (Hoeting et al., Bayesian Model Averaging, 1999). Values far below the
    best are warped towards it by a logarithm, because a rate that diverges must not bend the process near good rates.

    Args:
        keys: N points.
        f1: N values, each of one run or the mean of several.
        errors: their N standard errors; None if each is of one run with the usual noise.
        degrees: degrees of freedom of these errors.
        groups: N instance types; used with `errors` only.
    """

    def __init__(
        self,
        keys: Sequence[Key],
        f1: Sequence[float],
        errors: Sequence[float] | None = None,
        degrees: float = math.inf,
        groups: Sequence[str] | None = None,
    ) -> None:
        self._groups = groups
        self._best = max(f1, default=_USUAL_F1)
        warped = [-DEPTH * math.log1p((self._best - value) / DEPTH) for value in f1]
        self._noise: float | np.ndarray = F1_NOISE
        self._noises = {factor: 0.5 * math.log(factor) ** 2 for factor in _NOISES}
        if errors is not None:
            self._noise = np.array(errors) * np.exp(np.array(warped) / DEPTH)  # the slope of the warp
            self._noises = {1.0: 0.0}
        self._top = keys[f1.index(self._best)][1] if f1 else _USUAL_PLACE
        fitted = {power: self._fitted(keys, warped, power) for power in (_POWERS if len(f1) >= _FEWEST else (_ROOT,))}
        surprise = {power: 0.5 * ((power - _ROOT) / _ROOT) ** 2 for power in fitted}
        likely = {power: fitted[power].evidence - surprise[power] for power in fitted}
        self._power = max(likely, key=likely.__getitem__)
        if errors is not None and len(f1) >= _FEWEST:
            self._noises = surprises(degrees)
            apart = {scale: self._fitted(keys, warped, self._power, scale) for scale in _APART}
            fitted[self._power] = apart[max(_APART, key=lambda scale: apart[scale].evidence - _APART[scale])]
        self._fallen = self._fall(keys, self._power)
        shares = {power: math.exp(evidence - likely[self._power]) for power, evidence in likely.items()}
        likely_shares = {power: share for power, share in shares.items() if share > _LEAST_SHARE}
        total = sum(likely_shares.values())
        self._processes = {power: (share / total, fitted[power]) for power, share in likely_shares.items()}

    @property
    def _process(self) -> GaussianProcess:
        """The process of the most likely power."""
        return self._processes[self._power][1]

    @property
    def power(self) -> float:
        """The most likely power of the global batch size that the best learning rate follows."""
        return self._power

    @property
    def best(self) -> float:
        """The largest measured F1, or a usual one before any."""
        return self._best

    def evidence_at_any_level(self) -> float:
        """`GaussianProcess.evidence_at_any_level` of the most likely power."""
        return self._process.evidence_at_any_level()

    @property
    def noise(self) -> float:
        """Standard deviation of one value near the best; the largest if they differ."""
        return float(np.max(self._process.noise))

    def at_its_values(self) -> NormalPrediction:
        """Estimated F1 of the N points that it was fitted to, without their noise."""
        fit = self._process.at_its_values()
        warped = fit.mean - self._fallen
        below = np.exp(-np.minimum(warped, 0.0) / DEPTH)
        mean = self._best + np.maximum(warped, 0.0) - DEPTH * (below - 1)
        return NormalPrediction(np.clip(mean, 0.0, 1.0), fit.deviation * below)

    def predict(self, keys: Sequence[Key]) -> F1Prediction:
        """Predicted values of N points, without the noise of a new run."""
        mean, square = np.zeros(len(keys)), np.zeros(len(keys))
        for power, (probability, process) in self._processes.items():
            prediction = process.predict(along(keys, power))
            warped = prediction.mean - self._fall(keys, power)
            mean += probability * warped
            square += probability * (warped**2 + prediction.deviation**2)
        return F1Prediction(mean, np.sqrt(np.maximum(square - mean**2, 1e-12)), self._best)

    def shift_evidence(self, clusters: Sequence[str]) -> float:
        """Logarithm of the Bayes factor that the values' F1 depends on their clusters."""
        return self._process.shift_evidence(clusters)

    def condition_on(self, keys: Sequence[Key]) -> "F1Model":
        """The model conditioned on N further points, as if each had shown its expected value."""
        other = copy.copy(self)
        other._processes = {
            power: (probability, process.condition_on(along(keys, power)))
            for power, (probability, process) in self._processes.items()
        }
        return other

    def _fitted(
        self, keys: Sequence[Key], warped: Sequence[float], power: float, apart: float = 0.0
    ) -> GaussianProcess:
        values = np.array(warped) + self._fall(keys, power)
        return GaussianProcess(
            along(keys, power),
            list(values),
            noise=self._noise,
            slopes=(0.0, 0.0, _MORE_EPOCHS),
            scale=0.03,
            lengths=F1_LENGTHS,
            kinds_alike=0.5,
            noises=self._noises,
            groups=self._groups,
            apart=apart,
        )

    def _fall(self, keys: Sequence[Key], power: float) -> np.ndarray:
        """Prior loss of F1 away from the best measured rate."""
        rates = np.array([key[1][1] for key in along([((), self._top), *keys], power)])
        return np.asarray(_FALL * (rates[1:] - rates[0]) ** 2)


def surface(
    points: Sequence[Mapping[str, object]], scores: Sequence[float], errors: Sequence[float], degrees: float
) -> NormalPrediction:
    """Estimates of N values of any metric without their noise; more is better.

    Nothing is known about the metric: a Gaussian process over the parameters of `points`, with numbers scaled to 0 to 1
    (by their logarithms if they span more than RATIO) and the scale of the values. Values far below the best are warped
    towards it, as in `F1Model`. `errors` are N standard errors with this many `degrees` of freedom.
    """
    best, values = max(scores), np.array(scores)
    depth = _DEPTHS * float(np.median(best - values)) or float(np.ptp(values)) or 1.0
    warped = -depth * np.log1p((best - values) / depth)
    noise = np.array(errors) * np.exp(warped / depth)  # the slope of the warp
    keys = _keys_of(points)
    width = len(keys[0][1])
    process = GaussianProcess(
        keys,
        list(warped),
        noise=noise,
        slopes=[0.0] * width,
        scale=float(warped.std()) or 1.0,
        lengths=[LENGTH] * width,
        kinds_alike=ALIKE,
        noises=surprises(degrees),
    )
    fit = process.at_its_values()
    below = np.exp(-np.minimum(fit.mean, 0.0) / depth)
    mean = best + np.maximum(fit.mean, 0.0) - depth * (below - 1)
    return NormalPrediction(mean, fit.deviation * below)


_DEPTHS = 2.0  # median distances below the best value beyond which differences count less and less
LENGTH = 0.7
"""Length over which an unknown metric changes, as a share of a parameter's span."""
ALIKE = 0.3
"""Correlation of two points that differ in a text."""
RATIO = 10.0
"""Ratio above which numbers are scaled by their logarithms."""


def _keys_of(points: Sequence[Mapping[str, object]]) -> list[Key]:
    """Texts, and numbers scaled to 0 to 1, of N points with the same parameters."""
    texts: list[list[str]] = [[] for _ in points]
    numbers: list[list[float]] = [[] for _ in points]
    for name in points[0]:
        column = [point[name] for point in points]
        figures = [float(value) for value in column if isinstance(value, int | float) and not isinstance(value, bool)]
        if len(figures) < len(column):
            for text, value in zip(texts, column, strict=True):
                text.append(str(value))
            continue
        low, high = min(figures), max(figures)
        if low > 0 and high / low >= RATIO:
            figures, low, high = [math.log(figure) for figure in figures], math.log(low), math.log(high)
        for number, figure in zip(numbers, figures, strict=True):
            number.append((figure - low) / (high - low) if high > low else 0.0)
    return [(tuple(text), tuple(number)) for text, number in zip(texts, numbers, strict=True)]


def quality_key(spec: JobSpec, plan: BatchPlan) -> Key:
    """The key that F1 of a job depends on: categorical values, and log2 batch, log rate, log epochs."""
    numbers = (math.log2(plan.global_batch_size), math.log(plan.learning_rate), math.log(spec.num_train_epochs))
    return spec.key_of("quality", but="num_train_epochs"), numbers


def surprises(degrees: float) -> dict[float, float]:
    """Factor of a deviation to the negative logarithm of its scaled inverse chi-square density, 0 for 1."""
    if not math.isfinite(degrees):
        return {1.0: 0.0}
    return {factor: degrees * (math.log(factor) + (factor**-2 - 1) / 2) for factor in (0.5, 1.0, 2.0, 4.0)}


def along(keys: Sequence[Key], power: float) -> list[Key]:
    """Points with learning rates relative to that power of the global batch size."""
    return [
        (kinds, (log2_batch, log_rate - power * math.log(2) * log2_batch, *rest))
        for kinds, (log2_batch, log_rate, *rest) in keys
    ]
