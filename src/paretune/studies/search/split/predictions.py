"""Predicted seconds, dollars and quality of every candidate of a split search, and how sure they are."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import moocore
import numpy as np
from scipy.special import stdtrit

from paretune.estimating.memory_limits import MemoryLimits
from paretune.specification import metrics
from paretune.studies.results.quality_model import NormalPrediction, QualityModel, Surface
from paretune.studies.results.run_noise import INTERVAL
from paretune.studies.search.split.candidates import CandidateSpace
from paretune.studies.search.split.seconds_model import SecondsModel

SECONDS_KNOWN = 0.08
"""Relative deviation at which seconds are as good as measured."""
_QUALITY_KNOWN = 1.6
"""Standard deviations of noise at which F1 is as good as measured; noise below what is usual counts as usual."""


def _nodes(count: int) -> list[tuple[float, float]]:
    """Deviations and weights with which the mean of a function of a normal number is worked out (Gauss and Hermite)."""
    at, weights = np.polynomial.hermite_e.hermegauss(count)
    return list(zip(at.tolist(), (weights / math.sqrt(2 * math.pi)).tolist(), strict=True))


_SECONDS_NODES, _QUALITY_NODES = _nodes(3), _nodes(9)  # most of what quality may gain lies in the tail
_INTERVAL_ENDS = float(stdtrit(5.0, 0.5 + INTERVAL / 2))
"""Standard deviations from the expected value to either end of an interval: Student's, for they are estimated, too."""
_RISE = 0.15  # of what the best quality lacks to the highest possible: the most that another setting may add to it
_OPTIMISM = 0.4  # standard deviations above the expected F1
_UNTIL_FULL_S = 60.0  # of training, until it runs out of memory
_TIME_COLUMNS = {metrics.BILLABLE_SECONDS: "seconds", metrics.JOB_SECONDS: "seconds", metrics.COST_USD: "usd"}


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Billed seconds, dollars and quality of N jobs; of quality, more is better."""

    seconds: np.ndarray
    usd: np.ndarray
    quality: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[tuple[float, float, float]]) -> "Outcomes":
        """From N triples of seconds, dollars and quality."""
        return cls(*np.array(rows, dtype=float).reshape(len(rows), 3).T)

    def __len__(self) -> int:
        return len(self.seconds)

    def only(self, chosen: np.ndarray) -> "Outcomes":
        """The outcomes at chosen indices, or where a mask is true."""
        return Outcomes(self.seconds[chosen], self.usd[chosen], self.quality[chosen])

    def points(self, goals: Sequence[str]) -> np.ndarray:
        """Costs to be minimised, one column for each of the goals `usd` and `seconds`, and negative quality."""
        return np.stack([*(getattr(self, goal) for goal in goals), -self.quality], axis=1)

    def front(self, goals: Sequence[str]) -> np.ndarray:
        """The non-dominated `points`, equal ones once."""
        points = np.unique(self.points(goals), axis=0)
        return np.asarray(moocore.filter_dominated(points)) if len(points) else points


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Predictions for all candidates. Arrays have one entry per candidate.

    Attributes:
        rows: that the job trains on, over all epochs; 1 if the rows of a training are unknown.
        overhead_s: billed seconds around the training.
        times: logarithms of the seconds of a row.
        mean, optimistic: expected outcomes, and those with more quality than expected.
        low, high: ends of the intervals.
        cases: weights and outcomes whose weighted mean is an expectation over both models.
        quality_deviation: standard deviations of quality; up to `quality_tolerance` it is as good as measured.
        usual_noise, least_noise: standard deviation of the quality of one run, as likely now and as assumed before.
        collapse_probability: probability that a run collapses to what the majority class gets.
        fit_chance: probability that the job does not run out of memory.
        is_fit_pending: a job under way will show whether it fits.
        is_impossible: it runs out of memory, or beyond its maximum runtime even if it goes well.
        costs_usd: expected dollars of the job; one that runs out of memory does so soon.
        has_quality: whether the quality of any job was measured in this study.
    """

    rows: np.ndarray
    overhead_s: np.ndarray
    times: NormalPrediction
    mean: Outcomes
    optimistic: Outcomes
    low: Outcomes
    high: Outcomes
    cases: Sequence[tuple[float, Outcomes]]
    quality_deviation: np.ndarray
    quality_tolerance: float
    usual_noise: float
    least_noise: float
    collapse_probability: np.ndarray
    fit_chance: np.ndarray
    is_fit_pending: np.ndarray
    is_impossible: np.ndarray
    costs_usd: np.ndarray
    has_quality: bool

    @classmethod
    def of(
        cls,
        space: CandidateSpace,
        seconds_model: SecondsModel | Surface,
        quality_model: QualityModel,
        memory_limits: MemoryLimits,
        *,
        rows: np.ndarray,
        overhead_s: np.ndarray,
        has_quality: bool,
    ) -> "Predictions":
        """Predict all candidates with fitted models."""
        times, quality = seconds_model.predict(space.step_keys), quality_model.predict(space.quality_keys)
        top = quality_model.surface.top if has_quality else math.inf

        def seconds_at(deviations: float) -> np.ndarray:
            return _seconds_at(rows, overhead_s, times, deviations)

        def outcomes(seconds: np.ndarray, values: np.ndarray) -> Outcomes:
            return Outcomes(seconds, seconds * space.usd_per_second, values)

        def quality_at(deviations: float) -> np.ndarray:
            return _within_ends(quality.mean + deviations * quality.deviation, top, space)

        expected_s = seconds_at(0.0)
        fit_chance = np.array([memory_limits.chance(footprint) for footprint in space.footprints])
        until_full_s = np.minimum(overhead_s + _UNTIL_FULL_S, expected_s)
        return cls(
            rows=rows,
            overhead_s=overhead_s,
            times=times,
            mean=outcomes(expected_s, quality_at(0.0)),
            optimistic=outcomes(expected_s, quality_at(_OPTIMISM)),
            low=outcomes(seconds_at(-_INTERVAL_ENDS), quality_at(-_INTERVAL_ENDS)),
            high=outcomes(seconds_at(_INTERVAL_ENDS), quality_at(_INTERVAL_ENDS)),
            cases=[
                (time_weight * quality_weight, outcomes(seconds_at(z), quality_at(y)))
                for (z, time_weight), (y, quality_weight) in itertools.product(_SECONDS_NODES, _QUALITY_NODES)
            ],
            quality_deviation=quality.deviation,
            quality_tolerance=_QUALITY_KNOWN * quality_model.noise,
            usual_noise=quality_model.noise,
            least_noise=quality_model.prior.noise,
            collapse_probability=quality_model.collapse_probability(space.quality_keys),
            fit_chance=fit_chance,
            is_fit_pending=np.array([memory_limits.is_pending(footprint) for footprint in space.footprints]),
            is_impossible=(fit_chance == 0) | (seconds_at(-1.0) > space.limit_s),
            costs_usd=space.usd_per_second * (fit_chance * expected_s + (1 - fit_chance) * until_full_s),
            has_quality=has_quality,
        )

    @property
    def seconds(self) -> np.ndarray:
        """Expected billed seconds."""
        return self.mean.seconds

    @property
    def seconds_deviation(self) -> np.ndarray:
        """Relative standard deviations of the seconds of a row; below SECONDS_KNOWN they are as good as measured."""
        return self.times.deviation

    @property
    def fits(self) -> np.ndarray:
        """Whether a job is known not to run out of memory."""
        return np.asarray(self.fit_chance == 1)

    @property
    def is_known(self) -> np.ndarray:
        """Whether all of a candidate is as good as measured.

        False without own quality: what is borrowed is verified once before anything is stated.
        """
        is_known = ~self.is_impossible & self.fits & (self.seconds_deviation < SECONDS_KNOWN)
        is_known &= self.quality_deviation < self.quality_tolerance
        return np.asarray(is_known & self.has_quality)

    def seconds_at(self, deviations: float | np.ndarray) -> np.ndarray:
        """Billed seconds, so many standard deviations above the expected ones."""
        return _seconds_at(self.rows, self.overhead_s, self.times, deviations)


def _within_ends(values: np.ndarray, top: float, space: CandidateSpace) -> np.ndarray:
    """Possible values of quality; above the best that was measured, `top`, they rise by a part of what is left."""
    low, high = sorted(space.quality.sign * end for end in space.quality.ends)
    if math.isfinite(high) and top < high:
        most = _RISE * (high - top)
        values = np.where(values > top, top + most * -np.expm1(-np.maximum(values - top, 0.0) / most), values)
    return np.asarray(np.clip(values, low, high))


def _seconds_at(
    rows: np.ndarray, overhead_s: np.ndarray, times: NormalPrediction, deviations: float | np.ndarray
) -> np.ndarray:
    return np.asarray(overhead_s + rows * np.exp(times.mean + deviations * times.deviation))


def meets_constraints(
    outcomes: Outcomes, constraints: Mapping[str, Mapping[str, float]], space: CandidateSpace
) -> np.ndarray:
    """The outcomes that meet the constraints of a study on seconds, dollars and quality; others are not predicted."""
    columns = {name: getattr(outcomes, column) for name, column in _TIME_COLUMNS.items()}
    columns[space.quality.metric] = space.quality.sign * outcomes.quality
    meets = np.ones(len(outcomes), dtype=bool)
    for name, bounds in constraints.items():
        if (values := columns.get(name)) is not None:
            meets &= values >= bounds.get("min", -math.inf)
            meets &= values <= bounds.get("max", math.inf)
    return meets
