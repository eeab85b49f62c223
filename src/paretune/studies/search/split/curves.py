"""Final quality of trainings that have not ended, forecast from the learning curves of all trials.

All curves are extrapolated jointly, as in freeze-thaw Bayesian optimisation (Swersky, Snoek and Adams, 2014): by a
Gaussian process whose parts are the final quality of a configuration, which settings nearby share, what a curve still
gains until its end, and how it wanders. Pure computation: no clock, no files, no random numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

REACH, SHARED, OWN, GAIN, WANDER, NOISE, BEND = 2.0, 1.0, 0.3, 4.0, 1.4, 0.08, 2.8
"""Constants of the model, the most likely ones on six data sets of benchmarks/tables/learning_curves.csv, and GAIN the
one with the smallest errors there; the others judge it (2026-11-23). Distance in octaves over which final quality is
shared; variances relative to one another of final quality, shared and of a configuration alone, of the gain that
remains at the beginning, of wandering, and of a measurement; how early a curve rises: what remains at a share s is
(1 - s) / (1 + BEND s)."""
CALM = (0.1, 1.0)
"""Factors of OWN, WANDER and NOISE, of which each search takes the likeliest: they depend on the validation split."""
_UNKNOWN = 100.0
"""Relative variance of the mean quality and the mean gain of all trials: nothing is known of them before."""
_FLOOR = 3.0
"""Qualities count as no worse than so many times the distance from the best to the middle: trainings that diverged are
no part of a Gaussian process."""
_USUAL = (0.03, 4.0)
"""Standard deviation of final quality assumed before there are curves, and how many measurements that is worth."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The learning curve of a trial.

    Attributes:
        key: names the trial.
        values: (share of the training, quality on the validation split), in the order in which they were measured;
            larger values are better.
        point: searched settings that quality depends on, as numbers: logarithms to base 2 of batch size, learning rate
            and the like; of the same length for all trials, empty if there are none.
    """

    key: str
    values: tuple[tuple[float, float], ...] = ()
    point: tuple[float, ...] = ()


def comparable_point(batch_size: int, learning_rate: float) -> tuple[float, float]:
    """A `Curve.point`: half the octaves of the batch, and those of the rate over one that grows with its root."""
    return math.log2(batch_size) / 2, math.log2(learning_rate) - math.log2(batch_size) / 2


def forecast(
    trials: Sequence[Curve], states: Sequence[Curve], shares: Sequence[float], *, is_measured: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation, both of shape (N,), of the quality of N states at N shares of their trainings.

    Args:
        trials: with all their measurements, at least one of them.
        states: of the trials or of candidates.
        shares: 1 for the end of a training.
        is_measured: whether the deviation has the noise of a measurement in it.
    """
    at = [(trial, share, value) for trial in trials for share, value in trial.values]
    last = [trial.values[-1][1] for trial in trials if trial.values]
    spread = max(max(last) - float(np.median(last)), 1e-4)
    values = np.maximum([value for *_, value in at], max(last) - _FLOOR * spread)
    keys = {trial.key: number for number, trial in enumerate((*trials, *states))}
    seen = _Places([trial for trial, *_ in at], [share for _, share, _ in at], keys)
    targets = _Places(states, shares, keys)
    middle = float(values.mean())
    fits = [_fit(seen, values - middle, calm) for calm in CALM]
    fit = max(fits, key=lambda item: item.likelihood)
    weights = np.linalg.solve(fit.factor, _covariance(seen, targets, fit.calm))
    variance = np.maximum(_variance(targets, fit.calm) - (weights**2).sum(axis=0), 1e-9)
    noise = fit.calm * NOISE if is_measured else 0.0
    return middle + weights.T @ fit.whitened, np.sqrt(fit.scale * (variance + noise))


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """The model of N measurements with one of CALM: factor of its covariance, whitened values, scale of variances."""

    calm: float
    factor: np.ndarray
    whitened: np.ndarray
    scale: float
    likelihood: float


def _fit(seen: "_Places", values: np.ndarray, calm: float) -> _Fit:
    factor = np.linalg.cholesky(_covariance(seen, seen, calm) + calm * NOISE * np.eye(len(values)))
    whitened = np.linalg.solve(factor, values)
    usual, worth = _USUAL
    scale = (float(whitened @ whitened) + worth * usual**2) / (len(values) + worth)
    likelihood = -0.5 * (len(values) + worth) * math.log(scale) - float(np.log(np.diag(factor)).sum())
    return _Fit(calm=calm, factor=factor, whitened=whitened, scale=scale, likelihood=likelihood)


class _Places:
    """N states at shares of their trainings: settings of shape (N, settings), shares and numbers of shape (N,)."""

    def __init__(self, states: Sequence[Curve], shares: Sequence[float], keys: dict[str, int]) -> None:
        self.settings = np.array([state.point for state in states], dtype=float).reshape(len(states), -1)
        self.shares = np.minimum(shares, 1.0)
        self.numbers = np.array([keys[state.key] for state in states])
        self.remains = (1 - self.shares) / (1 + BEND * self.shares)


def _covariance(a: _Places, b: _Places, calm: float) -> np.ndarray:
    """Relative covariance, of shape (len(a), len(b)), without the noise of measurements."""
    off = ((a.settings[:, None] - b.settings[None]) ** 2).sum(axis=2)
    near = np.exp(-0.5 * off / REACH**2) if a.settings.shape[1] else np.zeros(off.shape)
    is_same = a.numbers[:, None] == b.numbers[None]
    alike = near if a.settings.shape[1] else is_same
    final = _UNKNOWN + SHARED * alike + calm * OWN * is_same
    gain = _UNKNOWN + GAIN * (alike + is_same) / 2
    wander = calm * WANDER * is_same * np.minimum(1 - a.shares[:, None], 1 - b.shares[None])
    return np.asarray(final + gain * a.remains[:, None] * b.remains[None] + wander)


def _variance(places: _Places, calm: float) -> np.ndarray:
    final, gain = _UNKNOWN + SHARED + calm * OWN, (_UNKNOWN + GAIN) * places.remains**2
    return np.asarray(final + gain + calm * WANDER * (1 - places.shares))
