"""The models of quality, of collapses and of failures. The search, the answer and the page use them alike.

`quality_settings` returns what the quality of a job depends on, and `QualityModel` learns from runs with such settings.
For paretune's own training, two beliefs are weights of the model's mean (`process.Basis`), which runs correct: how F1
falls away from the usual learning rate at the usual batch, and that more epochs help. The user's own training code has
no such beliefs.

A run that collapses learns nothing; for example, it predicts one class for every row. It does not count in the surface
of quality, but raises the probability of a collapse near it.
"""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, get_args

import numpy as np
from scipy.special import ndtr

from paretune.core.noise import Scatter, posterior_deviation
from paretune.estimating.hardware import accelerator_of, resolved_precision
from paretune.specification.declaration import effects_of
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.specification.parallelism import BatchPlan
from paretune.studies.sampler.process import Axes, Axis, Basis, Points, Process

F1_SPREAD = 0.03  # prior standard deviation of F1 between configurations
F1_USUAL_RATE, F1_USUAL_BATCH = 3e-5, 32.0
"""Learning rate and global batch size at which BERT is usually fully fine-tuned: 2e-5 to 5e-5 at 16 and 32 (Devlin et
al., 2019, appendix A.3)."""
_PRECISION, _BATCH, _RATE, _EPOCHS = "computes in", "log2 batch", "log learning rate", "log epochs"
_PLANNED = {
    _PRECISION: Axis(get_args(JobSpec.model_fields["precision"].annotation)),
    _BATCH: Axis((0.0, 6.0)),
    _RATE: Axis((0.0, math.log(100.0))),
    _EPOCHS: Axis((0.0, math.log(10.0))),
}
"""What every job of paretune's own training has, and the span that counts as 1: 64 times the batch, 100 times the
learning rate, ten times the epochs."""
_ALONE = {
    *("instance_type", "instance_count", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("global_batch_size", "learning_rate", "num_train_epochs", "precision"),
}
"""Parameters whose effect on quality is that of `_PLANNED`, or none."""
# The spread is the standard deviation of quality between configurations.
_BELIEFS = {
    "level": (0.0, 3.0),
    "learning rate off the usual one, squared": (-0.13, 0.1),
    "learning rate off the usual one": (0.0, 0.5),
    "log2 of the batch": (0.0, 0.3),
    "log of the epochs": (0.3, 0.3),
}
"""What is believed of paretune's own training, in spreads: means and deviations of weights. 0.13 spreads are lost at e
times or 1/e of the usual learning rate for the batch, 0.3 are gained with e times the epochs. Which learning rate is
best, and whether larger batches help, is not known: the weights of the linear terms have a mean of 0."""
_LEVEL = (0.0, 2.0)  # prior mean and deviation of the level of a metric of the user's own, in spreads
_RIDGE = 0.5  # power of the global batch size with which the usual learning rate grows
_NOISE, _NOISE_OF_ANY = 0.1, 0.04
"""Usual standard deviation of the noise of one run, in spreads: of F1 (0.003, see core/noise.py), and of a metric of
the user's own, whose spread is that of the runs. Repeats correct both."""
_DOUBT = 1.7
"""Factor of all deviations of quality. A search runs jobs where they are cheap or good, so its runs say too little of
the rest: on development tables, unseen good jobs were about this many stated deviations off (root mean square)."""
_FEW, _FEW_SPREAD, _LEAST_SPREAD = 5, 0.1, 1e-3
"""A learned spread is at least `_LEAST_SPREAD` of the largest absolute value, or `_FEW_SPREAD` of it if there are fewer
than `_FEW` runs."""
_FAR = 4.0  # values more than this many widths below the median of the better half are compressed, see `_tamed`
_LOST, _LOST_SD = 0.05, 0.25  # prior mean and deviation of the share of jobs that fail or collapse
_LOST_SCALE, _LOST_NOISE = 0.25, 0.15  # usual deviations of the surface of that share, and of one job around it
_LOST_SLOPE = 0.5  # prior deviation of what a category, or the span of a number, adds to that share


def quality_axes(searched: Mapping[str, Axis], *, runs_user_code: bool) -> Axes:
    """Return the parameters that the quality of a job depends on, given those that a study searches.

    For the user's own training code, these are the searched parameters. For paretune's own training, these are the
    precision that the job computes in, the global batch size, the learning rate, the epochs, and every other searched
    parameter that changes a model. The cluster is not among them: the same rows in the same order give the same losses
    on all clusters that compute in the same precision.
    """
    if runs_user_code:
        return Axes.of(searched)
    return Axes(_PLANNED | {name: axis for name, axis in searched.items() if _changes_a_model(axis.name or name)})


def quality_settings(spec: JobSpec, plan: BatchPlan | None, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the parameters in `quality_axes` for a job with these searched parameters, by name."""
    if spec.runs_user_code:
        return dict(point)
    assert plan is not None  # only the job of a project has none
    accelerator = accelerator_of(spec.instance()) if spec.has_instances else None
    usual = F1_USUAL_RATE * default_learning_rate(spec.fine_tuning) / default_learning_rate("full")
    return {
        **point,
        _PRECISION: resolved_precision(spec.precision, accelerator),
        _BATCH: math.log2(plan.global_batch_size / F1_USUAL_BATCH),
        _RATE: math.log(plan.learning_rate / usual),
        _EPOCHS: math.log(spec.num_train_epochs),
    }


def quality_points(axes: Axes, settings: Sequence[Mapping[str, Any]]) -> Points:
    """Return the points of jobs with these settings, see `quality_settings`."""
    level = np.ones((len(settings), 1))
    if _RATE not in axes.axes:
        return Points(axes.keys(settings), level)
    batch, rate, epochs = (
        np.array([each[name] for each in settings], dtype=float) for name in (_BATCH, _RATE, _EPOCHS)
    )
    off = rate - _RIDGE * math.log(2.0) * batch
    return Points(axes.keys(settings), np.column_stack([level, off**2, off, batch, epochs]))


def octaves_off(axes: Axes, points: Points) -> np.ndarray:
    """Return how far learning rates are from the usual ones for their batches, in factors of 2, shape (N,).

    0 for the user's own training code, of which no usual rate is known.
    """
    return np.asarray(points.terms[:, 2] / math.log(2.0)) if _RATE in axes.axes else np.zeros(len(points.terms))


def settings_doubt(axes: Axes, points: Points) -> np.ndarray:
    """Return how uncertain quality is before any run because of unusual settings, in spreads, shape (N,).

    It is the standard deviation of the difference to the usual batch, learning rate and epochs.
    """
    if _RATE not in axes.axes:
        return np.zeros(len(points.terms))
    _, *deviations = (deviation for _, deviation in _BELIEFS.values())
    return np.asarray(np.linalg.norm(points.terms[:, 1:] * deviations, axis=1))


def _changes_a_model(name: str) -> bool:
    """Return whether quality depends on a parameter of paretune's own training other than those of `_PLANNED`."""
    if name in _ALONE or name.partition(".")[0] not in JobSpec.model_fields:
        return False
    return "quality" in effects_of(JobSpec, name)


class QualityModel:
    """Predicts quality, and the probability of a collapse, from N runs; more quality is better.

    Without runs, quality is what is believed of it before any, relative to an unknown level.

    Args:
        axes: the parameters that differ between the jobs.
        runs: the N runs, see `quality_points`.
        values: quality of the runs, shape (N,).
        spread: prior standard deviation of quality between configurations, or None to learn it from the runs.
        collapsed: whether each run is known to have collapsed, shape (N,). Ignored if all have.

    Attributes:
        collapsed: like the argument, but also true for runs that the model itself judges to have collapsed.
    """

    def __init__(
        self,
        axes: Axes,
        runs: Points,
        values: Sequence[float],
        spread: float | None,
        *,
        collapsed: np.ndarray | None = None,
    ) -> None:
        self._axes, self.runs, self._values = axes, runs, np.array(values, dtype=float)
        self._is_known = spread is not None
        self.spread = spread or _spread_of(self._values)
        self.collapsed = np.zeros(len(self._values), dtype=bool) if collapsed is None else collapsed.copy()
        if self.collapsed.all():
            self.collapsed[:] = False
        self._fit()
        while (
            len(self._values) and self._is_known and (found := self._find_collapsed()).any()
        ):  # one collapsed run can hide another
            self.collapsed |= found
            self._fit()

    @property
    def noise(self) -> float:
        """Standard deviation of the noise of a single run."""
        return self.process.noise

    @property
    def residue(self) -> float:
        """Standard deviation of a single run that an answer may state before runs were repeated.

        It is the noise, but at least half of the root mean square of the leave-one-out errors, because the prior of the
        noise expects that runs differ little. This share was chosen on the first half of the drawn studies of
        benchmarks/search_statements.py.
        """
        above, _ = self.process.left_out()
        return max(self.noise, 0.5 * math.sqrt(float(np.mean(above**2))))

    def predict(self, points: Points) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations at M points, each of shape (M,), without the noise of a single run."""
        mean, deviation = self.process.predict(points)
        return self._level + mean, _DOUBT * deviation

    def expecting(self, points: Points) -> "QualityModel":
        """Return the model after further runs at M points that give exactly what it expects of them."""
        model = copy(self)
        model.process = self.process.expecting(points)
        return model

    def collapse_probability(self, points: Points) -> np.ndarray:
        """Return the probability of a collapse at M points, shape (M,)."""
        return lost_probability(self._axes, self.runs.keys, self.collapsed, points.keys)

    def beliefs(self) -> dict[str, tuple[float, float, float, float]]:
        """Return what was assumed and learned, by name, see `Process.beliefs`."""
        beliefs = self.process.beliefs().items()
        return {f"quality changes with {name}": each for name, each in beliefs if name != "level"}

    def _fit(self) -> None:
        """Fit the surface and the noise to the runs that did not collapse."""
        is_used = ~self.collapsed
        values, runs = self._values[is_used], self.runs.at(is_used)
        values = _tamed(values, 0.5 * self.spread if self._is_known else 0.05 * float(np.abs(values).max(initial=0.0)))
        spread = self.spread if self._is_known else _spread_of(values)
        beliefs = _BELIEFS if runs.terms.shape[1] > 1 else {"level": _LEVEL}
        basis = Basis.of({name: (m * spread, s * spread) for name, (m, s) in beliefs.items()})
        self._level = float(np.median(values)) if len(values) else 0.0
        usual = (_NOISE if self._is_known else _NOISE_OF_ANY) * spread
        noise = posterior_deviation(usual, 1, _scatter_of_repeats(runs.keys, values))
        self.process = Process(
            self._axes,
            runs,
            values - self._level,
            basis,
            scale=spread,
            noise=max(noise, 0.02 * usual),
        )

    def _find_collapsed(self) -> np.ndarray:
        """Return which further runs are far below their leave-one-out prediction or the best run left, shape (N,).

        Leave-one-out predictions need at least three runs that did not collapse.
        """
        is_low, best = np.zeros(len(self._values), dtype=bool), self._values[~self.collapsed].max()
        if (~self.collapsed).sum() >= 3:
            above, deviation = self.process.left_out()
            is_low[~self.collapsed] = (above < -4.0 * deviation) & (above < -1.6 * self.spread)
        return np.asarray(is_low | (~self.collapsed & (self._values < best - 10.0 * self.spread)))


def lost_probability(axes: Axes, runs: np.ndarray, is_lost: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the probability that jobs fail or collapse at M keys, shape (M,), from N runs, of which some are lost.

    A Gaussian process is fitted to 1 for a lost run and 0 for any other (Rasmussen and Williams, 2006, section 6.5).
    Where runs are lost by chance, its mean is their share. Where all runs of a region are lost, the mean says too
    little: then the probability counts that the region's value is below one half.
    """
    if not is_lost.any():
        return np.full(len(keys), 0.5 / (len(runs) + 10.0))
    # A value that fails mostly fails with any values of the other parameters.
    names = [f"column {index}" for index in range(keys.shape[1])]
    basis = Basis.of({"level": (0.0, _LOST_SD)} | dict.fromkeys(names, (0.0, _LOST_SLOPE)))
    points, at = (Points(each, np.column_stack([np.ones(len(each)), each])) for each in (runs, keys))
    process = Process(axes, points, is_lost - _LOST, basis, scale=_LOST_SCALE, noise=_LOST_NOISE)
    mean, deviation = process.predict(at)
    share = np.clip(_LOST + mean, 0.01, 1.0)
    return np.asarray(np.maximum(share, ndtr((_LOST + mean - 0.5) / np.hypot(deviation, process.noise))))


def _spread_of(values: np.ndarray) -> float:
    if not len(values):
        return 1.0
    least = _FEW_SPREAD if len(values) < _FEW else _LEAST_SPREAD
    return max(float(np.std(values)), least * float(np.abs(values).max(initial=0.0)), 1e-9)


def _scatter_of_repeats(keys: np.ndarray, values: np.ndarray) -> Scatter:
    """Return the scatter of runs with equal keys."""
    groups: dict[bytes, list[float]] = {}
    for key, value in zip(keys.round(9), values.tolist(), strict=True):
        groups.setdefault(key.tobytes(), []).append(value)
    return Scatter.of(list(groups.values()))


def _tamed(values: np.ndarray, least: float) -> np.ndarray:
    """Compress values far below the better half, so that one diverged run does not distort the surface.

    The width of the better half is the distance from its median to the best value, but at least `least`. Fewer than
    `_FEW` values stay as they are.
    """
    if len(values) < _FEW:
        return values
    middle = float(np.median(values[values >= np.median(values)]))
    low = middle - _FAR * max(float(values.max()) - middle, least)
    return np.where(values < low, low + 0.1 * (values - low), values)
