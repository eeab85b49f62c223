"""F1 of any job of a study, from those that have run: a Gaussian process along the ridge of good learning rates.

`method: split` chooses by it, and what a study states of F1 is taken from it: of the best of many noisy values the
noise is the best part, so a value counts by as much as its neighbours bear it out (shrinkage).
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
"""Kinds that are equal or not, and numbers."""

# Tried when a process is fitted, relative to what was likely before.
_FEWEST = 5  # values, before anything but their weights is fitted to them
_SCALES = (0.35, 0.6, 1.0, 1.6)
_STRETCHES = (0.6, 1.0, 1.7)
_NOISES = (0.4, 1.0, 2.0, 4.0)
_APART = {0.0: 0.0, 0.006: 1.0}
"""Standard deviations of what a cluster adds to F1, and how surprising each is: F1 hardly depends on a cluster."""
_USUAL_F1 = 0.8  # before any is known
DEPTH = 0.05
"""F1 below the best from which on differences count less and less."""
F1_LENGTHS = (6.0, 1.5, 1.0)
"""Over which F1 changes: log2 global batch size, log learning rate along the ridge, log epochs."""
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
    """F1 of N values, from what was fitted to them after they were warped: what lies far below the best counts less.

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
        """N values, so many standard deviations above what is expected; not far above the best that was seen."""
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
        slopes: of the mean, one per number, from experience; 0 where nothing is known.
        scale: standard deviation of what the line does not explain, before anything is known.
        lengths: over which such deviations change, one per number.
        kinds_alike: correlation of two points that differ in kind.
        noises: factors of `noise` that are possible to how surprising each is, a negative logarithm; {1.0: 0.0}: known.
        groups: N groups, such as instance types, of which each adds something of its own; None for no such thing.
        apart: standard deviation of what a group adds.
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
        """What N points are, a single new value's noise not included."""
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
        """The same process, as if N further points had shown what is expected of them: what it would then know.

        Only of a process with one noise for all values, and without groups.
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
        """What the N points are that it was fitted to, the noise of their values taken away."""
        noise = np.broadcast_to(np.asarray(self.noise) ** 2, self._values.shape)
        inverse = cho_solve((self._cholesky, True), np.eye(len(self._values)))
        variance = np.maximum(noise - noise**2 * np.diag(inverse), 1e-12)
        return NormalPrediction(self._values - noise * self._weights, np.sqrt(variance))

    def evidence_at_any_level(self) -> float:
        """`evidence` with the level of the values integrated out, each being as likely as any other.

        So a single value is evidence for nothing but a level.
        """
        if not len(self._values):
            return 0.0
        ones = np.ones(len(self._values))
        precise = cho_solve((self._cholesky, True), ones)
        information = float(ones @ precise)
        off = float(precise @ self._residual) / information
        return self.evidence + 0.5 * information * off**2 + 0.5 * math.log(2 * math.pi / information)

    def shift_evidence(self, groups: Sequence[str]) -> float:
        """Logarithm of the Bayes factor that the groups of the N values differ by shifts, against that they do not.

        Both marginal likelihoods are of the values jointly, with the covariance of the process; noise and shifts are
        averaged over what is likely of them, and the scale of all is uncertain, which makes them Student's t with
        `FREEDOM` degrees. Such a ratio is an e-process (Grünwald, de Heide, Koolen, Safe Testing, 2024): where
        nothing shifts it exceeds log(1 / a) with chance a at most, however often it is looked at. Here that holds
        nearly: lengths and scale are fitted to the same values.
        """
        if len(set(groups)) < 2:
            return 0.0
        names = np.array(groups)
        same = (names[:, None] == names[None, :]).astype(float)
        plain = self._kernel(self._kind_indices, self._numbers, self._kind_indices, self._numbers)
        noisy = [(times * self._usual_noise) ** 2 * np.eye(len(names)) for times in self._noises]
        found = [[self._log_t(plain + spread**2 * same + noise) for spread in (0.0, *_SHIFTS)] for noise in noisy]
        surprises = np.array(list(self._noises.values()))
        likelihoods = logsumexp(np.array(found) - surprises[:, None], axis=0)
        return float(logsumexp(likelihoods[1:]) - math.log(len(_SHIFTS)) - likelihoods[0])

    def _log_t(self, covariance: np.ndarray) -> float:
        """Logarithm of the density of the values, up to a constant."""
        cholesky = np.linalg.cholesky(covariance)
        half = solve_triangular(cholesky, self._residual, lower=True)
        return float(-0.5 * (FREEDOM + len(half)) * math.log1p(half @ half / FREEDOM) - np.log(np.diag(cholesky)).sum())

    def _split(self, keys: Sequence[Key]) -> tuple[np.ndarray, np.ndarray]:
        for kinds, _ in keys:
            self._kinds.setdefault(kinds, len(self._kinds))
        width = len(self._slopes)
        numbers = np.array([numbers for _, numbers in keys], dtype=float).reshape(len(keys), width)
        return np.array([self._kinds[kinds] for kinds, _ in keys], dtype=int), numbers

    def _kernel(self, one: np.ndarray, at: np.ndarray, other: np.ndarray, there: np.ndarray) -> np.ndarray:
        """Covariance: Matérn 5/2 over the numbers; alike in part where the kinds differ."""
        return np.asarray(self._scale**2 * self._correlation(one, at, other, there))

    def _correlation(self, one: np.ndarray, at: np.ndarray, other: np.ndarray, there: np.ndarray) -> np.ndarray:
        alike = np.where(one[:, None] == other[None, :], 1.0, self._alike)
        return np.asarray(alike * matern(at / self._lengths, there / self._lengths))

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
        """The logarithm of it, up to a constant; `shape` is what `_own_correlation` gives, worked out before."""
        covariance = self._scale**2 * (self._own_correlation() if shape is None else shape)
        covariance[np.diag_indices_from(covariance)] += self.noise**2 + 1e-10
        covariance += self._shared
        self._cholesky = np.linalg.cholesky(covariance)
        half = solve_triangular(self._cholesky, self._residual, lower=True, check_finite=False)
        self._weights = solve_triangular(self._cholesky, half, trans="T", lower=True, check_finite=False)
        return float(-0.5 * half @ half - np.log(np.diag(self._cholesky)).sum())


def matern(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """N by M correlations, Matérn 5/2, of N and M points in units of the length over which values change."""
    distance = np.sqrt(((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2))
    return np.asarray((1 + math.sqrt(5) * distance + 5 / 3 * distance**2) * np.exp(-math.sqrt(5) * distance))


class F1Model:
    """F1 over log2 global batch size, log learning rate and log epochs: a process along the ridge of good rates.

    The best learning rate follows some power of the global batch size (0: it stays, 1/2: the root, 1: in proportion),
    and nearness is measured along that ridge. Which power it is, few values do not tell: predictions are those of all
    powers, each with its posterior probability (Hoeting et al., Bayesian Model Averaging, 1999). What lies far below
    the best value is warped towards it, by a logarithm: a rate that diverges must not bend the process where rates are
    good.

    Args:
        keys: N points.
        f1: N values, of one run or the mean of several.
        errors: N standard errors of them, as far as they are known; None: each is of one run, with usual noise.
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
        kept = {power: share for power, share in shares.items() if share > _LEAST_SHARE}
        self._processes = {power: (share / sum(kept.values()), fitted[power]) for power, share in kept.items()}

    @property
    def _process(self) -> GaussianProcess:
        """That of the most likely power."""
        return self._processes[self._power][1]

    @property
    def power(self) -> float:
        """Of the global batch size that the best learning rate most likely follows."""
        return self._power

    @property
    def best(self) -> float:
        """The largest F1 that was seen; what is usual before any was."""
        return self._best

    def evidence_at_any_level(self) -> float:
        """That of the most likely power, as `GaussianProcess.evidence_at_any_level`."""
        return self._process.evidence_at_any_level()

    @property
    def noise(self) -> float:
        """Standard deviation of one value, near the best; the largest where they differ."""
        return float(np.max(self._process.noise))

    def at_its_values(self) -> NormalPrediction:
        """What the N points are that it was fitted to, each with as much of its own value as is not noise."""
        found = self._process.at_its_values()
        warped = found.mean - self._fallen
        below = np.exp(-np.minimum(warped, 0.0) / DEPTH)
        mean = self._best + np.maximum(warped, 0.0) - DEPTH * (below - 1)
        return NormalPrediction(np.clip(mean, 0.0, 1.0), found.deviation * below)

    def predict(self, keys: Sequence[Key]) -> F1Prediction:
        """What N points are, a single new value's noise not included."""
        mean, square = np.zeros(len(keys)), np.zeros(len(keys))
        for power, (probability, process) in self._processes.items():
            found = process.predict(along(keys, power))
            own = found.mean - self._fall(keys, power)
            mean += probability * own
            square += probability * (own**2 + found.deviation**2)
        return F1Prediction(mean, np.sqrt(np.maximum(square - mean**2, 1e-12)), self._best)

    def shift_evidence(self, clusters: Sequence[str]) -> float:
        """Logarithm of the Bayes factor that F1 of the values depends on these clusters of theirs, against not."""
        return self._process.shift_evidence(clusters)

    def condition_on(self, keys: Sequence[Key]) -> "F1Model":
        """The same, as if N further points had shown what is expected of them."""
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
        """What F1 loses away from the best rate that was seen, until more is known."""
        rates = np.array([key[1][1] for key in along([((), self._top), *keys], power)])
        return np.asarray(_FALL * (rates[1:] - rates[0]) ** 2)


def surface(
    points: Sequence[Mapping[str, object]], worths: Sequence[float], errors: Sequence[float], degrees: float
) -> NormalPrediction:
    """What N values of any metric are, more being better, each with as much of its own value as is not noise.

    Of that metric and of what it depends on nothing is known before: a Gaussian process over the parameters of
    `points`, numbers scaled to 0 to 1 (by their logarithms where they span more than RATIO), texts alike in part. Its
    scale is that of the values. What lies far below the best value is warped towards it, as `F1Model` does: a run that
    diverged must not bend the process.

    `errors` are N standard errors, with so many `degrees` of freedom.
    """
    best, values = max(worths), np.array(worths)
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
    found = process.at_its_values()
    below = np.exp(-np.minimum(found.mean, 0.0) / depth)
    mean = best + np.maximum(found.mean, 0.0) - depth * (below - 1)
    return NormalPrediction(mean, found.deviation * below)


_DEPTHS = 2.0  # times the median distance to the best value, from which on differences count less and less
LENGTH = 0.7
"""Over which a metric of which nothing is known changes, of what a parameter spans."""
ALIKE = 0.3
"""Correlation of two points that differ in a text."""
RATIO = 10.0
"""From which on numbers are taken by their logarithms."""


def _keys_of(points: Sequence[Mapping[str, object]]) -> list[Key]:
    """Texts, and numbers from 0 to 1, of N points with the same names."""
    texts: list[list[str]] = [[] for _ in points]
    numbers: list[list[float]] = [[] for _ in points]
    for name in points[0]:
        column = [point[name] for point in points]
        figures = [float(one) for one in column if isinstance(one, int | float) and not isinstance(one, bool)]
        if len(figures) < len(column):
            for text, value in zip(texts, column, strict=True):
                text.append(str(value))
            continue
        low, high = min(figures), max(figures)
        if low > 0 and high / low >= RATIO:
            figures, low, high = [math.log(one) for one in figures], math.log(low), math.log(high)
        for number, figure in zip(numbers, figures, strict=True):
            number.append((figure - low) / (high - low) if high > low else 0.0)
    return [(tuple(text), tuple(number)) for text, number in zip(texts, numbers, strict=True)]


def quality_key(spec: JobSpec, plan: BatchPlan) -> Key:
    """What the F1 of a job depends on: kinds that are equal or not, and log2 batch, log rate, log epochs."""
    numbers = (math.log2(plan.global_batch_size), math.log(plan.learning_rate), math.log(spec.num_train_epochs))
    return spec.key_of("quality", but="num_train_epochs"), numbers


def surprises(degrees: float) -> dict[float, float]:
    """Factors of a deviation to the negative logarithm of their scaled inverse chi-square density, 0 for 1."""
    if not math.isfinite(degrees):
        return {1.0: 0.0}
    return {factor: degrees * (math.log(factor) + (factor**-2 - 1) / 2) for factor in (0.5, 1.0, 2.0, 4.0)}


def along(keys: Sequence[Key], power: float) -> list[Key]:
    """Points with learning rates relative to that power of the global batch size."""
    return [
        (kinds, (log2_batch, log_rate - power * math.log(2) * log2_batch, *rest))
        for kinds, (log2_batch, log_rate, *rest) in keys
    ]
