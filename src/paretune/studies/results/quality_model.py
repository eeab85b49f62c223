"""The model of quality: a run collapses to about what the majority class gets, or it follows a smooth surface.

A study chooses by this model and states quality as it estimates it. Fine-tuning on few rows collapses now and then: the
loss diverges, and the model names one class. Such a run says nothing about the surface, so the likelihood has two
components:

    collapses    with a probability that depends on where the point is, most of all on learning rate and batch size
    trains       quality = surface + noise; the surface is a Gaussian process over kinds and numbers

`Surface` averages over scales, lengths, noises and, for F1, over powers of the batch size that the best learning rate
follows, each with its posterior probability (Hoeting et al., Bayesian Model Averaging, 1999). An earlier study of the
same model is one more hypothesis: the surface is that of the earlier study plus a small difference.
"""

import copy
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from paretune.estimating.noise import F1_DEGREES, F1_NOISE
from paretune.specification.batch_size import BatchPlan
from paretune.specification.job import JobSpec

Key = tuple[tuple[str, ...], tuple[float, ...]]  # categorical values and numbers that a metric depends on
SourceName = tuple[frozenset[str], bool]  # run ids of earlier studies' parents, and whether their data are equal

_SCALES = (0.5, 1.0, 2.0)
_STRETCHES = (0.6, 1.0, 1.7)
_ROOT = 0.5
_LEAST_WEIGHT = 0.01  # posterior probability, against the likeliest one's, below which a hypothesis is left out
_FEWEST = 5  # values from which on their own spread sets the scale
_NORMAL_MAD = 0.6745  # median size of a standard normal number


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Knowledge about a metric before any run, more being better."""

    lengths: tuple[float, ...]  # over which the metric changes, one per number of a key
    spread: float  # standard deviation between configurations
    noise: float  # standard deviation of one run
    degrees: float = F1_DEGREES  # degrees of freedom with which the noise is known
    usual: float = 0.0  # the metric before any run
    level: float = 0.1  # standard deviation of the mean of all configurations around the median of the values
    alike: float = 0.5  # correlation of two points that differ in a categorical value
    powers: tuple[float, ...] = ()
    """Of the global batch size, which the best learning rate may follow; () if numbers are no batch and rate."""
    fall: float = 0.0  # lost by a learning rate that is e times the best one or an e-th of it, as a share of the spread
    gain: float = 0.0  # of e times as many epochs, as a share of the spread
    is_ragged: bool = True  # whether what makes a value bad is often not smooth, so that it tells less about others
    highest_collapse: float = math.inf  # a run with a higher value has not collapsed

    def position(self, keys: Sequence[Key], power: float) -> np.ndarray:
        """Numbers of N keys in units of the lengths, learning rates along the ridge of that power; shape (N, D)."""
        numbers = np.array([numbers for _, numbers in keys], dtype=float).reshape(len(keys), len(self.lengths))
        if self.powers:
            numbers[:, 1] -= power * math.log(2) * numbers[:, 0]
        return np.asarray(numbers / self.lengths)


F1_PRIOR = Prior(
    lengths=(6.0, 1.5, 1.0),  # log2 global batch size, log learning rate along the ridge, log epochs
    spread=0.03,
    noise=F1_NOISE,
    usual=0.8,
    powers=(0.0, _ROOT, 1.0),
    fall=0.13,
    gain=0.3,
    highest_collapse=0.55,  # macro F1 of a model that names one of two classes is 0.5 at most, of more classes less
)
LENGTH = 0.7  # length over which an unknown metric changes, as a share of a parameter's span
ALIKE = 0.3  # correlation of two points that differ in a text, for an unknown metric
RATIO = 10.0  # ratio above which numbers are scaled by their logarithms


def unknown_prior(values: Sequence[float], width: int) -> Prior:
    """The prior of a metric about which nothing is known, over `width` numbers that are scaled to 0 to 1."""
    spread = robust_spread(np.array(values, dtype=float)) * (1 + 2 / max(len(values), 1))  # few differ by less
    spread = spread or 0.1 * max(map(abs, values), default=1.0) or 1.0
    return Prior(lengths=(LENGTH,) * width, spread=spread, noise=0.1 * spread, level=3 * spread, alike=ALIKE)


@dataclass(frozen=True)
class NormalPrediction:
    """Means and standard deviations of N values, without the noise of a single run."""

    mean: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """The surface of an earlier study as a hypothesis; `sizes` are possible differences with their probabilities."""

    name: SourceName
    surface: "Surface"
    sizes: Mapping[float, float]
    level: float  # standard deviation of the difference that all points share


class _Hypothesis(NamedTuple):
    """One set of assumptions about a surface; `surprise` is its negative logarithm of probability."""

    source: Source | None
    power: float
    stretch: float
    scale: float
    noise: float
    level: float
    surprise: float


class _Fitted:
    """A model of N values, fitted when it is made."""

    def __init__(
        self,
        keys: Sequence[Key],  # N points
        values: Sequence[float],  # N values
        prior: Prior,  # knowledge about the metric before any run
        *,
        # standard deviation of each value's noise, as a multiple of that of one run
        ratios: Sequence[float] | None = None,
        sources: Sequence[Source] = (),  # earlier studies
    ) -> None:
        self.prior, self._sources = prior, sources
        self._keys, self._values = list(keys), np.array(values, dtype=float)
        self._ratios = np.ones(len(keys)) if ratios is None else np.array(ratios, dtype=float)
        self._learn()

    def _learn(self) -> None:
        raise NotImplementedError


class Surface(_Fitted):
    """A Gaussian process over keys, averaged over its hypotheses."""

    def _learn(self) -> None:
        prior, values = self.prior, self._values
        self._spread = prior.spread
        if len(values) >= _FEWEST and prior.is_ragged:
            self._spread = max(robust_spread(values), prior.noise)
        self._ragged = np.zeros(len(values))
        if len(values) and prior.is_ragged:
            self._ragged = np.maximum(np.median(values) - values, 0.0) / self._spread
        self._centre = float(np.median(values)) if len(values) else prior.usual
        self._top = self._keys[int(np.argmax(values))] if len(values) else None
        self._weigh(self._hypotheses(self._sources))

    @property
    def noise(self) -> float:
        """Standard deviation of one run, averaged over the hypotheses."""
        squares = [hypothesis.noise**2 for hypothesis in self._likely]
        return math.sqrt(float(self._weights @ squares))

    @property
    def top(self) -> float:
        """The largest value; 0 before any."""
        return float(self._values.max(initial=-math.inf)) if len(self._values) else 0.0

    def weights(self) -> dict[SourceName, float]:
        """Names of the sources to their posterior probabilities."""
        weights: dict[SourceName, float] = {}
        for hypothesis, weight in zip(self._likely, self._weights, strict=True):
            if hypothesis.source is not None:
                name = hypothesis.source.name
                weights[name] = weights.get(name, 0.0) + float(weight)
        return weights

    @property
    def likeliest_power(self) -> float:
        """The power of the global batch size that the best learning rate most likely follows."""
        return self._likely[self._best].power

    def predict(self, keys: Sequence[Key]) -> NormalPrediction:
        """Predict N points."""
        unique = list(dict.fromkeys(keys))
        mean, square = np.zeros(len(unique)), np.zeros(len(unique))
        ragged = self._ragged_of(unique)
        fits = zip(self._likely, self._weights, self._inverses, self._residuals, strict=True)
        priors, covariances = self._priors(self._likely, unique), self._covariances(self._likely, unique, self._keys)
        for fit, (prior_mean, deviation), across in zip(fits, priors, covariances, strict=True):
            hypothesis, weight, inverse, residual = fit
            values = prior_mean + across @ (inverse @ residual)
            explained = np.einsum("ij,jk,ik->i", across, inverse, across, optimize=True)
            unshared = (hypothesis.noise * ragged) ** 2
            variance = hypothesis.scale**2 + hypothesis.level**2 + deviation**2 + unshared - explained
            mean += weight * values
            square += weight * (values**2 + np.maximum(variance, 1e-12))
        index_of = {key: index for index, key in enumerate(unique)}
        order = [index_of[key] for key in keys]
        return NormalPrediction(mean[order], np.sqrt(np.maximum(square - mean**2, 1e-12))[order])

    def leave_one_out(self) -> NormalPrediction:
        """Each of the N values as the others predict it, by the likeliest hypothesis, with the noise of its run."""
        inverse, residual = self._inverses[self._best], self._residuals[self._best]
        precision = np.diag(inverse)
        return NormalPrediction(self._values - inverse @ residual / precision, 1 / np.sqrt(precision))

    def condition_on(self, keys: Sequence[Key]) -> "Surface":
        """A copy fitted as if N further points had shown their expected values."""
        if not keys:
            return self
        other = copy.copy(self)
        other._values = np.append(self._values, self.predict(keys).mean)
        other._keys = [*self._keys, *keys]
        other._ratios = np.append(self._ratios, np.ones(len(keys)))
        ragged = dict(zip(self._keys, self._ragged, strict=True))
        other._ragged = np.append(self._ragged, [ragged.get(key, 0.0) for key in keys])
        fits = list(other._fits(self._likely))
        other._inverses, other._residuals = [fit[0] for fit in fits], [fit[1] for fit in fits]
        return other

    def _hypotheses(self, sources: Sequence[Source]) -> list[_Hypothesis]:
        prior = self.prior
        noises = {
            times: cost for times, cost in surprises(prior.degrees).items() if len(self._values) > 1 or times == 1
        }
        hypotheses = []
        grid = itertools.product(prior.powers or (_ROOT,), _STRETCHES, _SCALES, noises)
        for power, stretch, times, noise in grid:
            unusual = 2 * (power - _ROOT), math.log(stretch), math.log(times)
            surprise = 0.5 * sum(value**2 for value in unusual) + noises[noise]
            scale = times * self._spread
            hypotheses.append(_Hypothesis(None, power, stretch, scale, noise * prior.noise, prior.level, surprise))
        total = logsumexp([-hypothesis.surprise for hypothesis in hypotheses])
        unborrowed = 1 - sum(sum(source.sizes.values()) for source in sources)  # probability of no source
        more = total - math.log(max(unborrowed, 1e-9))
        hypotheses = [item._replace(surprise=item.surprise + more) for item in hypotheses]
        usual = logsumexp([-cost for cost in noises.values()])
        for source in sources:
            for (size, probability), noise in itertools.product(source.sizes.items(), noises):
                surprise = noises[noise] + usual - math.log(probability)
                power = source.surface.likeliest_power
                hypotheses.append(_Hypothesis(source, power, 1.0, size, noise * prior.noise, source.level, surprise))
        return hypotheses

    def _weigh(self, hypotheses: Sequence[_Hypothesis]) -> None:
        """Keep the hypotheses that the values leave likely, with their posterior probabilities."""
        fits = list(self._fits(hypotheses))
        posterior = np.array([fit[2] - item.surprise for fit, item in zip(fits, hypotheses, strict=True)])
        weights = np.exp(posterior - posterior.max())
        likely = np.flatnonzero(weights >= _LEAST_WEIGHT).tolist()
        self._likely = [hypotheses[index] for index in likely]
        self._weights = weights[likely] / weights[likely].sum()
        self._best = int(np.argmax(self._weights))
        self._inverses = [fits[index][0] for index in likely]
        self._residuals = [fits[index][1] for index in likely]

    def _fits(self, hypotheses: Sequence[_Hypothesis]) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
        """Inverse covariance of the values, what the prior mean leaves of them, and their log likelihood, by each."""
        keys, diagonal = self._keys, np.arange(len(self._keys))
        priors, covariances = self._priors(hypotheses, keys), self._covariances(hypotheses, keys, keys)
        for hypothesis, (mean, _), covariance in zip(hypotheses, priors, covariances, strict=True):
            residual = self._values - mean
            covariance[diagonal, diagonal] += (hypothesis.noise * self._ratios) ** 2 + 1e-12
            inverse = np.linalg.inv(covariance)
            _, logarithm = np.linalg.slogdet(covariance)
            yield inverse, residual, float(-0.5 * (residual @ inverse @ residual + logarithm))

    def _priors(
        self, hypotheses: Iterable[_Hypothesis], keys: Sequence[Key]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Means of N keys before their values are looked at, and deviations of a source's own prediction, by each."""
        prior_mean = cache(partial(self._prior_mean, keys))  # many hypotheses differ in nothing that it depends on
        predicted = cache(lambda source: source.surface.predict(keys))
        for hypothesis in hypotheses:
            if hypothesis.source is None:
                yield prior_mean(hypothesis.power), np.zeros(len(keys))
            else:
                prediction = predicted(hypothesis.source)
                yield prediction.mean, prediction.deviation

    def _prior_mean(self, keys: Sequence[Key], power: float) -> np.ndarray:
        mean, prior = np.full(len(keys), self._centre), self.prior
        if prior.powers and self._top is not None and len(keys):
            places = prior.position([self._top, *keys], power) * prior.lengths
            mean -= prior.fall * prior.spread * (places[1:, 1] - places[0, 1]) ** 2
            mean += prior.gain * prior.spread * (places[1:, 2] - places[0, 2])
        return mean

    def _covariances(
        self, hypotheses: Iterable[_Hypothesis], left: Sequence[Key], right: Sequence[Key]
    ) -> Iterator[np.ndarray]:
        """Covariances of N and M keys by each hypothesis, shape (N, M)."""
        correlated = cache(partial(correlations, left, right, self.prior))
        varying = cache(
            lambda source: np.multiply.outer(*(source.surface.predict(keys).deviation for keys in (left, right)))
        )
        ragged = self._ragged_of(right)
        for hypothesis in hypotheses:
            correlation = correlated(hypothesis.power, hypothesis.stretch)
            variance: float | np.ndarray = hypothesis.scale**2
            if hypothesis.source is not None:
                variance = variance + varying(hypothesis.source)
            apart = np.where(correlation == 1.0, (hypothesis.noise * ragged) ** 2, 0.0) if self._ragged.any() else 0.0
            yield np.asarray(variance * correlation + apart + hypothesis.level**2)

    def _ragged_of(self, keys: Sequence[Key]) -> np.ndarray:
        """The deviation of each of N keys that is its own, in noises: the farther below the median, the larger."""
        ragged = dict(zip(self._keys, self._ragged, strict=True))
        return np.array([ragged.get(key, 0.0) for key in keys])


def correlations(left: Sequence[Key], right: Sequence[Key], prior: Prior, power: float, stretch: float) -> np.ndarray:
    """Matérn 5/2 correlations of N and M keys, shape (N, M); `stretch` multiplies all lengths."""
    first, second = prior.position(left, power), prior.position(right, power)
    distance = np.sqrt(((first[:, None, :] - second[None, :, :]) ** 2).sum(axis=2)) / stretch
    matern = (1 + math.sqrt(5) * distance + 5 / 3 * distance**2) * np.exp(-math.sqrt(5) * distance)
    kinds = {kinds: index for index, kinds in enumerate({kinds for kinds, _ in (*left, *right)})}
    codes = [np.array([kinds[key[0]] for key in keys], dtype=int) for keys in (left, right)]
    return np.asarray(np.where(codes[0][:, None] == codes[1][None, :], 1.0, prior.alike) * matern)


_USUAL_COLLAPSES = 0.05  # share of runs that collapse, before any: 5 to 20 % where models train on few rows
_USUAL_RUNS = 10.0  # runs that this share counts like
_BY_PLACE = 3.0  # times as likely as that all runs collapse equally often: most collapse by too high a rate
_NEAR_RUNS = 1.0  # runs that the share of all runs counts like beside those near a point
_REACH = 0.5  # a collapse tells about rates and batches so far away, in lengths of the surface
_FAR_BELOW = 4.0  # spreads between the best and the worst value from which on some may have collapsed
_MOST_ROUNDS = 8


class QualityModel(_Fitted):
    """Quality of any job, and the probability that its run collapses.

    Attributes:
        prior: knowledge about the metric before any run.
        collapsed: N values, true for runs that have collapsed.
        surface: quality of runs that train.
    """

    def _learn(self) -> None:
        self.collapsed = np.zeros(len(self._keys), dtype=bool)
        self._divide()

    @property
    def noise(self) -> float:
        """Standard deviation of one run that trains; not less than is usual, because few values show little of it."""
        return max(self.surface.noise, self.prior.noise)

    def predict(self, keys: Sequence[Key]) -> NormalPrediction:
        """Quality of N points if they train."""
        return self.surface.predict(keys)

    def collapse_probability(self, keys: Sequence[Key]) -> np.ndarray:
        """Probabilities that a run at each of N points collapses.

        Either all runs collapse equally often, or those near other collapsed runs do: each has the weight with which it
        predicts the outcome of every run from those of the others.
        """
        runs = np.ones(len(self._keys))
        collapses = runs * self.collapsed
        everywhere = _share_of(collapses.sum(), runs.sum(), _USUAL_COLLAPSES, _USUAL_RUNS)
        if not self.collapsed.any():
            return np.full(len(keys), everywhere)
        near = correlations(self._keys, self._keys, self.prior, _ROOT, _REACH)
        np.fill_diagonal(near, 0.0)
        others = _share_of(collapses.sum() - collapses, runs.sum() - runs, _USUAL_COLLAPSES, _USUAL_RUNS)
        local = _share_of(near @ collapses, near @ runs, others, _NEAR_RUNS)
        by_place = 1 / (1 + math.exp(self._evidence(others) - self._evidence(local)) / _BY_PLACE)
        near = correlations(keys, self._keys, self.prior, _ROOT, _REACH)
        return np.asarray(
            by_place * _share_of(near @ collapses, near @ runs, everywhere, _NEAR_RUNS) + (1 - by_place) * everywhere
        )

    def _evidence(self, shares: np.ndarray) -> float:
        """Log likelihood of which runs have collapsed."""
        return float(np.log(np.where(self.collapsed, shares, 1 - shares)).sum())

    def condition_on(self, keys: Sequence[Key]) -> "QualityModel":
        """A copy fitted as if N further points had trained to their expected values."""
        other = copy.copy(self)
        other.surface = self.surface.condition_on(keys)
        return other

    def is_shifted(self, types: Sequence[str]) -> bool:
        """Whether quality depends on the instance types of the N runs by more than noise."""
        runs = zip(self._keys, types, self._values, self.collapsed, strict=True)
        trained = [(key, name, float(value)) for key, name, value, has_collapsed in runs if not has_collapsed]
        return shift_evidence(trained, self.prior) > -math.log(_MOST_FALSE_ALARMS)

    def _surface(self) -> Surface:
        trains = np.flatnonzero(~self.collapsed)
        return Surface(
            [self._keys[index] for index in trains],
            list(self._values[trains]),
            self.prior,
            sources=self._sources,
        )

    def _divide(self) -> None:
        """Find out which runs have collapsed, and fit the surface to the others.

        All values nearer to the lowest than to the best one are left out first. Those that a surface through the others
        explains better than a collapse does are taken back, until nothing changes.
        """
        top, lowest = float(self._values.max(initial=-math.inf)), float(self._values.min(initial=math.inf))
        is_low = self._values < min((top + lowest) / 2, self.prior.highest_collapse)
        if top - lowest > _FAR_BELOW * self.prior.spread:
            self.collapsed = is_low.copy()
        self.surface = self._surface()
        for _ in range(_MOST_ROUNDS if self.collapsed.any() else 0):
            expected = self._expected()
            standard = (self._values - expected.mean) / expected.deviation
            trains = -0.5 * standard**2 - np.log(expected.deviation * math.sqrt(2 * math.pi))
            share = self.collapse_probability(self._keys)
            collapses = np.log(share / (1 - share)) - math.log(top - lowest)
            collapsed = is_low & (standard < 0) & (collapses > trains)
            if (collapsed == self.collapsed).all():
                break
            self.collapsed = collapsed
            self.surface = self._surface()

    def _expected(self) -> NormalPrediction:
        """Each of the N values as the other runs that train predict it, with the noise of its run."""
        mean, deviation = np.zeros(len(self._keys)), np.zeros(len(self._keys))
        left_out = np.flatnonzero(self.collapsed)
        outside = self.surface.predict([self._keys[index] for index in left_out])
        mean[left_out] = outside.mean
        deviation[left_out] = np.hypot(outside.deviation, self.surface.noise)
        inside = self.surface.leave_one_out()
        mean[~self.collapsed], deviation[~self.collapsed] = inside.mean, inside.deviation
        return NormalPrediction(mean, deviation)


def _share_of(collapses: Any, runs: Any, prior: Any, weight: float) -> Any:
    """Share of runs that collapse, from those seen and a prior share that counts like `weight` runs."""
    return (weight * prior + collapses) / (weight + runs)


_SHIFTS = (1.0, 4.0, 16.0)
"""Standard deviations of quality between instance types where it does depend on them, in those of one run's noise."""
_MOST_FALSE_ALARMS = 0.05  # probability, over a whole study, to find wrongly that quality depends on the type


def shift_evidence(runs: Sequence[tuple[Key, str, float]], prior: Prior) -> float:
    """Logarithm of the Bayes factor for quality that depends on the instance type, from keys, types and values.

    Only matched pairs count: runs with equal keys on several types. Their mean is unknown, and what remains is noise,
    with or without an effect of each type. Noise that is known from few degrees of freedom makes the likelihoods
    Student's t. Such a ratio is an e-process (Grünwald, de Heide, Koolen, Safe Testing, 2024): without effects it
    exceeds log(1 / a) with probability a at most, however often it is computed. Collapsed runs must be left out.
    """
    groups: dict[Key, list[int]] = {}
    for index, (key, _, _) in enumerate(runs):
        groups.setdefault(key, []).append(index)
    matched = [group for group in groups.values() if len({runs[index][1] for index in group}) > 1]
    if not matched:
        return 0.0
    columns = {name: column for column, name in enumerate(dict.fromkeys(name for _, name, _ in runs))}
    contrasts, effects = [], []
    for group in matched:
        types = np.array([columns[runs[index][1]] for index in group])
        basis = np.linalg.qr(np.column_stack([np.ones(len(group)), np.eye(len(group))[:, 1:]]))[0][:, 1:].T
        contrasts.append(basis @ [runs[index][2] for index in group])
        effects.append(basis @ np.eye(len(columns))[types])
    contrast, effect = np.concatenate(contrasts) / prior.noise, np.vstack(effects)

    def log_likelihood(spread: float) -> float:
        covariance = np.eye(len(contrast)) + spread**2 * effect @ effect.T
        square = contrast @ np.linalg.solve(covariance, contrast)
        _, logarithm = np.linalg.slogdet(covariance)
        freedom = prior.degrees + len(contrast)
        return float(-0.5 * freedom * math.log1p(square / prior.degrees) - 0.5 * logarithm)

    shifted = logsumexp([log_likelihood(spread) for spread in _SHIFTS]) - math.log(len(_SHIFTS))
    return float(shifted) - log_likelihood(0.0)


def keys_over(points: Sequence[Mapping[str, object]]) -> list[Key]:
    """Texts, and numbers scaled to 0 to 1 (by logarithms beyond RATIO), of N points, for an unknown metric."""
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


def robust_spread(values: np.ndarray) -> float:
    """Standard deviation that the median distance to the median stands for; the plain one if that is 0."""
    if not len(values):
        return 0.0
    return float(np.median(np.abs(values - np.median(values)))) / _NORMAL_MAD or float(values.std())
