"""The next trainings of a job that searches, decided from the learning curves of all its trials.

All curves are extrapolated jointly, as in freeze-thaw Bayesian optimisation (Swersky, Snoek and Adams, 2014): by a
Gaussian process whose parts are the final quality of a configuration, which settings nearby share, what a curve still
gains until its end, and how it wanders. Next comes the trial with the largest expected gain of the front for the
dollars that it takes. Pure computation: no clock, no files, no random numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paretune.core.pareto import front as pareto_front
from paretune.studies.results.hypervolume import MARGIN, hypervolume

RUNGS = (0.125, 0.25, 0.5, 1.0)
"""Shares of a training after which its trial pauses."""
REACH, SHARED, OWN, GAIN, WANDER, NOISE, BEND = 2.0, 1.0, 0.3, 1.0, 1.4, 0.08, 2.8
"""Constants of the model, the most likely ones on six data sets of benchmarks/tables/learning_curves.csv; the others
judge it (2026-11-23). Distance in octaves over which final quality is shared; variances relative to one another of
final quality, shared and of a configuration alone, of the gain that remains at the beginning, of wandering, and of a
measurement; how early a curve rises: what remains at a share s is (1 - s) / (1 + BEND s)."""
CALM = (0.1, 1.0)
"""Factors of OWN, WANDER and NOISE, of which each search takes the likeliest: they depend on the validation split."""
_UNKNOWN = 100.0
"""Relative variance of the mean quality and the mean gain of all trials: nothing is known of them before."""
_FLOOR = 3.0
"""Qualities count as no worse than so many times the distance from the best to the middle: trainings that diverged are
no part of a Gaussian process."""
_USUAL = (0.03, 4.0)
"""Standard deviation of final quality assumed before there are curves, and how many measurements that is worth."""
_FINISHED = 0.5
"""Weight of the gain over what is finished beside that over what is forecast of the other trials."""
FIRST = 3
"""Trials that are begun before any goes on: of fewer, nothing is known of how much they differ."""
ENOUGH = 0.01
"""Expected gain, as a share of the front's hypervolume, below which training a trial is not worth its dollars."""


@dataclass(frozen=True, kw_only=True)
class CurveState:
    """The learning curve of a trial, or of a candidate that has not begun.

    Attributes:
        key: names the trial.
        usd_per_step: dollars that an optimiser step of it costs in the job that searches.
        total_steps: optimiser steps of the whole training.
        own_job_usd: dollars of a job that trains this configuration alone, to its end: its place on a front by cost.
        steps: optimiser steps that are done; 0 for a candidate.
        curve: (share of the training, quality on the validation split), in the order in which they were measured;
            larger values are better.
        point: searched settings that quality depends on, as numbers: logarithms to base 2 of batch size, learning rate
            and the like; of the same length for all trials, empty if there are none.
        is_given_up: whether the trial has ended before its last step and is not continued.
    """

    key: str
    usd_per_step: float
    total_steps: int
    own_job_usd: float
    steps: int = 0
    curve: tuple[tuple[float, float], ...] = ()
    point: tuple[float, ...] = ()
    is_given_up: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.steps <= self.total_steps or self.total_steps < 1:
            raise ValueError(f"steps must be 0 to total_steps >= 1, got {self.steps} of {self.total_steps}")

    @property
    def is_done(self) -> bool:
        """Whether the last step is done."""
        return self.steps == self.total_steps

    def steps_at(self, share: float) -> int:
        """The optimiser steps of a share of the training, at least one."""
        return max(1, min(self.total_steps, math.ceil(share * self.total_steps)))

    def value_at(self, share: float) -> float | None:
        """The newest quality measured up to a share of the training; None before the first."""
        values = [value for at, value in self.curve if at <= share + 1e-9]
        return values[-1] if values else None

    @property
    def next_rung(self) -> int:
        """The optimiser step at which it pauses next."""
        return next((step for share in RUNGS if (step := self.steps_at(share)) > self.steps), self.total_steps)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The next trainings of the job.

    Attributes:
        entries: keys with the optimiser step to train them to, in the order of training.
        begun: keys among them of candidates that begin.
        given_up: keys of trials that are not continued.
        is_done: whether nothing is worth training any more.
    """

    entries: tuple[tuple[str, int], ...] = ()
    begun: tuple[str, ...] = ()
    given_up: frozenset[str] = frozenset()
    is_done: bool = False


def next_entries(
    trials: Sequence[CurveState],
    candidates: Sequence[CurveState],
    front: Sequence[tuple[float, float]],
    *,
    ahead: int = 4,
) -> Plan:
    """The next trainings, best first.

    Args:
        trials: that have begun, in the order in which they did, those given up or done included.
        candidates: that have not, the most promising first.
        front: (own-job dollars, quality) of finished configurations that are not among the trials.
        ahead: entries to plan, so that the job need not wait for the next decision.
    """
    live = [trial for trial in trials if not (trial.is_done or trial.is_given_up)]
    open_ = [*live, *candidates]
    measured = [trial for trial in trials if trial.curve]
    if len(measured) < FIRST or not open_:
        waiting = [trial for trial in live if not trial.curve]
        room = max(0, max(FIRST, ahead) - len(waiting) - len(measured))
        paused = [trial for trial in live if trial.curve]
        return _plan([*waiting, *candidates[:room], *paused][:ahead], candidates, frozenset())
    every = [*measured, *(trial for trial in open_ if not trial.curve)]
    mean, deviation = forecast(measured, every, [1.0] * len(every))
    expected = {trial.key: (float(m), float(s)) for trial, m, s in zip(every, mean, deviation, strict=True)}
    gains = _gains(open_, trials, front, expected)
    worth = sorted((trial for trial in open_ if gains[trial.key][0] >= ENOUGH), key=lambda trial: -gains[trial.key][1])
    hopeless = frozenset(trial.key for trial in live if gains[trial.key][0] < ENOUGH / 3)
    return _plan(worth[:ahead], candidates, hopeless if worth else frozenset(trial.key for trial in live))


def comparable_point(batch_size: int, learning_rate: float) -> tuple[float, float]:
    """A `CurveState.point`: half the octaves of the batch, and those of the rate over one that grows with its root."""
    return math.log2(batch_size) / 2, math.log2(learning_rate) - math.log2(batch_size) / 2


def forecast(
    trials: Sequence[CurveState], states: Sequence[CurveState], shares: Sequence[float], *, is_measured: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation, both of shape (N,), of the quality of N states at N shares of their trainings.

    Args:
        trials: with all their measurements, at least one of them.
        states: of the trials or of candidates.
        shares: 1 for the end of a training.
        is_measured: whether the deviation has the noise of a measurement in it.
    """
    at = [(trial, share, value) for trial in trials for share, value in trial.curve]
    last = [trial.curve[-1][1] for trial in trials if trial.curve]
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

    def __init__(self, states: Sequence[CurveState], shares: Sequence[float], keys: dict[str, int]) -> None:
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


def _gains(
    states: Sequence[CurveState],
    trials: Sequence[CurveState],
    front: Sequence[tuple[float, float]],
    expected: dict[str, tuple[float, float]],
) -> dict[str, tuple[float, float]]:
    """Key to the expected gain of training a state to its end, as a share of the front, and that gain per dollar."""
    forecasts = {t.key: (t.own_job_usd, expected[t.key][0]) for t in trials if t.key in expected and not t.is_given_up}
    finished = [*front, *(forecasts[t.key] for t in trials if t.is_done and t.key in forecasts)]
    likely = [*front, *forecasts.values()]
    best = [point for point, is_best in zip(likely, pareto_front(likely, [False, True]), strict=True) if is_best]
    qualities = [quality for _, quality in best]
    dollars = [state.own_job_usd for state in (*states, *trials)]
    lowest = min(qualities) - max(
        MARGIN * (max(qualities) - min(qualities)), float(np.median([s for _, s in expected.values()]))
    )
    corner = (max(dollars) + MARGIN * (max(dollars) - min(dollars) or max(dollars)), lowest)
    volume = hypervolume([(usd, -quality) for usd, quality in best], (corner[0], -corner[1])) or 1.0
    result = {}
    for state in states:
        mean, deviation = expected[state.key]
        others = [*front, *(point for key, point in forecasts.items() if key != state.key)]
        over_finished = _expected_gain(state.own_job_usd, mean, deviation, finished, corner)
        over_others = _expected_gain(state.own_job_usd, mean, deviation, others, corner)
        gain = _FINISHED * over_finished + (1 - _FINISHED) * over_others
        level = max((quality for usd, quality in others if usd <= state.own_job_usd), default=corner[1])
        chance = 0.5 * math.erfc((level - mean) / deviation / math.sqrt(2))
        first = state.next_rung - state.steps
        usd = state.usd_per_step * (first + chance * (state.total_steps - state.next_rung))
        result[state.key] = (max(over_finished, over_others) / volume, gain / max(usd, 1e-12))
    return result


def _expected_gain(
    usd: float, mean: float, deviation: float, points: Sequence[tuple[float, float]], corner: tuple[float, float]
) -> float:
    """Expected growth of the hypervolume by a point of known dollars and normal quality, over the corner's values."""
    level = max((quality for other, quality in points if other <= usd), default=corner[1])
    edges, levels = [usd], [max(level, corner[1])]
    for other, quality in sorted(points):
        if usd < other < corner[0] and quality > levels[-1]:
            edges.append(other)
            levels.append(quality)
    widths = np.diff([*edges, max(corner[0], edges[-1])])
    total = 0.0
    for width, floor in zip(widths, levels, strict=True):
        z = (mean - floor) / deviation
        density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        total += width * (deviation * density + (mean - floor) * 0.5 * math.erfc(-z / math.sqrt(2)))
    return float(total)


def _plan(chosen: Sequence[CurveState], candidates: Sequence[CurveState], given_up: frozenset[str]) -> Plan:
    new = {state.key for state in candidates}
    return Plan(
        entries=tuple((state.key, state.next_rung) for state in chosen),
        begun=tuple(state.key for state in chosen if state.key in new),
        given_up=given_up,
        is_done=not chosen,
    )
