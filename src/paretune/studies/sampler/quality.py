"""The model of quality: runs that collapse, and a smooth surface for those that do not.

A run that collapses learns nothing; for example, it predicts one class for every row. The quality of the other runs is
modeled as a smooth surface plus noise. The surface is a Gaussian process over `quality_keys`. Predictions average
over hypotheses about the hyperparameters, weighted by the posterior probabilities of the hypotheses. Good learning
rates lie along a ridge: they grow with the square root of the global batch size. The precision (for the user's own
training code, the instance type) may shift quality, but such a shift has a low prior probability. A collapsed run does
not change the surface, but raises the probability of a collapse near it.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args
from zlib import crc32

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.spatial.distance import cdist

from paretune.estimating.hardware import accelerator_of, resolved_precision
from paretune.specification.declaration import effects_of
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan

_RATIO = 10.0  # numbers whose largest is at least this many times the smallest are compared by their logarithms
# Users may enqueue numbers outside of a range. For logarithms and ratios, a number counts as at least this share of the
# range's low end, because 0 has no logarithm.
LEAST_SHARE = 0.1
# Value in the one-hot column of a category: two categories are 0.5 apart, the ends of a range of numbers are 1 apart.
CATEGORY = 0.35
F1_SPREAD = 0.03  # prior standard deviation of F1 between configurations
F1_USUAL_RATE, F1_USUAL_BATCH = 3e-5, 32.0
"""Learning rate and global batch size at which BERT is usually fully fine-tuned: 2e-5 to 5e-5 at 16 and 32 (Devlin et
al., 2019, appendix A.3)."""
# The spread is the standard deviation of quality between configurations.
_BATCH, _RATE, _EPOCHS, _OTHERS = 6.0, 1.5, 1.0, 0.7  # length scales of the columns of ridged keys, see `_lengths`
_FALL, _LARGE, _GAIN = 0.13, 0.02, 0.3
"""Changes of the prior mean relative to the best run, in spreads: `_FALL` is lost at e times or 1/e of the learning
rate on its ridge, `_LARGE` is lost at twice or half its global batch size on the ridge, and `_GAIN` is gained with e
times its epochs."""
_LEVEL = 3.0  # prior standard deviation of the level around the median of the runs, in spreads
_NOISE = 0.13  # usual standard deviation of the noise of one run, in spreads
_RIDGE = 0.5  # power of the global batch size with which good learning rates grow
_BENDS, _NOISES, _TYPES = (0.5, 1.5), (1.0, 2.0, 4.0), (0.0, 0.5)
"""Standard deviations that the hypotheses combine: of the surface, in spreads; of the noise of one run, in multiples of
`_NOISE`; and of the shift by an instance type or precision, in spreads."""
# Replaces _NOISES if the spread is learned. It also has smaller values, because one bad setting makes the spread large.
_NOISES_OF_ANY = (0.1, 0.4, 1.0, 2.0)
# Minimum of a learned spread as a share of the largest absolute value: _FEW_SPREAD if there are fewer than _FEW runs,
# else _LEAST_SPREAD.
_LEAST_SPREAD, _FEW_SPREAD, _FEW = 1e-3, 0.1, 5
_FAILED = 0.8  # a failed run counts as this share of a collapse, so it may be retried after a run near it completes
_UNLIKELY = 0.02  # hypotheses whose probability is below this share of the likeliest one's are dropped
# A length scale so long that its column has no effect, and the distance below which keys count as the same.
_ANY, _SAME = 1e9, 1e-9


@dataclass(frozen=True, eq=False)
class Part:
    """One term of a kernel, before it is multiplied by the variance that a hypothesis gives it.

    With `lengths`, the term is a Matern 5/2 kernel with a length scale for each column (see `smooth`). With `same`, the
    term has one value for all keys that agree in these columns, and independent values for keys that do not. Otherwise
    the term is linear in the keys if `is_linear`, else constant.
    """

    lengths: np.ndarray | None = None
    is_linear: bool = False
    same: np.ndarray | None = None

    def between(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the covariances of N and M keys, shape (N, M)."""
        if self.lengths is not None:
            return smooth(left / self.lengths, right / self.lengths)
        if self.same is not None:
            apart = cdist(left[:, self.same], right[:, self.same], "chebyshev")
            return np.asarray(apart < _SAME, dtype=float)
        return left @ right.T if self.is_linear else np.ones((len(left), len(right)))

    def of_each(self, keys: np.ndarray) -> np.ndarray:
        """Return the variances at N keys, shape (N,)."""
        return (keys**2).sum(axis=1) if self.is_linear else np.ones(len(keys))


Hypothesis = tuple[Mapping[Part, float], np.ndarray, float]
"""Variances of the kernel's terms, the standard deviations of the noise of N runs, and the negative logarithm of the
hypothesis's relative prior probability."""


class Surface:
    """Gaussian processes fitted to N values, one for each hypothesis, weighted by posterior probabilities.

    The attribute `weights` has the posterior probability of each hypothesis; 0 for those that were dropped.
    """

    def __init__(self, keys: np.ndarray, values: np.ndarray, hypotheses: Iterable[Hypothesis]) -> None:
        self._keys, self._values = keys, values
        near: dict[Part, np.ndarray] = {}
        fits, evidence = list[tuple[Mapping[Part, float], np.ndarray, np.ndarray]](), list[float]()
        for kernel, noise, unlikely in hypotheses:
            for part in kernel:
                if part not in near:
                    near[part] = part.between(keys, keys)
            covariance = sum((v * near[part] for part, v in kernel.items()), np.diag(np.maximum(noise**2, 1e-12)))
            root = np.linalg.cholesky(covariance)
            weights = cho_solve((root, True), values, check_finite=False) if len(values) else values
            fits.append((kernel, root, weights))
            evidence.append(-0.5 * float(values @ weights) - float(np.log(np.diag(root)).sum()) - unlikely)
        likelihood = np.exp(np.array(evidence) - max(evidence))
        likelihood[likelihood < _UNLIKELY] = 0.0
        self._fits, self.weights = fits, likelihood / likelihood.sum()

    def predict(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations at M keys, each of shape (M,), without the noise of a single run."""
        far: dict[Part, np.ndarray] = {}
        mean, square = np.zeros(len(keys)), np.zeros(len(keys))
        for (kernel, root, weights), likely in zip(self._fits, self.weights, strict=True):
            if not likely:
                continue
            for part in kernel:
                if part not in far:
                    far[part] = part.between(keys, self._keys)
            across = sum((v * far[part] for part, v in kernel.items()), np.zeros((len(keys), len(self._keys))))
            variance = sum((v * part.of_each(keys) for part, v in kernel.items()), np.zeros(len(keys)))
            if len(self._values):
                variance = variance - (solve_triangular(root, across.T, lower=True, check_finite=False) ** 2).sum(
                    axis=0
                )
            means = across @ weights
            mean += likely * means
            square += likely * (np.maximum(variance, 0.0) + means**2)
        return mean, np.sqrt(np.maximum(square - mean**2, 1e-12))

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return how far each value is above its leave-one-out prediction, and that difference's standard deviation.

        Both have shape (N,). Only the likeliest hypothesis is used.
        """
        _, root, weights = self._fits[int(np.argmax(self.weights))]
        precision = np.diag(cho_solve((root, True), np.eye(len(root))))
        return weights / precision, 1.0 / np.sqrt(precision)


class QualityModel:
    """Predicts quality, and the probability of a collapse, from N runs; more quality is better.

    Args:
        keys: inputs of the runs, shape (N, 4 + D), see `quality_keys`.
        values: quality of the runs, shape (N,).
        spread: prior standard deviation of quality between configurations, or None to learn it from the runs.
        collapsed: whether each run is known to have collapsed, shape (N,). Ignored if all have.

    Attributes:
        collapsed: like the argument, but also true for runs that the model itself judges to have collapsed.
        noise: standard deviation of the noise of a single run.
    """

    def __init__(
        self,
        keys: np.ndarray,
        values: Sequence[float],
        spread: float | None,
        *,
        collapsed: np.ndarray | None = None,
    ) -> None:
        self._keys, self._values = keys, np.array(values, dtype=float)
        least = _FEW_SPREAD if len(self._values) < _FEW else _LEAST_SPREAD
        scatter = max(float(np.std(self._values)), least * float(np.abs(self._values).max(initial=0.0)), 1e-9)
        self._spread = spread or scatter
        self._noises: tuple[float, ...] = _NOISES if spread else _NOISES_OF_ANY
        self._bends = _BENDS if spread else _BENDS[:1]
        self.collapsed = np.zeros(len(self._values), dtype=bool) if collapsed is None else collapsed.copy()
        if self.collapsed.all():
            self.collapsed[:] = False
        self._fit()
        while (found := self._find_collapsed()).any():  # one collapsed run can hide another
            self.collapsed |= found
            self._fit()

    def predict(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations at M keys, each of shape (M,), without the noise of a single run."""
        mean, deviation = self._surface.predict(_ridged(keys))
        return self._usual(keys) + mean, deviation

    def collapse_probability(self, keys: np.ndarray, failed: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of a collapse or a failure at M keys, shape (M,).

        It is the share of the runs near each key that collapsed or failed, shrunk toward the share of all runs.
        `failed` has the keys of runs that failed, so that their quality is unknown; each counts as `_FAILED` collapses.
        """
        failed = self._keys[:0] if failed is None else failed
        runs, lost = np.vstack([self._keys, failed]), np.append(self.collapsed, np.full(len(failed), _FAILED))
        overall = (lost.sum() + 0.5) / (len(lost) + 10.0)
        lengths = _lengths(keys) / 2.0
        near = smooth(_ridged(keys) / lengths, _ridged(runs) / lengths)
        return np.asarray((near @ lost + overall) / (near.sum(axis=1) + 1.0))

    def _fit(self) -> None:
        """Fit the surface and the noise to the runs that did not collapse."""
        runs = ~self.collapsed
        x, y = self._keys[runs], self._values[runs]
        self._center, self._top = float(np.median(y)), x[[int(np.argmax(y))]]
        usual = _NOISE * self._spread
        believed = list(itertools.product(self._noises, self._bends, _TYPES))
        level, same_type = Part(), Part(same=np.arange(self._keys.shape[1]) == 0)
        surface = Part(lengths=_lengths(self._keys))
        hypotheses: list[Hypothesis] = [
            (
                {
                    level: (_LEVEL * self._spread) ** 2,
                    surface: (bend * self._spread) ** 2,
                    **({same_type: (of_type * self._spread) ** 2} if of_type else {}),
                },
                np.full(len(y), noise * usual),
                math.log(noise) ** 2 + math.log(bend / _BENDS[0]) ** 2 + 5.0 * of_type,
            )
            for noise, bend, of_type in believed
        ]
        self._surface = Surface(_ridged(x), y - self._usual(x), hypotheses)
        noise = np.array(believed)[:, 0]
        self.noise = math.sqrt(self._surface.weights @ (noise * usual) ** 2)

    def _find_collapsed(self) -> np.ndarray:
        """Return which further runs are far below their leave-one-out prediction or the best run left, shape (N,).

        Leave-one-out predictions need at least three runs that did not collapse.
        """
        is_low, best = np.zeros(len(self._values), dtype=bool), self._values[~self.collapsed].max()
        if (~self.collapsed).sum() >= 3:
            above, deviation = self._surface.left_out()
            is_low[~self.collapsed] = (above < -4.0 * deviation) & (above < -1.6 * self._spread)
        return np.asarray(is_low | (~self.collapsed & (self._values < best - 10.0 * self._spread)))

    def _usual(self, keys: np.ndarray) -> np.ndarray:
        """Return the prior mean at M keys, shape (M,), from which the surface deviates.

        It is the median of the runs that did not collapse, plus a term that depends on the difference from the key of
        the best run.
        """
        off = _ridged(keys - self._top)
        lost = _FALL * off[:, 2] ** 2 + _LARGE * off[:, 1] ** 2
        return np.asarray(self._center + self._spread * (_GAIN * (keys - self._top)[:, 3] - lost))


def _ridged(keys: np.ndarray) -> np.ndarray:
    """Return the keys with column 2, the log learning rate, measured from the ridge of good rates, up to a constant."""
    rates = keys[:, 2:3] - _RIDGE * math.log(2.0) * keys[:, 1:2]
    return np.hstack([keys[:, :2], rates, keys[:, 3:]])


def _lengths(keys: np.ndarray) -> np.ndarray:
    """Return the length scale of each column of ridged keys, shape (4 + D,)."""
    return np.array([_ANY, _BATCH, _RATE, _EPOCHS, *[_OTHERS] * (keys.shape[1] - 4)])


def smooth(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the Matern 5/2 kernel between N and M keys, shape (N, M). The keys are divided by their length scales."""
    far = math.sqrt(5.0) * cdist(left, right)
    return np.asarray((1.0 + far + far**2 / 3.0) * np.exp(-far))


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A searched parameter: the values that it may have (for a range, at least both ends), and whether on a log scale.

    `name` is its full name if the study calls it by another one, such as that of an argument of a script.
    """

    values: Sequence[Any]
    is_log: bool = False
    name: str = ""


OF_CLUSTER = {"instance_type", "instance_count", "per_device_train_batch_size", "gradient_accumulation_steps"}
OF_PLAN = {"global_batch_size", "learning_rate", "num_train_epochs"}  # have columns of their own in `quality_keys`
_PRECISIONS = get_args(JobSpec.model_fields["precision"].annotation)  # with auto, which stays auto on a CPU


def quality_keys(
    specs: Sequence[JobSpec],
    plans: Sequence[BatchPlan | None],
    points: Sequence[Mapping[str, Any]],
    axes: Mapping[str, Axis],
    *,
    is_own: bool,
) -> np.ndarray:
    """Return the inputs of the quality model for N jobs, shape (N, 4 + D): for the search and for the study's page.

    The first four columns are the index of the precision, log2 of the global batch size, log learning rate and log
    epochs. The others are the further searched parameters that quality may depend on, see `scaled`. For the user's own
    training code, column 0 is a number for the instance type, columns 1 to 3 are 0, and all searched parameters except
    the instance type follow.

    Args:
        specs: the jobs.
        plans: their batch plans; ignored for the user's own training code.
        points: their searched parameters.
        axes: the searched parameters of the study.
        is_own: whether the training code is the user's own.
    """
    columns = np.zeros((len(specs), 4))
    if is_own:
        columns[:, 0] = [_number_of(spec.instance_type) for spec in specs]
    else:  # the same rows in the same order give the same losses on all clusters that compute in the same precision
        columns[:, 0] = [_PRECISIONS.index(_precision(spec)) for spec in specs]
        for row, spec, plan in zip(columns, specs, plans, strict=True):
            assert plan is not None  # only the job of a project has none
            row[1:] = math.log2(plan.global_batch_size), math.log(plan.learning_rate), math.log(spec.num_train_epochs)
    parts = [columns]
    for name, axis in axes.items():
        full = axis.name or name
        if full != "instance_type" if is_own else _changes_quality(full):
            parts.append(scaled([point[name] for point in points], axis.values, is_log=axis.is_log))
    return np.hstack(parts)


def _changes_quality(name: str) -> bool:
    """Return whether quality depends on a parameter of paretune's own training that has no column of its own."""
    if name in OF_CLUSTER | OF_PLAN or name.partition(".")[0] not in JobSpec.model_fields:
        return False
    return "quality" in effects_of(JobSpec, name)


def _precision(spec: JobSpec) -> str:
    """Return the precision that a job computes in."""
    return resolved_precision(spec.precision, accelerator_of(spec.instance()) if spec.has_instances else None)


def _number_of(instance_type: str) -> float:
    """Return a number from 0 to 1 that identifies an instance type."""
    return crc32(instance_type.encode()) / 2**32


def scaled(values: Sequence[Any], among: Sequence[Any], *, is_log: bool = False) -> np.ndarray:
    """Return N values of a parameter as columns: scaled numbers, shape (N, 1), or one-hot categories, shape (N, K).

    `among` has the K values of the parameter. Its smallest number becomes 0 and its largest 1. The one-hot columns have
    `CATEGORY` instead of 1. Numbers are scaled by their logarithms if all of `among` are positive, and either `is_log`
    is true or the largest number in `among` is at least `_RATIO` times the smallest. In that case, numbers below
    `LEAST_SHARE` times the smallest, such as an enqueued 0, count as this share of it.
    """
    if not are_numbers(among):
        is_it = [[value == each for each in among] for value in values]
        return CATEGORY * np.array(is_it, dtype=float).reshape(len(values), len(among))
    numbers, low, high = np.array(values, dtype=float)[:, None], float(min(among)), float(max(among))
    if high == low:
        return np.zeros_like(numbers)
    if low > 0 and (is_log or high / low >= _RATIO):
        return np.asarray(np.log(np.maximum(numbers / low, LEAST_SHARE)) / math.log(high / low))
    return np.asarray((numbers - low) / (high - low))


def are_numbers(values: Sequence[Any]) -> bool:
    """Return whether all values are numbers; strings and booleans are not."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
