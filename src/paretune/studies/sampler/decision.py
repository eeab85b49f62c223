"""Chooses the next job of a search from the outcomes of earlier jobs, or decides that the search is over.

The next job is the candidate with the largest expected gain per expected dollar. The gain is the increase in the
hypervolume of the front, the size of the area that the front beats, up to a reference point so far beyond the front
that its corners count as much as its middle. Quality and costs of the candidate are uncertain; the front is what the
model believes of the jobs that have run. The gain is multiplied by the probability that the job succeeds: that it
neither fails nor collapses, fits in memory, and ends within its time limit and within the constraints.

A probe gains nothing itself, but shows what a job costs. It is worth what one more dollar-wise decision gains by
knowing that (the value of information), and it runs if that is more than its own dollars would gain elsewhere. What
running jobs will show counts as known, so no two probes measure the same.

The search is over when no candidate is expected to add `LEAST_NEXT` of the front for the dollars of a median job, and
either `ENOUGH` of all candidates have run, or `LEAST_SPENT` median jobs have been spent, of which the last `IDLE` have
not grown the front. A median job costs the median of what the candidates are expected to cost.

The point of a job is its parameters. Points in objective space, such as those of a front, have M columns: the costs
(dollars, seconds or both), then the negated quality. All columns are minimized. Arrays of shape (N,) have one entry for
each candidate.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from moocore import filter_dominated, hypervolume
from scipy.special import ndtr

from paretune.estimating.workload import PROBE_STEPS
from paretune.presentation.text import usd
from paretune.specification import metrics
from paretune.studies.definition.objectives import Constraints
from paretune.studies.sampler.candidates import Candidate, Jobs, Row, Space
from paretune.studies.sampler.quality import QualityModel, lost_probability
from paretune.studies.sampler.seconds import SecondsModel
from paretune.studies.trial_status import TrialStatus, is_final

# Nodes and weights of Gauss-Hermite quadrature over the logarithm of the costs.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(3)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LARGE_SD = 1.5  # limit on the deviation of log dollars in expected dollars
# A job's outcome counts as known below these standard deviations: of log seconds, and of quality as a multiple of the
# noise of one run.
SECONDS_KNOWN, QUALITY_KNOWN = 0.08, 2.5
LIKELY = 0.5  # predicted jobs are stated only if they succeed with at least this probability
_FAILED = (TrialStatus.FAILED, TrialStatus.DIVERGED, TrialStatus.STOPPED)
_CHEAP = 100.0  # weight of log dollars over settings in the choice of the first job of the user's own training code
BRIEF = 0.5  # a probe is skipped if it takes this share of the seconds of the full run, which also shows quality
LEAST_NEXT = 0.01  # when a search ends: share of the front that the dollars of a median job add, ...
LEAST_SPENT, IDLE = 15.0, 3.0  # ... median jobs that have been spent, and that have not grown it, ...
ENOUGH = 1.0 / 3.0  # ... or share of the candidates that have run
LEAST_GROWTH = 0.005  # share of the front's hypervolume; less is not growth
LONGER = "max_runtime_minutes (raise it, or set force=limit)"  # what estimates exceed, as messages say it

Expected = tuple[float, float] | None
"""Expected billed seconds of a job and the standard deviation of their logarithm; None if they cannot be predicted."""
Accepts = Callable[[Candidate, Expected], bool]
"""Returns whether a job may start now, for example within a budget."""


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
class Belief:
    """Beliefs about N candidates, each of shape (N,).

    Attributes:
        seconds: expected billed seconds.
        train_seconds: expected seconds of the training.
        log_deviation: standard deviation of the logarithms of both.
        mean: expected quality; more is better.
        deviation: standard deviation of the quality.
        chance: probability that the job succeeds.
    """

    seconds: np.ndarray
    train_seconds: np.ndarray
    log_deviation: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    chance: np.ndarray

    def of(self, index: int) -> "Belief":
        """Return the belief about one candidate, as numbers."""
        return Belief(**{name: column[index] for name, column in vars(self).items()})


class Decision:
    """The choice of the next job after the outcomes of earlier jobs. Each quantity is computed at its first use.

    Args:
        space: the candidates.
        aims: the objectives and constraints.
        rows: jobs that have ended or are running.
        sign: 1 if more of the metric is better, else -1. Quality is multiplied by it, so that more is always better.
        accepts: returns whether a job may start now.
        can_probe: whether jobs can run as probes of a few steps.
    """

    def __init__(
        self, space: Space, aims: Aims, rows: Sequence[Row], sign: float, accepts: Accepts, *, can_probe: bool = True
    ) -> None:
        self._space, self._rows, self._sign = space, rows, sign
        self._may_begin, self._can_probe = accepts, can_probe and not space.runs_user_code
        self._seconds = SecondsModel(space, rows)
        self._aims = replace(aims, startup_s=self._seconds.measured_startup_s)
        full = dict.fromkeys(row.job.footprint for row in rows if row.status is TrialStatus.OUT_OF_MEMORY)
        fit = [row.job.footprint for row in rows if row.status is TrialStatus.COMPLETED]
        self._is_full = cache(lambda job: job.footprint.why_full(full) is not None)
        self._is_sure_to_fit = cache(lambda job: any(each.why_full([job.footprint]) for each in dict.fromkeys(fit)))

    @property
    def is_over(self) -> bool:
        """Whether no job is running and none should start."""
        return not any(row.is_running for row in self._rows) and self.job is None

    def forget_job(self) -> None:
        """Choose `job` again at its next use, because different jobs may start now."""
        self.__dict__.pop("job", None)

    def has(self, job: Candidate) -> bool:
        """Return whether the same job is running or has completed."""
        equal = [row for row in self._rows if row.job.identity == job.identity]
        return any(row.is_running or row.status is TrialStatus.COMPLETED for row in equal)

    def last(self) -> Candidate | None:
        """Return the completed training job with the highest trial number, or None if no training job has completed."""
        return self._measured[-1].job if self._measured else None

    @property
    def has_quality(self) -> bool:
        """Whether any training job has completed, and so measured quality."""
        return bool(self._measured)

    @cached_property
    def job(self) -> Candidate | None:
        """The next job; None if no job should start, either now or ever."""
        probe = self._probe()
        if probe is not None or any(row.job.is_probe and row.is_running for row in self._rows):
            return probe  # training jobs wait for the probes, which show what these jobs will cost
        if not self.has_quality:
            is_waiting = any(row.is_training and row.is_running for row in self._rows)
            return None if is_waiting else self.first() or self._probe_of_unseen()
        if self._aims.stops and self.why_over:
            return None
        return self._first_accepted(self._log_worth) or self._probe_of_unseen()

    def first(self) -> Candidate | None:
        """Return the training job with the most usual settings that has not run, on the cheapest cluster.

        For the user's own training code, this is the cheapest job, and of equally cheap ones that in the middle of the
        space. For paretune's own training, the usual settings are the usual batch and learning rate. Jobs that are
        likely to fail, or to violate a constraint on dollars or time, come last.
        """
        log_usd = np.log(self._usd / self._usd.min())
        order = (_CHEAP if self._space.runs_user_code else 0.1) * log_usd + self._unusual
        chance = np.log(self._chance * np.maximum(self._within, 1e-9))
        return self._first_accepted(np.where(self._is_open, 20.0 * chance - order, -math.inf))

    def predicted(self) -> list[tuple[Candidate, "Belief"]]:
        """Return the candidates that have not run but whose predicted outcome counts as known, with the beliefs.

        Only those that are likely to succeed and are expected to meet the constraints are returned.
        """
        if not self.has_quality:
            return []
        belief = self._belief
        meets = self._aims.meets(self._usd, belief.seconds, self._sign * belief.mean)
        is_known = (belief.deviation < QUALITY_KNOWN * self._quality.noise) & (belief.log_deviation < SECONDS_KNOWN)
        chosen = np.flatnonzero(is_known & self._is_open & self._is_new & meets & (belief.chance > LIKELY))
        return [(self._jobs.jobs[index], belief.of(index)) for index in map(int, chosen)]

    def beliefs(self) -> dict[str, tuple[float, float, float, float]]:
        """Return what was assumed before any run and what the runs have taught, by name.

        Each belief is the weight of a term: its mean and standard deviation before, then after the runs.
        """
        return self._seconds.beliefs() | (self._quality.beliefs() if self.has_quality else {})

    # Candidates

    @cached_property
    def _jobs(self) -> Jobs:
        """The candidates of this choice."""
        if self._space.is_listed or not self.has_quality:
            return self._space.listed
        is_best = self._measured_points[:, None] == _front_of(self._measured_points)
        on_front = [row.job.point for row in itertools.compress(self._measured, is_best.all(axis=2).any(axis=1))]
        return self._space.jobs_near(on_front, len(self._rows))

    @cached_property
    def _is_new(self) -> np.ndarray:
        """Whether each candidate may still be started, shape (N,).

        A job may not if it is running or over (`is_final`). Jobs that differ only in a parameter that a trial never
        suggested count as the same job.
        """
        final = self._final()
        is_new = np.array([job.identity not in final for job in self._jobs.jobs])
        for names in {row.unused for row in self._rows if row.unused}:
            kept = [name for name in self._space.searched if name not in names]
            ran = {tuple(row.job.point[n] for n in kept) for row in self._rows if row.unused == names and row.values}
            is_new &= [tuple(job.point[n] for n in kept) not in ran for job in self._jobs.jobs]
        return is_new

    def _final(self) -> set[Any]:
        ends = defaultdict[Any, list[TrialStatus]](list)
        for row in self._rows:
            ends[row.job.identity].append(row.status)
        return {identity for identity, statuses in ends.items() if is_final(statuses)}

    @cached_property
    def _is_open(self) -> np.ndarray:
        """Whether each candidate is not known to run out of memory, and should end within its limit, shape (N,)."""
        fits = np.array([not self._is_full(job) for job in self._jobs.jobs])
        return np.asarray(fits & (self._expected[0] <= self._limits_s))

    @cached_property
    def _limits_s(self) -> np.ndarray:
        """Time limit of each candidate in seconds, shape (N,).

        Infinite if a training job has completed but no completed job reported its time: the seconds are then dollars
        divided by the price, and the dollars may be in another unit.
        """
        if not any(row.is_timed for row in self._rows if row.status is TrialStatus.COMPLETED) and self.has_quality:
            return np.full(len(self._jobs), math.inf)
        return self._jobs.limits_s

    @cached_property
    def _unusual(self) -> np.ndarray:
        """How far the settings of each candidate are from the usual ones, shape (N,)."""
        if self._space.runs_user_code:
            keys = self._jobs.keys
            return np.asarray(np.linalg.norm(keys - np.median(keys, axis=0), axis=1))
        _, off, batch = self._jobs.quality.terms[:, 1:4].T
        return np.asarray(np.hypot(batch, off / math.log(2.0)))

    # What is believed of the candidates

    @cached_property
    def _expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected seconds of each candidate and the standard deviations of their logarithms, each of shape (N,)."""
        return self._seconds.predict(self._jobs)

    @cached_property
    def _usd(self) -> np.ndarray:
        """Expected dollars of each candidate (the median), shape (N,)."""
        return np.asarray(self._expected[0] * self._jobs.usd_per_s)

    @cached_property
    def _factors(self) -> np.ndarray:
        """Costs of each candidate at each node, as multiples of the expected ones, shape (N, nodes)."""
        return np.asarray(np.exp(self._expected[1][:, None] * _NODES))

    @cached_property
    def _mean_usd(self) -> np.ndarray:
        """Mean dollars of each candidate, shape (N,)."""
        return np.asarray(self._usd * np.exp(0.5 * np.minimum(self._expected[1], _LARGE_SD) ** 2))

    @cached_property
    def _measured(self) -> list[Row]:
        """The completed training jobs, which have measured quality."""
        return [row for row in self._rows if row.values and row.is_training]

    @cached_property
    def _learned(self) -> tuple[QualityModel, Jobs, np.ndarray, np.ndarray]:
        """The model of quality; the completed, then running training jobs that did not collapse; seconds and quality.

        Jobs that are running count with their expected quality.
        """
        running = [row.job for row in self._rows if row.is_training and not row.values]
        position, sign, space = self._aims.objectives.index(self._aims.metric), self._sign, self._space
        values = [sign * row.values[position] for row in self._measured if row.values]
        lost = [
            row.baseline is not None and value < sign * row.baseline
            for row, value in zip(self._measured, values, strict=True)
        ]
        in_percent = max(map(abs, values), default=0.0) > 1.0
        spread = self._aims.spread and self._aims.spread * (100.0 if in_percent else 1.0)
        jobs = Jobs(space, [row.job for row in self._measured])
        model = QualityModel(space.quality_axes, jobs.quality, values, spread, collapsed=np.array(lost, dtype=bool))
        seconds = np.array([row.seconds for row in self._measured])
        collapsed = model.collapsed
        if running:
            more = Jobs(space, running)
            values = [*values, *model.predict(more.quality)[0]]
            seconds = np.append(seconds, self._seconds.predict(more)[0])
            collapsed = np.append(collapsed, [False] * len(running))
            jobs = Jobs(space, [*jobs.jobs, *running])
            model = QualityModel(space.quality_axes, jobs.quality, values, spread, collapsed=collapsed)
        trained = np.flatnonzero(~collapsed)
        return model, Jobs(space, [jobs.jobs[i] for i in trained.tolist()]), seconds[trained], collapsed

    @property
    def _quality(self) -> QualityModel:
        return self._learned[0]

    @cached_property
    def _chance(self) -> np.ndarray:
        """Probability that each candidate neither fails nor collapses, fits in memory and ends in time, shape (N,)."""
        rows = [row for row in self._rows if row.status in _FAILED or (not row.job.is_probe and row.values)]
        lost = np.array([row.status in _FAILED for row in rows], dtype=bool)
        if self.has_quality:
            collapsed = {id(row) for row in itertools.compress(self._measured, self._learned[3])}
            lost |= np.array([id(row) in collapsed for row in rows], dtype=bool)
        keys = Jobs(self._space, [row.job for row in rows]).keys
        chance = 1.0 - lost_probability(self._space.axes, keys, lost, self._jobs.keys)
        seconds, log_deviation = self._expected
        in_time = ndtr(np.log(self._limits_s / seconds) / np.maximum(log_deviation, 1e-9))
        fits = self._jobs.fits_probability
        if (unsure := np.flatnonzero(fits < 0.99)).size:
            is_sure = [self._is_sure_to_fit(self._jobs.jobs[i]) for i in unsure.tolist()]
            fits = fits.copy()
            fits[unsure] = np.where(is_sure, 1.0, fits[unsure])
        return np.asarray(np.maximum(chance * fits * in_time, 1e-12))

    @cached_property
    def _belief(self) -> "Belief":
        """The beliefs about all candidates."""
        (seconds, log_deviation), (mean, deviation) = self._expected, self._quality.predict(self._jobs.quality)
        return Belief(
            seconds=seconds,
            train_seconds=self._aims.train_seconds(seconds),
            log_deviation=log_deviation,
            mean=mean,
            deviation=deviation,
            chance=self._chance,
        )

    @cached_property
    def _within(self) -> np.ndarray:
        """Probability that each candidate meets the constraints on costs that are no objectives' own, shape (N,)."""
        seconds, log_deviation = self._expected
        deviation, columns = np.maximum(log_deviation, 1e-9), self._aims.measures(self._usd, seconds)
        within = np.ones(len(seconds))
        for name, bounds in self._aims.constraints.items():
            for end, bound in bounds.items() if name in columns else ():
                off = np.log(max(bound, 1e-12) / np.maximum(columns[name], 1e-12)) / deviation
                within *= ndtr(off if end == "max" else -off)
        return within

    # The acquisition

    def _costs(self, usd: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Return the cost columns of N jobs, shape (N, M - 1)."""
        columns = {metrics.COST_USD: usd, metrics.JOB_SECONDS: seconds}
        return np.column_stack([columns[cost] for cost in self._aims.costs])

    @cached_property
    def _ran_costs(self) -> np.ndarray:
        """The costs of the completed and running training jobs, shape (K, M - 1)."""
        _, jobs, seconds, _ = self._learned
        return self._costs(seconds * jobs.usd_per_s, seconds)

    @cached_property
    def _measured_points(self) -> np.ndarray:
        """Points of the completed training jobs in objective space, with their measured quality, shape (K, M)."""
        position = self._aims.objectives.index(self._aims.metric)
        quality = [self._sign * row.values[position] for row in self._measured if row.values]
        return np.column_stack([self._costs(*self._billed(self._measured)), -np.array(quality)])

    @cached_property
    def _reference(self) -> np.ndarray:
        """The reference point, shape (M,): beyond the worst of the hoped and of the measured front, see `margin_of`."""
        belief, (model, jobs, seconds, _) = self._belief, self._learned
        reached, _ = model.predict(jobs.quality)
        ran = np.column_stack([self._ran_costs, -reached])
        usable = self._is_open & (self._chance > 0.1)
        hoped = np.column_stack([self._costs(self._usd, belief.seconds), -(belief.mean + belief.deviation)])[usable]
        points = np.vstack([hoped, ran])
        is_met = np.append(
            self._may_meet[usable], self._aims.meets(seconds * jobs.usd_per_s, seconds, self._sign * reached)
        )
        points = points[is_met] if is_met.any() else points
        hoped = np.vstack([_front_of(points), _front_of(ran)])  # of one job that is hoped to beat all, no front is left
        margin = margin_of(len(_front_of(ran)) + 1, ran.shape[1])  # of the front with the next job
        reference = hoped.max(axis=0) + margin * np.maximum(np.ptp(hoped, axis=0), 1e-3 * abs(hoped.max(axis=0)))
        reference[-1] += model.noise
        bounds = self._aims.constraints.get(self._aims.metric, {})
        least = [self._sign * bounds[end] for end in ("min" if self._sign > 0 else "max",) if end in bounds]
        return np.append(reference[:-1], min([reference[-1], *(-bound for bound in least)]))

    @cached_property
    def _may_meet(self) -> np.ndarray:
        """Whether each candidate would meet the constraints at one standard deviation better than expected, shape (N,).

        If none does, bounds on quality are ignored: the runs so far may all have had bad settings.
        """
        usd, seconds, quality = self._at_best
        may_meet = self._aims.meets(usd, seconds, quality)
        if not may_meet.any():
            may_meet = self._aims.meets(usd, seconds, np.full(len(quality), self._sign * math.inf))
        return may_meet

    @property
    def _at_best(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Dollars, seconds and metric of each candidate, each one standard deviation better than expected."""
        belief = self._belief
        faster = np.exp(-belief.log_deviation)
        return self._usd * faster, belief.seconds * faster, self._sign * (belief.mean + belief.deviation)

    @cached_property
    def _believed_front(self) -> np.ndarray:
        """The front of what is believed of the completed and running training jobs, shape (K, M)."""
        model, jobs, _, _ = self._learned
        return _front_of(np.column_stack([self._ran_costs, -model.predict(jobs.quality)[0]]))

    @cached_property
    def _log_gains(self) -> np.ndarray:
        """Logarithms of the expected gains if the job succeeds, at each node of its costs, shape (N, nodes)."""
        gains = self._log_gains_here
        if not np.isfinite(gains[self._is_open & self._is_new]).any():  # what is left can only be on another front
            costs = self._costs(self._usd, self._belief.seconds)
            lowest = (self._belief.mean - 2.0 * self._belief.deviation).min()
            gains = self._log_gains_up_to(np.append(2.0 * costs.max(axis=0), max(-lowest, self._reference[-1])))
        return gains

    @cached_property
    def _log_gains_here(self) -> np.ndarray:
        """Logarithms of the expected gains up to the reference point, at each node of the costs, shape (N, nodes)."""
        return self._log_gains_up_to(self._reference)

    def _log_gains_up_to(self, reference: np.ndarray) -> np.ndarray:
        """Return the logarithms of the expected gains with this reference point, shape (N, nodes)."""
        belief, front, model = self._belief, self._believed_front, self._quality
        moved = belief.deviation**2 / np.sqrt(belief.deviation**2 + model.noise**2)  # by one more noisy run
        costs = self._costs(self._usd, belief.seconds)
        at_nodes = [costs * factors[:, None] for factors in self._factors.T]
        return np.column_stack(
            [log_expected_improvement(each, belief.mean, moved, front, reference) for each in at_nodes]
        )

    @cached_property
    def _log_worth(self) -> np.ndarray:
        """Logarithm of the expected gain of each candidate per expected dollar, shape (N,).

        It is -inf for a candidate that may not start.
        """
        return self._log_worth_of(self._log_gains)

    def _log_worth_of(self, log_gains: np.ndarray) -> np.ndarray:
        gain = np.logaddexp.reduce(log_gains + np.log(_WEIGHTS), axis=1)
        worth = (
            gain + np.log(self._chance * np.maximum(self._within, 1e-12)) - np.log(np.maximum(self._mean_usd, 1e-12))
        )
        return np.where(self._is_open & self._is_new, worth, -math.inf)

    @cached_property
    def growth_per_job(self) -> float:
        """The expected gain of the best candidate for the dollars of a median job, as a share of the front."""
        volume = float(hypervolume(self._believed_front, ref=self._reference))
        worth = float(np.exp(self._log_worth_of(self._log_gains_here).max(initial=-math.inf)))
        return worth * self._median_usd / max(volume, 1e-300)

    def _first_accepted(self, worth: np.ndarray) -> Candidate | None:
        """Return the new job with the largest worth that may start; jobs with a worth of -inf may not."""
        worth = np.where(self._is_new, worth, -math.inf)
        best_first = np.argsort(-worth, kind="stable")[: np.count_nonzero(worth > -math.inf)]
        jobs = self._jobs.jobs
        return next((jobs[i] for i in best_first if self._accepts(jobs[i])), None)

    def _accepts(self, job: Candidate) -> bool:
        """Return whether a job may start now.

        Its seconds are predicted only once a job on its instance type has completed (for the user's own training code,
        a job on any type), and if the number of rows is known.
        """
        space, is_seen, expected = self._space, self._seconds.is_seen, None
        knows_speed = is_seen.any() if space.runs_user_code else is_seen[space.types.index(job.spec.instance_type)]
        if knows_speed and (space.runs_user_code or job.spec.max_train_samples or space.rows):
            seconds, deviation = self._seconds.predict(Jobs(space, [job]))
            expected = float(seconds[0]), float(deviation[0])
        return self._may_begin(job, expected)

    # Probes

    def _probe(self) -> Candidate | None:
        """Return the probe that is worth more than it costs, and most so; None if there is none."""
        if not self._can_probe:
            return None
        worth = self._worth_of_knowing
        return self._first_probe(np.argsort(-worth, kind="stable")[: np.count_nonzero(worth > 0)])

    def _probe_of_unseen(self) -> Candidate | None:
        """Return a probe that may start, of the cheapest job on a type of unknown speed; None if there is none.

        Where no job may start, for example within a budget, a measured speed may allow one.
        """
        if not self._can_probe:
            return None
        cheapest, is_unseen = np.argsort(self._usd, kind="stable"), ~self._seconds.is_seen[self._jobs.types]
        return self._first_probe(cheapest[(self._is_open & is_unseen)[cheapest]])

    def _first_probe(self, order: np.ndarray) -> Candidate | None:
        """Return the first probe that may start of the candidates with these indices, or None if none may."""
        final = self._final()
        for index in order.tolist():
            probe = self._space.job(self._jobs.jobs[index].point, is_probe=True)
            if probe is not None and probe.identity not in final and self._accepts(probe):
                return probe
        return None

    @cached_property
    def _worth_of_knowing(self) -> np.ndarray:
        """Gain of knowing each candidate's costs, less what its probe's dollars would gain elsewhere, shape (N,).

        A job is worth its gain less its dollars at the best gain per dollar of all others. Knowing its costs lets the
        search choose it only if that is positive. Before any quality is known, all jobs gain the same, so knowing the
        costs of one saves dollars.
        """
        usable = self._is_open & self._is_new
        probe_s = self._seconds.startup_s + (self._expected[0] - self._seconds.startup_s) * PROBE_STEPS / np.maximum(
            self._jobs.steps, PROBE_STEPS
        )
        usd, seconds = (each[:, None] * self._factors for each in (self._usd, self._expected[0]))
        if self.has_quality:
            gains = np.exp(self._log_gains - self._log_gains.max()) * self._chance[:, None]
            rates = np.where(usable, np.exp(self._log_worth - self._log_gains.max()), 0.0)
        else:
            is_usual = (
                usable & (self._unusual <= np.quantile(self._unusual[usable], 0.1) + 1e-9) if usable.any() else usable
            )
            gains = np.where(is_usual, self._chance, 0.0)[:, None] * np.ones(len(_NODES))
            rates = gains[:, 0] / self._mean_usd
        unbounded = np.full(len(usd), self._sign * math.inf)
        gains = gains * np.column_stack(
            [self._aims.meets(*both, unbounded) for both in zip(usd.T, seconds.T, strict=True)]
        )
        order = np.argsort(-rates)
        best = np.full(len(rates), rates[order[0]])
        best[order[0]] = rates[order[1]] if len(rates) > 1 else 0.0
        net = gains - best[:, None] * usd
        knowing = np.maximum(net, 0.0) @ _WEIGHTS - np.maximum(net @ _WEIGHTS, 0.0)
        is_brief = probe_s < BRIEF * self._expected[0]
        worth = self._chance * knowing - rates[order[0]] * probe_s * self._jobs.usd_per_s
        return np.where(usable & is_brief & (rates > 0), worth, -math.inf)

    # The end

    @cached_property
    def _median_usd(self) -> float:
        """Median expected dollars of the candidates that may run, or of all if none may."""
        return float(np.median(self._usd[self._is_open] if self._is_open.any() else self._usd))

    @cached_property
    def _paid_usd(self) -> np.ndarray:
        """Dollars of each ended job, in the order of the trials."""
        return self._billed([row for row in self._rows if not row.is_running])[0]

    def _billed(self, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
        """Return the dollars and the seconds of N ended jobs, each of shape (N,)."""
        seconds = np.array([row.seconds for row in rows])
        return seconds * np.array([self._space.price_of(row.job.spec) for row in rows]), seconds

    @cached_property
    def since_growth_usd(self) -> float:
        """Dollars spent since the front of the completed training jobs last grew.

        The front last grew with the first job after which its hypervolume was within `LEAST_GROWTH` of the present one.
        If no completed job meets the constraints, these are all dollars spent.
        """
        points, ended = self._measured_points, [row for row in self._rows if not row.is_running]
        is_met = self._aims.meets(*self._billed(self._measured), -self._sign * points[:, -1])
        front = _front_of(points[is_met])
        if not len(front):
            return float(self._paid_usd.sum())
        reference = front.max(axis=0) + 0.1 * np.maximum(np.ptp(front, axis=0), 0.1 * abs(front.max(axis=0)))
        whole, at = hypervolume(front, ref=reference), 0
        numbers = [index for index, row in enumerate(ended) if row.values and row.is_training]
        for at, index in enumerate(numbers, start=1):
            part = points[:at][is_met[:at]]
            if len(part) and hypervolume(part, ref=reference) >= (1.0 - LEAST_GROWTH) * whole:
                return float(self._paid_usd[index + 1 :].sum())
        return 0.0

    @cached_property
    def why_over(self) -> str:
        """Why the search should end, in words; empty while it should continue."""
        if not self._may_meet.any():
            return f"no job is expected to meet {' and '.join(self._aims.unmet(*self._at_best))}"
        if self.growth_per_job >= LEAST_NEXT:
            return ""
        idle, median, ran = self.since_growth_usd, self._median_usd, np.count_nonzero(~self._is_new)
        why = f"no job left is expected to add {LEAST_NEXT:.0%} to the front for the {usd(median)} of a median job"
        if ran >= ENOUGH * len(self._jobs):
            return f"{why}, and {ran} of {len(self._jobs)} have run"
        if self._paid_usd.sum() >= LEAST_SPENT * median and idle >= IDLE * median:
            return f"{why}, and the last {usd(idle)} have added less than {LEAST_GROWTH:.1%}"
        return ""

    @property
    def why_none(self) -> str:
        """Why no job starts, in words; empty if one does.

        Also empty if no run has measured the quality, unless all jobs are estimated to take longer than they may.
        """
        if self.job is not None:
            return ""
        is_too_long = self._expected[0] > self._limits_s
        if not self.has_quality:
            return f"the estimates of all jobs exceed {LONGER}" if is_too_long.all() else ""
        if self._aims.stops and self.why_over:
            return self.why_over
        too_long = int(np.count_nonzero(is_too_long & self._is_new))
        others = f"{too_long} other{'s' * (too_long != 1)}"
        limit = f" within its max_runtime_minutes ({others} would take longer)" if too_long else ""
        return f"no job is left that may run{limit}"


def margin_of(count: int, objectives: int) -> float:
    """Return how far the reference point lies beyond a front, as a share of the front's range.

    It lies so far that all of `count` evenly spread points of the front, also its corners, gain as much (Ishibuchi et
    al., How to Specify a Reference Point in Hypervolume Calculation, 2018): 1 / H for the largest H for which a simplex
    lattice of H intervals has at most `count` points.
    """
    intervals = 1
    while math.comb(intervals + objectives, objectives - 1) <= count:
        intervals += 1
    return 1.0 / intervals


def _front_of(points: np.ndarray) -> np.ndarray:
    """Return the non-dominated points, shape (K, M), of N points, shape (N, M). All objectives are minimized."""
    return np.asarray(filter_dominated(points)) if len(points) else points


def _cells(costs: np.ndarray, reference: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide the costs below a reference into cells between the costs of K jobs, shape (K, M - 1).

    Returns the lower and the upper corners of the cells, each of shape (C, M - 1).
    """
    edges = [np.append(np.unique(c[c < end]), end) for c, end in zip(costs.T, reference, strict=True)]
    corners = ([each[:-1] for each in edges], [each[1:] for each in edges])
    low, high = (np.array(list(itertools.product(*sides))).reshape(-1, len(reference)) for sides in corners)
    return low, high


def log_expected_improvement(
    costs: np.ndarray, mean: np.ndarray, deviation: np.ndarray, front: np.ndarray, reference: np.ndarray
) -> np.ndarray:
    """Return the logarithm of the expected hypervolume improvement of each of N jobs over a front, shape (N,).

    Costs, shape (N, M - 1), are certain; quality is normal with this mean and standard deviation, each of shape (N,).
    The front has the shape (K, M). Jobs beyond the reference point, shape (M,), have -inf. The costs are divided into
    cells between those of the front. In a cell, a job gains what its quality exceeds the front's best.
    """
    inside = front[(front < reference).all(axis=1)]
    least = np.full((1, len(reference) - 1), -math.inf)
    total = np.full(len(mean), -math.inf)
    for low, high in zip(*_cells(np.vstack([least, inside[:, :-1]]), reference[:-1]), strict=True):
        rivals = inside[(inside[:, :-1] <= low).all(axis=1), -1]
        best = -min(float(rivals.min(initial=math.inf)), float(reference[-1]))
        sides = np.clip(high - np.maximum(costs, low), 0.0, None)
        is_in = (sides > 0).all(axis=1)
        if is_in.any():
            ahead = (mean[is_in] - best) / deviation[is_in]
            gain = np.log(sides[is_in]).sum(axis=1) + np.log(deviation[is_in]) + _log_improvement(ahead)
            total[is_in] = np.logaddexp(total[is_in], gain)
    return total


def _log_improvement(ahead: np.ndarray) -> np.ndarray:
    """Return log(density(z) + z x probability(z)) of the standard normal distribution, for z of shape (N,)."""
    density = -0.5 * ahead**2 - 0.5 * math.log(2.0 * math.pi)
    near = np.log(np.maximum(np.exp(density) + ahead * ndtr(ahead), 1e-300))
    far = np.minimum(ahead, -1.0)  # below -5: density(z) / z^2 times a correction, from the series of Mills' ratio
    beyond = density - 2.0 * np.log(-far) + np.log1p(-3.0 / far**2 + 15.0 / far**4)
    return np.asarray(np.where(ahead > -5.0, near, beyond))
