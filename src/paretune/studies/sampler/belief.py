"""What is believed of all candidates of a search: seconds, dollars, quality, and the chance that a job succeeds.

There is one such belief, from the first moment on. Before any job has run, it is the estimate from data sheets and what
is usually true of settings; a probe or a training replaces a part of it by a measurement. The search chooses by it, and
the answer and the page of a study state it.

Arrays of shape (N,) have one entry for each candidate.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from moocore import filter_dominated
from scipy.special import ndtr

from paretune.specification import metrics
from paretune.studies.definition.objectives import Constraints
from paretune.studies.sampler.candidates import Candidate, Jobs, Row, Space
from paretune.studies.sampler.quality import QualityModel, lost_probability, octaves_off, settings_doubt
from paretune.studies.sampler.seconds import SecondsModel
from paretune.studies.trial_status import ESTIMATED, PROBED, TrialStatus, is_final

_FAILED = (TrialStatus.FAILED, TrialStatus.DIVERGED, TrialStatus.STOPPED)
_CAUTION = 0.6
"""Standard deviations by which the quality of a configuration that was not trained is compared as lower than expected.
Without it, what little is known of would hide what is known. Chosen on the development half of
benchmarks/search_budgets.py."""
_KNOWN = 2.0  # factor within which the seconds of a job must be known, in one standard deviation, to be stated
_LIKELY = 0.5  # probability with which a job must succeed to be stated
_DIGITS = 9  # values that agree in as many digits are equal, because processors round sums differently


@dataclass(frozen=True, kw_only=True)
class Aims:
    """The objectives of a search, the one that measures the model (`metric`), and the constraints.

    Billed seconds minus `startup_s` are the seconds of the training.
    """

    objectives: Sequence[str]
    metric: str
    constraints: Constraints
    spread: float | None  # prior standard deviation of quality between configurations; None to learn it
    stops: bool  # whether the search ends when the front has stopped growing
    startup_s: float = 0.0  # billed seconds outside the training

    @cached_property
    def costs(self) -> list[str]:
        """The cost columns of a point in objective space, in their order: dollars, seconds or both."""
        is_about_time = not {*metrics.TIMES}.isdisjoint(self.objectives)
        is_about_usd = metrics.COST_USD in self.objectives or not is_about_time
        return [metrics.COST_USD] * is_about_usd + [metrics.JOB_SECONDS] * is_about_time

    def unmet(self, usd: np.ndarray, seconds: np.ndarray, quality: np.ndarray) -> list[str]:
        """Describe the bounds that none of N jobs meets. If every bound is met by some job, describe all bounds."""
        texts = []
        for name, bounds in self.constraints.items():
            for end, bound in bounds.items():
                alone = replace(self, constraints={name: {end: bound}})
                text = f"{name} of {'at least' if end == 'min' else 'at most'} {bound:g}"
                texts.append((text, not alone.meets(usd, seconds, quality).any()))
        return [text for text, is_unmet in texts if is_unmet] or [text for text, _ in texts]

    def meets(self, usd: np.ndarray, seconds: np.ndarray, quality: np.ndarray) -> np.ndarray:
        """Return which of N jobs meet the constraints on dollars, seconds and quality, shape (N,)."""
        meets = np.ones(len(quality), dtype=bool)
        for name, values in {**self.measures(usd, seconds), self.metric: quality}.items():
            bounds = self.constraints.get(name, {})
            meets &= (values >= bounds.get("min", -math.inf)) & (values <= bounds.get("max", math.inf))
        return meets

    def measures(self, usd: np.ndarray, seconds: np.ndarray) -> dict[str, np.ndarray]:
        """Return the metrics that follow from dollars and seconds, each with its values, shape (N,)."""
        return {
            metrics.COST_USD: usd,
            metrics.JOB_SECONDS: seconds,
            metrics.BILLABLE_SECONDS: seconds,
            metrics.TRAIN_SECONDS: self.train_seconds(seconds),
        }

    def train_seconds(self, seconds: np.ndarray) -> np.ndarray:
        """Return the seconds of the training in the billed seconds of N jobs, shape (N,)."""
        return np.asarray(np.maximum(seconds - self.startup_s, 0.0))


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Describes what is believed of one candidate.

    Attributes:
        seconds: expected billed seconds (their median).
        train_seconds: expected seconds of the training.
        log_deviation: standard deviation of the logarithms of both.
        mean: expected quality; more is better. Before any training, it is relative to that of the usual settings.
        cautious: the same, but lower the less is known: what it is compared by.
        deviation: standard deviation of the quality.
        is_absolute: whether a training has measured quality, so that `mean` is not relative.
        evidence: ESTIMATED or PROBED.
        collapse: probability that the training collapses or fails.
    """

    job: Candidate
    seconds: float
    train_seconds: float
    log_deviation: float
    mean: float
    cautious: float
    deviation: float
    is_absolute: bool
    evidence: str
    collapse: float


class Beliefs:
    """Says what is believed of all candidates after the outcomes of earlier jobs.

    Each part is computed at its first use.

    Args:
        space: the candidates.
        aims: the objectives and constraints.
        rows: jobs that have ended or are running.
        sign: 1 if more of the metric is better, else -1. Quality is multiplied by it, so that more is always better.
    """

    def __init__(self, space: Space, aims: Aims, rows: Sequence[Row], sign: float) -> None:
        self.space, self.rows, self.sign = space, rows, sign
        self.of_seconds = SecondsModel(space, rows)
        self.aims = replace(aims, startup_s=self.of_seconds.measured_startup_s)
        full = dict.fromkeys(row.job.footprint for row in rows if row.status is TrialStatus.OUT_OF_MEMORY)
        fit = [row.job.footprint for row in rows if row.status is TrialStatus.COMPLETED]
        self._is_full = cache(lambda job: job.footprint.why_full(full) is not None)
        self._is_sure_to_fit = cache(lambda job: any(each.why_full([job.footprint]) for each in dict.fromkeys(fit)))
        self.measured = [row for row in rows if row.values and row.is_training]
        self.has_quality = bool(self.measured)

    @cached_property
    def jobs(self) -> Jobs:
        """The candidates."""
        if self.space.is_listed or not self.has_quality:
            return self.space.listed
        is_best = self.measured_points[:, None] == front_of(self.measured_points)
        on_front = [row.job.point for row in itertools.compress(self.measured, is_best.all(axis=2).any(axis=1))]
        return self.space.jobs_near(on_front, len(self.rows))

    def final(self) -> set[Any]:
        """Return the identities of the jobs that are running or over (`is_final`), and so are not started again."""
        ends = defaultdict[Any, list[TrialStatus]](list)
        for row in self.rows:
            ends[row.job.identity].append(row.status)
        return {identity for identity, statuses in ends.items() if is_final(statuses)}

    @cached_property
    def is_new(self) -> np.ndarray:
        """Whether each candidate may still be started, shape (N,).

        Jobs that differ only in a parameter that a trial never suggested count as the same job.
        """
        final = self.final()
        is_new = np.array([job.identity not in final for job in self.jobs.jobs])
        for names in {row.unused for row in self.rows if row.unused}:
            kept = [name for name in self.space.searched if name not in names]
            ran = {tuple(row.job.point[n] for n in kept) for row in self.rows if row.unused == names and row.values}
            is_new &= [tuple(job.point[n] for n in kept) not in ran for job in self.jobs.jobs]
        return is_new

    @cached_property
    def is_open(self) -> np.ndarray:
        """Whether each candidate is not known to run out of memory, and should end within its limit, shape (N,)."""
        fits = np.array([not self._is_full(job) for job in self.jobs.jobs])
        return np.asarray(fits & (self.seconds <= self.limits_s))

    @cached_property
    def limits_s(self) -> np.ndarray:
        """Time limit of each candidate in seconds, shape (N,).

        Infinite if a training job has completed but no completed job reported its time: the seconds are then dollars
        divided by the price, and the dollars may be in another unit.
        """
        if not any(row.is_timed for row in self.rows if row.status is TrialStatus.COMPLETED) and self.has_quality:
            return np.full(len(self.jobs), math.inf)
        return self.jobs.limits_s

    @cached_property
    def octaves(self) -> np.ndarray:
        """How far each learning rate is from the usual one for its batch, in factors of 2, see `octaves_off`."""
        return octaves_off(self.space.quality_axes, self.jobs.quality)

    @cached_property
    def unusual(self) -> np.ndarray:
        """How far the settings of each candidate are from the usual ones, shape (N,)."""
        if self.space.runs_user_code:
            keys = self.jobs.keys
            return np.asarray(np.linalg.norm(keys - np.median(keys, axis=0), axis=1))
        return np.asarray(np.hypot(self.jobs.quality.terms[:, 3], self.octaves))

    @cached_property
    def _of_seconds(self) -> tuple[np.ndarray, np.ndarray]:
        seconds, log_deviation = self.of_seconds.predict(self.jobs)
        return to_digits(seconds), to_digits(log_deviation)

    @property
    def seconds(self) -> np.ndarray:
        """Expected billed seconds of each candidate (the median), shape (N,)."""
        return self._of_seconds[0]

    @property
    def log_deviation(self) -> np.ndarray:
        """Standard deviation of the logarithm of the seconds of each candidate, shape (N,)."""
        return self._of_seconds[1]

    @cached_property
    def usd(self) -> np.ndarray:
        """Expected dollars of each candidate (the median), shape (N,)."""
        return to_digits(self.seconds * self.jobs.usd_per_s)

    @cached_property
    def _learned(self) -> tuple[QualityModel, Jobs, np.ndarray, np.ndarray]:
        """The model of quality; the completed, then running training jobs that did not collapse; seconds and collapses.

        Jobs that are running count with their expected quality.
        """
        running = [row.job for row in self.rows if row.is_training and not row.values]
        position, sign, space = self.aims.objectives.index(self.aims.metric), self.sign, self.space
        values = [sign * row.values[position] for row in self.measured if row.values]
        lost = [
            row.baseline is not None and value < sign * row.baseline
            for row, value in zip(self.measured, values, strict=True)
        ]
        in_percent = max(map(abs, values), default=0.0) > 1.0
        spread = self.aims.spread and self.aims.spread * (100.0 if in_percent else 1.0)
        jobs = Jobs(space, [row.job for row in self.measured])
        model = QualityModel(space.quality_axes, jobs.quality, values, spread, collapsed=np.array(lost, dtype=bool))
        trained = np.flatnonzero(~model.collapsed).tolist()
        seconds = np.array([self.measured[i].seconds for i in trained])
        ran = [jobs.jobs[i] for i in trained]
        if running and self.has_quality:
            more = Jobs(space, running)
            model, seconds = model.expecting(more.quality), np.append(seconds, self.of_seconds.predict(more)[0])
            ran += running
        return model, Jobs(space, ran), seconds, model.collapsed

    @property
    def quality(self) -> QualityModel:
        """The model of quality."""
        return self._learned[0]

    @cached_property
    def _of_quality(self) -> tuple[np.ndarray, np.ndarray]:
        mean, deviation = self.quality.predict(self.jobs.quality)
        return to_digits(mean), to_digits(deviation)

    @property
    def mean(self) -> np.ndarray:
        """Expected quality of each candidate, shape (N,); before any training, relative to an unknown level."""
        return self._of_quality[0]

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of the quality of each candidate, shape (N,)."""
        return self._of_quality[1]

    @cached_property
    def lost(self) -> np.ndarray:
        """Probability that each candidate fails or collapses, shape (N,)."""
        rows = [row for row in self.rows if row.status in _FAILED or (not row.job.is_probe and row.values)]
        lost = np.array([row.status in _FAILED for row in rows], dtype=bool)
        if self.has_quality:
            collapsed = {id(row) for row in itertools.compress(self.measured, self._learned[3])}
            lost |= np.array([id(row) in collapsed for row in rows], dtype=bool)
        keys = Jobs(self.space, [row.job for row in rows]).keys
        return lost_probability(self.space.axes, keys, lost, self.jobs.keys)

    @cached_property
    def chance(self) -> np.ndarray:
        """Probability that each candidate neither fails nor collapses, fits in memory and ends in time, shape (N,)."""
        in_time = ndtr(np.log(self.limits_s / self.seconds) / np.maximum(self.log_deviation, 1e-9))
        fits = self.jobs.fits_probability
        if (unsure := np.flatnonzero(fits < 0.99)).size:
            is_sure = [self._is_sure_to_fit(self.jobs.jobs[i]) for i in unsure.tolist()]
            fits = fits.copy()
            fits[unsure] = np.where(is_sure, 1.0, fits[unsure])
        return np.asarray(np.maximum((1.0 - self.lost) * fits * in_time, 1e-12))

    @cached_property
    def within(self) -> np.ndarray:
        """Probability that each candidate meets the constraints on costs, shape (N,)."""
        deviation, columns = np.maximum(self.log_deviation, 1e-9), self.aims.measures(self.usd, self.seconds)
        within = np.ones(len(self.seconds))
        for name, bounds in self.aims.constraints.items():
            for end, bound in bounds.items() if name in columns else ():
                off = np.log(max(bound, 1e-12) / np.maximum(columns[name], 1e-12)) / deviation
                within *= ndtr(off if end == "max" else -off)
        return within

    def expected(self) -> list[Expected]:
        """Return what is believed of the candidates that have not been trained, the most usual first.

        Candidates are left out if their seconds are less certain than a factor of `_KNOWN`, if they succeed with a
        probability below `_LIKELY`, or if they are not expected to meet the constraints.
        """
        quality = self.sign * self.mean if self.has_quality else np.full(len(self.jobs), self.sign * math.inf)
        is_known = self.is_open & self.is_new & (self.log_deviation <= math.log(_KNOWN)) & (self.chance >= _LIKELY)
        is_known &= self.aims.meets(self.usd, self.seconds, quality)
        doubt = _CAUTION * self.deviation
        if not self.has_quality:  # the more unusual the settings are, the less is known of them
            doubt = self.quality.spread * settings_doubt(self.space.quality_axes, self.jobs.quality)
        cautious = to_digits(self.mean - doubt)
        probed = {self.space.speed_key(row.job) for row in self.rows if row.status is TrialStatus.COMPLETED}
        seconds = self._measured_or_expected()
        train_seconds = self.aims.train_seconds(seconds)
        return [
            Expected(
                job=(job := self.jobs.jobs[i]),
                seconds=float(seconds[i]),
                train_seconds=float(train_seconds[i]),
                log_deviation=float(self.log_deviation[i]),
                mean=float(self.mean[i]),
                cautious=float(cautious[i]),
                deviation=float(self.deviation[i]),
                is_absolute=self.has_quality,
                evidence=PROBED if self.space.speed_key(job) in probed else ESTIMATED,
                collapse=float(self.lost[i]),
            )
            for i in np.argsort(self.unusual, kind="stable").tolist()
            if is_known[i]
        ]

    def _measured_or_expected(self) -> np.ndarray:
        """Return the seconds of each candidate: the mean of trainings that take equally long, if any, shape (N,)."""
        measured = defaultdict[Any, list[float]](list)
        for row in self.measured:
            measured[self.space.speed_key(row.job), self.space.n_steps(row.job)].append(row.seconds)
        equal = [measured.get((self.space.speed_key(job), self.space.n_steps(job))) for job in self.jobs.jobs]
        return np.array([np.mean(s) if s else e for s, e in zip(equal, self.seconds.tolist(), strict=True)])

    # Points in objective space

    def costs(self, usd: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Return the cost columns of N jobs, shape (N, M - 1)."""
        columns = {metrics.COST_USD: usd, metrics.JOB_SECONDS: seconds}
        return np.column_stack([columns[cost] for cost in self.aims.costs])

    def billed(self, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
        """Return the dollars and the seconds of N ended jobs, each of shape (N,)."""
        seconds = np.array([row.seconds for row in rows])
        return seconds * np.array([self.space.price_of(row.job.spec) for row in rows]), seconds

    @cached_property
    def measured_points(self) -> np.ndarray:
        """Points of the completed training jobs in objective space, with their measured quality, shape (K, M)."""
        position = self.aims.objectives.index(self.aims.metric)
        quality = [self.sign * row.values[position] for row in self.measured if row.values]
        return np.column_stack([self.costs(*self.billed(self.measured)), -np.array(quality)])

    @cached_property
    def ran(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Dollars, seconds and believed quality of the completed and running trainings that did not collapse, (K,)."""
        model, jobs, seconds, _ = self._learned
        return seconds * jobs.usd_per_s, seconds, to_digits(model.predict(jobs.quality)[0])

    @cached_property
    def ran_points(self) -> np.ndarray:
        """Points of these trainings in objective space, shape (K, M)."""
        usd, seconds, quality = self.ran
        return np.column_stack([self.costs(usd, seconds), -quality])


def front_of(points: np.ndarray) -> np.ndarray:
    """Return the non-dominated points, shape (K, M), of N points, shape (N, M). All objectives are minimized."""
    return np.asarray(filter_dominated(points)) if len(points) else points


def to_digits(values: np.ndarray) -> np.ndarray:
    """Return values rounded to `_DIGITS` significant digits."""
    size = np.floor(np.log10(np.maximum(np.abs(values), 1e-300)))
    factors = 10.0 ** np.clip(_DIGITS - 1 - size, -200, 200)
    return np.asarray(np.round(values * factors) / factors)
