"""Chooses the next job of a search from the outcomes of earlier jobs, or decides that the search is over.

The point of a job is its parameters. Points in objective space, such as those of a front, have M columns: the costs
(dollars, seconds or both), then the negated quality. All columns are minimized. Arrays of shape (N,) have one entry for
each job, usually for each candidate of the space. The cost of a median job is `Decision._median_usd`.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from moocore import filter_dominated, hypervolume

from paretune.specification import metrics
from paretune.specification.job import default_learning_rate
from paretune.studies.definition.objectives import Constraints
from paretune.studies.sampler.candidates import Candidate, Row, SecondsModel, Space, Terms
from paretune.studies.sampler.opinion import PlainModel
from paretune.studies.sampler.quality import F1_USUAL_BATCH, F1_USUAL_RATE, QualityModel, smooth
from paretune.studies.trial_status import TrialStatus

# Nodes and weights of Gauss-Hermite quadrature: over quality, and over the logarithm of the costs.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_USD_NODES, _USD_WEIGHTS = np.polynomial.hermite_e.hermegauss(3)
LEAST_GAIN = 0.0005  # share of the front's hypervolume; a smaller gain is within the models' own errors
LIKELY = 0.6  # a job is worth its dollars only if its probability of neither failing nor collapsing is above this
FRONT_JOBS = 1000.0  # the whole front is worth this many times the median dollars of its jobs
# A job's outcome counts as known below these standard deviations: of log seconds, and of quality as a multiple of the
# noise of one run.
SECONDS_KNOWN, QUALITY_KNOWN = 0.08, 1.6
MOST_TRIES = 2  # limit on the starts of a job that fails or reaches its time limit
# A parameter value is skipped once this many points with it have failed, none has completed, and one without it has.
MOST_FAILING = 3
_FAILED = (TrialStatus.FAILED, TrialStatus.DIVERGED, TrialStatus.STOPPED)
_TRIED_AGAIN = (*_FAILED, TrialStatus.CUT_OFF)
REACH = 3.0
"""Each cost of the reference point is at least this multiple of the lowest such cost on the front. So jobs that cost up
to this much have an expected improvement even if the model thinks a better quality unlikely. With a nearer reference
point, an overconfident model would never try them."""
ENOUGH = 10.0  # the search ends only after it has paid for this many median jobs without growth of the front
LEAST_GROWTH = 0.005  # share of the front's hypervolume; less is not growth
LEAST_NEXT = 0.1  # the search continues while the next `ENOUGH` median jobs are expected to add this share of the front
_NEAR = 0.3  # length scale, as a share of a parameter's span, over which a failure counts against other jobs
BRIEF = 0.5  # a probe is skipped if it takes this share of the seconds of the full run, which also shows quality

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

    @cached_property
    def limits_time(self) -> bool:
        """Whether an objective or a constraint depends on time."""
        return not {*metrics.TIMES}.isdisjoint([*self.costs, *self.constraints])

    def unmet(self, usd: np.ndarray, seconds: np.ndarray, quality: np.ndarray) -> list[str]:
        """Describe the bounds that none of N jobs meets. If every bound is met by some job, describe all bounds."""
        texts = []
        for name, bounds in self.constraints.items():
            for end, bound in bounds.items():
                alone = replace(self, constraints={name: {end: bound}})
                text = f"{name} of {'at least' if end == 'min' else 'at most'} {bound:g}"
                texts.append((text, not alone.meets(usd, seconds, quality).any()))
        return [text for text, is_unmet in texts if is_unmet] or [text for text, _ in texts]

    def excess(self, usd: np.ndarray, seconds: np.ndarray, quality: np.ndarray) -> np.ndarray:
        """Return the sum of each job's violations, as shares of the violated bounds, shape (N,); 0 if all are met."""
        total = np.zeros(len(quality))
        for name, values in self._measures(usd, seconds, quality).items():
            for end, bound in self.constraints.get(name, {}).items():
                total += np.maximum((values - bound) * (1.0 if end == "max" else -1.0), 0.0) / (abs(bound) or 1.0)
        return total

    def meets(self, usd: np.ndarray, seconds: np.ndarray, quality: np.ndarray) -> np.ndarray:
        """Return which of N jobs meet the constraints on dollars, seconds and quality, shape (N,)."""
        meets = np.ones(len(quality), dtype=bool)
        for name, values in self._measures(usd, seconds, quality).items():
            bounds = self.constraints.get(name, {})
            meets &= (values >= bounds.get("min", -math.inf)) & (values <= bounds.get("max", math.inf))
        return meets

    def _measures(self, usd: np.ndarray, seconds: np.ndarray, quality: np.ndarray) -> dict[str, np.ndarray]:
        """Return the metrics that can be predicted, each with its values, shape (N,)."""
        columns = {metrics.JOB_SECONDS: seconds, metrics.BILLABLE_SECONDS: seconds}
        columns[metrics.TRAIN_SECONDS] = self.train_seconds(seconds)
        return columns | {metrics.COST_USD: usd, self.metric: quality}

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
        chance: probability that the job trains and does not collapse.
        usable: whether the job is worth considering, whether or not it has run.
        known: whether seconds and quality are known about as well as if they had been measured.
        meets: whether the job is expected to meet the constraints.
    """

    seconds: np.ndarray
    train_seconds: np.ndarray
    log_deviation: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    chance: np.ndarray
    usable: np.ndarray
    known: np.ndarray
    meets: np.ndarray

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
        self._jobs, self._may_begin, self._can_probe = space.candidates, accepts, can_probe
        self._seconds = SecondsModel(space, rows)
        self._aims = replace(aims, startup_s=self._seconds.measured_startup_s)
        full = dict.fromkeys(row.job.footprint for row in rows if row.status is TrialStatus.OUT_OF_MEMORY)
        self._fits = cache(lambda job: job.footprint.why_full(full) is None)

    @property
    def is_over(self) -> bool:
        """Whether no job is running and none should start."""
        return not any(row.is_running for row in self._rows) and self.job is None

    def has(self, job: Candidate) -> bool:
        """Return whether the same job is running or has completed."""
        equal = [row for row in self._rows if row.job.identity == job.identity]
        return any(row.is_running or row.status is TrialStatus.COMPLETED for row in equal)

    def last(self) -> Candidate | None:
        """Return the completed training job with the highest trial number, or None if no training job has completed."""
        return next((row.job for row in reversed(self._rows) if row.values), None)

    @cached_property
    def job(self) -> Candidate | None:
        """The next job; None if no job should start, either now or ever."""
        probe = self._probe()
        if probe is not None or any(row.job.is_probe and row.is_running for row in self._rows):
            return probe  # training jobs wait for the probes, which show what these jobs will cost
        if self.has_quality:
            if self._aims.stops and self.why_over:
                return None
            return self._worthiest() or self._by_opinion() or self._any_left()
        return None if any(row.is_training and row.is_running for row in self._rows) else self.first()

    def forget_job(self) -> None:
        """Choose `job` again at its next use, because different jobs may start now."""
        self.__dict__.pop("job", None)

    def first(self) -> Candidate | None:
        """Return the training job with the most usual settings that has not run, on the cheapest cluster.

        For the user's own training code, this is the cheapest job. If any candidates are expected to meet the
        constraints on dollars and time, only those are considered. Jobs with parameter values that failed before come
        last. Return None if no training job may start.
        """
        keys, is_own, usd = self._space.keys, self._space.is_own, self._usd
        usable = self._usable & self._is_few & self._is_new
        in_time = usable & self._aims.meets(self._usd, self._expected[0], np.full(len(usd), self._sign * math.inf))
        usable = in_time if in_time.any() else usable
        blamed = np.array([sum(self._blame[each] for each in job.point.items()) for job in self._jobs])
        away = (keys - np.median(keys, axis=0))[:, 1:]
        if not is_own:
            usual = [default_learning_rate(job.spec.fine_tuning) for job in self._jobs]
            rates = F1_USUAL_RATE * np.array(usual) / default_learning_rate("full")
            away[:, 0] = keys[:, 1] - math.log2(F1_USUAL_BATCH)
            away[:, 1] = (keys[:, 2] - np.log(rates)) / math.log(2.0) - away[:, 0] / 2.0
        distance = np.linalg.norm(away, axis=1) + (1e3 if is_own else 1e-3) * usd / usd.max() + 1e6 * blamed
        order = np.argsort(np.where(usable, distance, math.inf), kind="stable")[: np.count_nonzero(usable)]
        for i in map(int, order):
            is_alike = (abs(keys - keys[i]) < 1e-9)[:, 1:].all(axis=1) & (blamed == blamed[i])
            alike = np.flatnonzero(usable & is_alike)
            cheapest = self._jobs[min(alike, key=lambda each: usd[each])]
            if self._accepts(cheapest):
                return cheapest
        return None

    def predicted(self) -> list[tuple[Candidate, Belief]]:
        """Return the candidates that have not run but whose predicted outcome counts as known, with the beliefs.

        Only those that are expected to meet the constraints are returned.
        """
        if not self.has_quality:
            return []
        belief = self._belief
        chosen = np.flatnonzero(belief.usable & belief.known & self._is_new & belief.meets)
        return [(self._jobs[index], belief.of(index)) for index in map(int, chosen)]

    def _accepts(self, job: Candidate) -> bool:
        """Return whether a job may start now.

        Its seconds are predicted only once a job on its instance type has completed (for the user's own training code,
        a job on any type), and if the number of rows is known.
        """
        space, is_seen, expected = self._space, self._seconds.is_seen, None
        knows_speed = is_seen.any() if space.is_own else is_seen[space.types.index(job.spec.instance_type)]
        if knows_speed and (space.is_own or job.spec.max_train_samples or space.rows):
            seconds, deviation = self._seconds.predict(Terms.of(space, [job]))
            expected = float(seconds[0]), float(deviation[0])
        return self._may_begin(job, expected)

    def _final(self, tries: int) -> set[Any]:
        """Return the identities of jobs that must not start again.

        These jobs have failed or been cut off `tries` times, are running, or have ended in another way, such as
        completed.
        """
        counts = Counter[Any]()
        for row in self._rows:
            counts[row.job.identity] += 1 if row.status in _TRIED_AGAIN else tries
        return {identity for identity, count in counts.items() if count >= tries}

    @cached_property
    def _blame(self) -> Counter[tuple[str, Any]]:
        """How many points failed with each (parameter, value); 0 once a job with this value has completed."""
        completed = {
            each for row in self._rows if row.status is TrialStatus.COMPLETED for each in row.job.point.items()
        }
        failed = {frozenset(row.job.point.items()) for row in self._rows if row.status in _FAILED}
        return Counter(each for point in failed for each in point if each not in completed)

    @cached_property
    def _is_hopeless(self) -> np.ndarray:
        """Whether each candidate has a value with which `MOST_FAILING` points failed and none completed, shape (N,).

        Before any job has completed, no candidate is hopeless.
        """
        names = {n for row in self._rows if row.status is TrialStatus.COMPLETED for n in row.job.point}
        values = {each for each, count in self._blame.items() if count >= MOST_FAILING and each[0] in names}
        return np.array([not values.isdisjoint(job.point.items()) for job in self._jobs])

    def _probe(self) -> Candidate | None:
        """Choose a probe that has not run, of a job that fits in memory and takes much longer than the probe.

        Jobs with parameter values that failed before come last.
        """
        if self._space.is_own or not self._can_probe:
            return None
        final = self._final(MOST_TRIES)
        hopeless = {each.identity for each in itertools.compress(self._jobs, self._is_hopeless)}
        for job in sorted(self._to_probe(), key=lambda job: sum(self._blame[each] for each in job.point.items())):
            if job.identity in hopeless:
                continue
            probe = self._space.job(job.point, is_probe=True) if self._fits(job) else None
            if probe is not None and probe.identity not in final:
                seconds, _ = self._seconds.predict(Terms.of(self._space, [probe, job]))
                if seconds[0] < BRIEF * seconds[1] and self._accepts(probe):
                    return probe
        return None

    def _to_probe(self) -> Iterator[Candidate]:
        """Yield the jobs that probes should measure.

        On each instance type, these are the jobs with the smallest and the largest per-device batch that fit in
        memory on the fewest instances. If an objective or constraint depends on time, the job with the largest
        batch on the space's largest number of instances follows. Then come jobs that differ in one further parameter
        from the probed job on the cheapest cluster. If nothing depends on time, jobs on more instances come last.
        """
        space, limits_time = self._space, self._aims.limits_time
        cluster = {"instance_type", "instance_count", "per_device_train_batch_size", "global_batch_size"}
        others = min(
            ({n: v for n, v in job.point.items() if n not in cluster} for job in self._jobs),
            key=lambda point: sum(self._blame[each] for each in point.items()),
        )
        for kind in space.types:
            here = [job for job in self._jobs if job.spec.instance_type == kind]
            here = [job for job in here if others.items() <= job.point.items()] or here
            here = sorted(filter(self._fits, here), key=_batch)
            fewest = min((job.spec.instance_count for job in here), default=0)
            few = [job for job in here if job.spec.instance_count == fewest]
            yield from few[:1] + few[-1:]
            if limits_time:
                yield from [job for job in here if job.spec.instance_count == space.most][-1:]
        probed = [row.job for row in self._rows if row.job.is_probe and row.status is TrialStatus.COMPLETED]
        probed = [job for job in probed if others.items() <= job.point.items()]
        if probed:
            cheapest = min(probed, key=lambda job: space.price_of(job.spec))
            yield from filter(None, map(space.job, space.changed_seconds(cheapest)))
            if not limits_time:
                yield from self._on_more(cheapest.spec.instance_type)

    def _on_more(self, cheapest: str) -> Iterator[Candidate]:
        """Yield the job with the largest probed batch, but on the next larger number of instances of the cheapest type.

        If more instances save dollars on that type, yield such a job for every instance type.
        """
        for kind in self._space.types if self._saves.get(cheapest) else [cheapest]:
            ran = [row.job for row in self._rows if row.job.is_probe and row.step_s]
            if here := [job for job in ran if job.spec.instance_type == kind]:
                largest = max(here, key=_batch)
                point = {n: v for n, v in largest.point.items() if n != "instance_count"}
                alike = [job for job in self._jobs if point.items() <= job.point.items()]
                more = [job for job in alike if job.spec.instance_count > largest.spec.instance_count]
                yield from sorted(more, key=lambda job: job.spec.instance_count)[:1]

    @cached_property
    def _saves(self) -> dict[str, bool]:
        """Whether a job costs less on more instances, by instance type.

        Only types are included on which jobs with the same per-device batch, and the same accumulation or global batch,
        completed on different numbers of instances. The number with fewer instance-seconds per row costs less.
        """
        per_row: dict[tuple[str, int, str, int], dict[int, float]] = {}
        for row in self._rows:
            if row.status is TrialStatus.COMPLETED and row.step_s:
                spec, plan = row.job.spec, row.job.plan
                instance_s = row.step_s * spec.instance_count / plan.global_batch_size
                for same in (("accumulation", plan.gradient_accumulation_steps), ("rows", plan.global_batch_size)):
                    key = spec.instance_type, _batch(row.job), *same
                    per_row.setdefault(key, {}).setdefault(spec.instance_count, instance_s)
        pairs = [(kind, by_count) for (kind, *_), by_count in per_row.items() if len(by_count) > 1]
        return {kind: by_count[max(by_count)] < by_count[min(by_count)] for kind, by_count in pairs}

    @cached_property
    def _is_few(self) -> np.ndarray:
        """Whether each candidate's number of instances is worth considering, shape (N,).

        A number is worth considering if it is the smallest of its type on which a job fits in memory, or if more
        instances of its type save dollars. All numbers are worth considering if an objective or constraint depends on
        time, or if the training code is the user's own.
        """
        if self._aims.limits_time or self._space.is_own:
            return np.ones(len(self._jobs), dtype=bool)
        fewest = dict[str, int]()
        for job in self._jobs:
            kind, count = job.spec.instance_type, job.spec.instance_count
            if count < fewest.get(kind, math.inf) and self._fits(job):
                fewest[kind] = count
        kinds = [(job.spec.instance_type, job.spec.instance_count) for job in self._jobs]
        return np.array([self._saves.get(kind, False) or count == fewest.get(kind) for kind, count in kinds])

    @cached_property
    def _is_new(self) -> np.ndarray:
        """Whether each candidate may still be started, shape (N,), see `_final`."""
        final = self._final(MOST_TRIES)
        return np.array([job.identity not in final for job in self._jobs])

    @cached_property
    def _expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected seconds of each candidate and the standard deviations of their logarithms, each of shape (N,)."""
        return self._seconds.predict(self._space.terms)

    @cached_property
    def _usd(self) -> np.ndarray:
        """Expected dollars of each candidate, shape (N,)."""
        return np.asarray(self._expected[0] * self._space.terms.usd_per_s)

    @cached_property
    def _usable(self) -> np.ndarray:
        """Whether each candidate fits in memory, should end within its time limit and is not hopeless, shape (N,)."""
        fits = np.array(list(map(self._fits, self._jobs)))
        return np.asarray(fits & (self._expected[0] <= self._limits_s) & ~self._is_hopeless)

    @cached_property
    def _limits_s(self) -> np.ndarray:
        """Time limit of each candidate in seconds, shape (N,).

        Infinite if a training job has completed but no completed job reported its time: the seconds are then dollars
        divided by the price, and the dollars may be in another unit.
        """
        if not any(row.is_timed for row in self._rows if row.status is TrialStatus.COMPLETED) and self.has_quality:
            return np.full(len(self._jobs), math.inf)
        return np.array([60.0 * job.spec.max_runtime_minutes for job in self._jobs])

    def _worthiest(self) -> Candidate | None:
        """Choose the job with the largest expected gain per dollar; None if no gain is worth its dollars.

        The gain is the sum of two gains, from knowing the job's quality and from running the job, see `_gains`.
        """
        belief, usd = self._belief, self._usd
        if not belief.usable.any():
            return None
        front = _front_of(self._points[belief.usable])
        of_knowing, of_running = self._gains(front)
        worth = np.where(self._is_new, of_knowing + of_running, 0.0)
        front_usd = float(np.median(usd[belief.usable & (self._points[:, None] == front).all(axis=2).any(axis=1)]))
        worth[(worth < LEAST_GAIN) | (worth * FRONT_JOBS * front_usd < usd)] = 0.0
        return self._first_accepted(worth / np.maximum(usd, 1e-9))

    def _first_accepted(self, worth: np.ndarray) -> Candidate | None:
        """Return the job with the largest positive worth that may start."""
        best_first = np.argsort(-worth, kind="stable")[: np.count_nonzero(worth > 0)]
        return next((self._jobs[i] for i in best_first if self._accepts(self._jobs[i])), None)

    def _by_opinion(self) -> Candidate | None:
        """Choose the job from which the plain Gaussian process expects the largest gain per dollar."""
        gains, usd = self._opinion
        return self._first_accepted(gains / usd)

    @cached_property
    def _opinion(self) -> tuple[np.ndarray, np.ndarray]:
        """Gains that the plain Gaussian process expects of each candidate, and mean dollars, each of shape (N,).

        A gain is an expected hypervolume improvement as a share of the expected front's hypervolume, multiplied by the
        probability that the job does not fail. Jobs that are running count with their expected quality.
        """
        measured = [row for row in self._rows if row.values and row.is_training]
        running = [row.job for row in self._rows if row.is_training and not row.values]
        position = self._aims.objectives.index(self._aims.metric)
        values = np.array([self._sign * row.values[position] for row in measured if row.values])
        keys, axes = self._space.axes
        ran = self._space.axes_of([row.job for row in measured])
        model = PlainModel(ran, axes, values)
        if running:
            under_way = self._space.axes_of(running)
            expected, _ = model.predict(under_way)
            ran, values = np.vstack([ran, under_way]), np.append(values, expected)
            model = PlainModel(ran, axes, values)
        (seconds, log_deviation), usd = self._expected, self._usd
        mean, deviation = model.predict(keys)
        jobs = [*(row.job for row in measured), *running]
        paid_s = np.append([row.seconds for row in measured], self._seconds.predict(Terms.of(self._space, running))[0])
        paid_usd = paid_s * np.array([self._space.price_of(job.spec) for job in jobs])
        reached, _ = model.predict(ran)
        is_met = self._aims.meets(paid_usd, paid_s, self._sign * reached)
        paid = np.column_stack([self._costs(paid_usd, paid_s), -reached])[is_met]
        faster = np.exp(-log_deviation)
        may_meet = self._aims.meets(usd * faster, seconds * faster, self._sign * (mean + deviation))
        chance = self._chance_to_end(ran)
        usable = self._usable & self._is_few & may_meet & (chance > LIKELY)
        mean_usd = np.maximum(usd * np.exp(0.5 * np.minimum(log_deviation, 1.5) ** 2), 1e-9)
        if not usable.any():
            return np.zeros(len(mean)), mean_usd
        costs = self._costs(usd, seconds)
        hoped = _front_of(np.vstack([np.column_stack([costs, -(mean + deviation)])[usable], paid]))
        reference = hoped.max(axis=0) + 0.1 * np.ptp(hoped, axis=0)
        front = _front_of(paid)
        moved_by_run = _moved_by_a_run(deviation, model.noise)
        gains = np.zeros(len(mean))
        for node, weight in zip(_USD_NODES, _USD_WEIGHTS, strict=True):
            at = costs * np.exp(node * log_deviation)[:, None]
            gains += weight / _USD_WEIGHTS.sum() * expected_improvement(at, mean, moved_by_run, front, reference)
        believed = _front_of(np.vstack([np.column_stack([costs, -mean])[usable], paid]))
        span = float(np.prod(reference - believed.min(axis=0)))
        whole = max(float(hypervolume(believed, ref=reference)), 0.2 * span, 1e-12)
        least = 1e-9 * deviation / deviation.max()  # if no gain is expected anywhere, the least certain job is best
        return np.where(usable & self._is_new, np.maximum(gains / whole, least) * chance, 0.0), mean_usd

    def _chance_to_end(self, ran: np.ndarray) -> np.ndarray:
        """Return the probability that each candidate does not fail, shape (N,).

        It is the share of the training jobs near the candidate that did not fail, shrunk toward the share of all.
        `ran` has the scaled parameters of the K completed and running training jobs, shape (K, D), see `Space.axes_of`.
        """
        lost = [row.job for row in self._rows if row.status in _FAILED and not row.job.is_probe]
        keys = self._space.axes[0] / _NEAR
        jobs = np.vstack([ran, self._space.axes_of(lost)]) / _NEAR
        is_lost = np.arange(len(jobs)) >= len(ran)
        overall = (is_lost.sum() + 0.5) / (len(jobs) + 10.0)
        near = smooth(keys, jobs)
        return np.asarray(1.0 - (near @ is_lost + overall) / (near.sum(axis=1) + 1.0))

    @cached_property
    def _median_usd(self) -> float:
        """Median expected dollars of the usable candidates, or of all if none is usable."""
        usable = self._usable if self._usable.any() else np.ones(len(self._jobs), dtype=bool)
        return float(np.median(self._usd[usable]))

    @cached_property
    def _paid_usd(self) -> np.ndarray:
        """Dollars of each ended job, in the order of the trials."""
        return np.array([row.seconds * self._space.price_of(row.job.spec) for row in self._rows if not row.is_running])

    @cached_property
    def since_growth_usd(self) -> float:
        """Dollars spent since the front of the completed training jobs last grew.

        The front last grew with the first job after which its hypervolume was within `LEAST_GROWTH` of the present one.
        If no completed job meets the constraints, these are all dollars spent.
        """
        _, jobs, seconds, reached = self._learned
        ended = [row for row in self._rows if not row.is_running]
        usd = seconds * np.array([self._space.price_of(job.spec) for job in jobs])
        points = np.column_stack([self._costs(usd, seconds), -reached])
        is_met = self._aims.meets(usd, seconds, self._sign * reached)
        is_measured = [bool(row.values) and row.is_training for row in ended]
        count = sum(is_measured)  # running training jobs come after these
        front = _front_of(points[:count][is_met[:count]])
        if not len(front):
            return float(self._paid_usd.sum())
        reference = front.max(axis=0) + 0.1 * np.maximum(np.ptp(front, axis=0), 0.1 * abs(front.max(axis=0)))
        whole = hypervolume(front, ref=reference)
        grown, at = 0, 0
        for index, has_value in enumerate(is_measured):
            if has_value:
                at += 1
                share = points[:at][is_met[:at]]
                if len(share) and hypervolume(share, ref=reference) >= (1.0 - LEAST_GROWTH) * whole:
                    grown = index
                    break
        return float(self._paid_usd[grown + 1 :].sum())

    @cached_property
    def next_gain(self) -> float:
        """How much the plain Gaussian process expects the next `ENOUGH` median jobs to add, as a share of the front."""
        gains, usd = self._opinion
        order = np.argsort(-gains / usd, kind="stable")
        within = np.cumsum(usd[order]) <= ENOUGH * self._median_usd
        within[0] = True
        return float(1.0 - np.prod(1.0 - np.clip(gains[order][within], 0.0, 1.0)))

    @cached_property
    def why_over(self) -> str:
        """Why the search should end, in words; empty while it should continue."""
        if not self._may_meet.any():
            return f"no job is expected to meet {' and '.join(self._aims.unmet(*self._expected_at_best))}"
        enough_usd, since_usd = ENOUGH * self._median_usd, self.since_growth_usd
        if self._paid_usd.sum() < enough_usd or since_usd < enough_usd or self.next_gain >= LEAST_NEXT:
            return ""
        return (
            f"the front has not grown for {since_usd:.4g} USD, and the next {enough_usd:.4g} USD ({ENOUGH:g} median "
            f"jobs) are expected to add {self.next_gain:.1%} to it"
        )

    def _any_left(self) -> Candidate | None:
        """Return the remaining job that is expected to violate the constraints least; None if the search may stop."""
        if self._aims.stops:
            return None
        belief, usd = self._belief, self._usd
        excess = self._aims.excess(usd, self._expected[0], self._sign * belief.mean)
        order = np.lexsort((usd, excess))
        is_open = self._usable & self._is_new
        return next((self._jobs[i] for i in order if is_open[i] and self._accepts(self._jobs[i])), None)

    @property
    def why_none(self) -> str:
        """Why no job starts, in words; empty if one does, or if no training job has completed yet."""
        if not self.has_quality or self.job is not None:
            return ""
        if self._aims.stops and self.why_over:
            return self.why_over
        too_long = int(np.count_nonzero((self._expected[0] > self._limits_s) & self._is_new))
        others = f"{too_long} other{'s' * (too_long != 1)}"
        limit = f" within its max_runtime_minutes ({others} would take longer)" if too_long else ""
        return f"no job is left that may run{limit}"

    def _gains(self, front: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected gains from knowing each candidate's quality and from running it, each of shape (N,).

        Both are expected hypervolume improvements as shares of the hypervolume of `front`, the expected front,
        multiplied by the probability that the job neither fails nor collapses. The gain from knowing is over the front
        of the candidates whose outcome is known, and 0 for these candidates. The gain from running is over the front of
        the jobs that have completed or are running. For this gain, the quality varies only as much as one noisy run is
        expected to move the posterior mean.
        """
        belief, noise = self._belief, self._quality.noise
        low, high = front.min(axis=0), front.max(axis=0)
        reference = np.maximum(1.05 * high + 0.1 * (high - low), REACH * low)
        reference[-1] = high[-1] + 0.1 * (high[-1] - low[-1]) + noise
        whole = max(float(hypervolume(front, ref=reference)), 1e-12)

        def gain_over(front: np.ndarray, deviation: np.ndarray) -> np.ndarray:
            gains = expected_improvement(self._points[:, :-1], belief.mean, deviation, front, reference)
            return np.where(belief.usable, gains * belief.chance / whole, 0.0)

        is_known = belief.usable & belief.known & belief.meets
        of_knowing = np.where(belief.known, 0.0, gain_over(_front_of(self._points[is_known]), belief.deviation))
        return of_knowing, gain_over(self._ran, _moved_by_a_run(belief.deviation, noise))

    @cached_property
    def has_quality(self) -> bool:
        """Whether any training job has completed, and so measured quality."""
        return any(row.values for row in self._rows if row.is_training)

    @cached_property
    def _quality(self) -> QualityModel:
        """The model of quality. Jobs that are running count with their expected quality."""
        return self._learned[0]

    @cached_property
    def _ran(self) -> np.ndarray:
        """The front of the completed and running training jobs with their expected quality, shape (K, M)."""
        _, jobs, seconds, reached = self._learned
        usd = seconds * np.array([self._space.price_of(job.spec) for job in jobs])
        points = np.column_stack([self._costs(usd, seconds), -reached])
        return _front_of(points[self._aims.meets(usd, seconds, self._sign * reached)])

    @cached_property
    def _learned(self) -> tuple[QualityModel, list[Candidate], np.ndarray, np.ndarray]:
        """The model of quality, and the jobs, seconds and expected quality of completed, then running training jobs."""
        measured = [row for row in self._rows if row.values and row.is_training]
        running = [row.job for row in self._rows if row.is_training and not row.values]
        position, sign = self._aims.objectives.index(self._aims.metric), self._sign
        values = [sign * row.values[position] for row in measured if row.values]
        lost = [row.baseline is not None and v < sign * row.baseline for row, v in zip(measured, values, strict=True)]
        jobs = [*(row.job for row in measured), *running]
        in_percent = max(map(abs, values), default=0.0) > 1.0
        spread = self._aims.spread and self._aims.spread * (100.0 if in_percent else 1.0)
        keys, n_measured = self._space.quality_keys(jobs), len(measured)
        quality = QualityModel(keys[:n_measured], values, spread, collapsed=np.array(lost, dtype=bool))
        reached, _ = quality.predict(keys)
        seconds = np.array([row.seconds for row in measured])
        if running:
            collapsed = np.append(quality.collapsed, np.zeros(len(running), dtype=bool))
            quality = QualityModel(keys, [*values, *reached[n_measured:]], spread, collapsed=collapsed)
            seconds = np.append(seconds, self._seconds.predict(Terms.of(self._space, running))[0])
        reached[:n_measured] = np.where(quality.collapsed[:n_measured], values, reached[:n_measured])
        return quality, jobs, seconds, reached

    @cached_property
    def _expected_quality(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected quality of each candidate (more is better) and its standard deviation, each of shape (N,)."""
        return self._quality.predict(self._space.keys)

    @property
    def _expected_at_best(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Dollars, seconds and metric of each candidate, each one standard deviation better than expected."""
        (seconds, log_deviation), (mean, deviation) = self._expected, self._expected_quality
        faster = np.exp(-log_deviation)
        return self._usd * faster, seconds * faster, self._sign * (mean + deviation)

    @cached_property
    def _may_meet(self) -> np.ndarray:
        """Whether each candidate would meet the constraints at one standard deviation better than expected, shape (N,).

        If none does, bounds on quality are ignored: the runs so far may all have had bad settings.
        """
        usd, seconds, quality = self._expected_at_best
        may_meet = self._aims.meets(usd, seconds, quality)
        if not may_meet.any():
            may_meet = self._aims.meets(usd, seconds, np.full(len(quality), self._sign * math.inf))
        return may_meet

    @cached_property
    def _belief(self) -> "Belief":
        """The beliefs about all candidates."""
        quality, keys, meets = self._quality, self._space.keys, self._aims.meets
        failed = [row.job for row in self._rows if row.status in _FAILED and not row.job.is_probe]
        (seconds, log_deviation), usd, (mean, deviation) = self._expected, self._usd, self._expected_quality
        chance = 1.0 - quality.collapse_probability(keys, self._space.quality_keys(failed))
        return Belief(
            seconds=seconds,
            train_seconds=self._aims.train_seconds(seconds),
            log_deviation=log_deviation,
            mean=mean,
            deviation=deviation,
            chance=chance,
            usable=self._usable & self._is_few & (chance > LIKELY) & self._may_meet,
            known=(deviation < QUALITY_KNOWN * quality.noise) & (log_deviation < SECONDS_KNOWN),
            meets=meets(usd, seconds, self._sign * mean),
        )

    @cached_property
    def _points(self) -> np.ndarray:
        """The expected points of all candidates in objective space, shape (N, M)."""
        return np.column_stack([self._costs(self._usd, self._expected[0]), -self._belief.mean])

    def _costs(self, usd: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Return the cost columns of N jobs, shape (N, M - 1)."""
        columns = {metrics.COST_USD: usd, metrics.JOB_SECONDS: seconds}
        return np.column_stack([columns[cost] for cost in self._aims.costs])


def _batch(job: Candidate) -> int:
    return job.plan.per_device_train_batch_size


def _moved_by_a_run(deviation: np.ndarray, noise: float) -> np.ndarray:
    """Return the standard deviation of the change of each posterior mean after one more noisy run, shape (N,)."""
    return np.asarray(deviation**2 / np.sqrt(deviation**2 + noise**2))


def _front_of(points: np.ndarray) -> np.ndarray:
    """Return the non-dominated points, shape (K, M), of N points, shape (N, M). All objectives are minimized."""
    return np.asarray(filter_dominated(points)) if len(points) else points


def hypervolume_improvement(points: np.ndarray, front: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Return the hypervolume that each of N points, shape (N, M), adds to that of a front of K points, shape (K, M).

    All objectives are minimized. Points beyond the reference point add nothing. The volume is cut into slabs along the
    last objective. Within each slab, a recursive call computes the volume in the other objectives.
    """
    if points.shape[1] == 1:
        best = min(float(front.min(initial=math.inf)), float(reference[0]))
        return np.asarray(np.clip(best - points[:, 0], 0.0, None))
    inside = front[(front < reference).all(axis=1)]
    edges = [-math.inf, *np.unique(inside[:, -1]), float(reference[-1])]
    gained = np.zeros(len(points))
    for low, high in itertools.pairwise(edges):
        width = np.clip(high - np.maximum(points[:, -1], low), 0.0, None)
        is_wide = width > 0
        if is_wide.any():
            rivals = inside[inside[:, -1] <= low, :-1]
            gained[is_wide] += width[is_wide] * hypervolume_improvement(points[is_wide, :-1], rivals, reference[:-1])
    return gained


def expected_improvement(
    costs: np.ndarray, mean: np.ndarray, deviation: np.ndarray, front: np.ndarray, reference: np.ndarray
) -> np.ndarray:
    """Return the expected hypervolume improvement of each of N jobs over a front, shape (N,).

    Costs, shape (N, M - 1), are certain; quality is normal with this mean and standard deviation. The expectation is
    computed by Gauss-Hermite quadrature.
    """
    gains = np.zeros(len(mean))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        points = np.column_stack([costs, -(mean + node * deviation)])
        gains += weight * hypervolume_improvement(points, front, reference)
    return np.asarray(gains / _WEIGHTS.sum())
