"""Chooses the next job of a search from what is believed of all candidates, or decides that the search is over.

The next job is the candidate with the largest expected gain per expected dollar. The gain is the increase in the
hypervolume of the front, the size of the area that the front beats, up to a reference point so far beyond the front
that its corners count as much as its middle. Quality and costs of the candidate are uncertain; the front is what the
model believes of the jobs that have run. The gain is multiplied by the probability that the job succeeds: that it
neither fails nor collapses, fits in memory, and ends within its time limit and within the constraints. The first jobs
stay near the usual learning rate, and each training weakens that.

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
from collections.abc import Callable
from functools import cached_property

import numpy as np
from moocore import hypervolume
from scipy.special import ndtr

from paretune.estimating.workload import PROBE_STEPS
from paretune.presentation.text import usd
from paretune.studies.sampler.belief import Beliefs, front_of, to_digits
from paretune.studies.sampler.candidates import Candidate, Jobs

# Nodes and weights of Gauss-Hermite quadrature over the logarithm of the costs.
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(3)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LARGE_SD = 1.5  # limit on the deviation of log dollars in expected dollars
_CHEAP = 100.0  # weight of log dollars over settings in the choice of the first job of the user's own training code
_NEAR = 1.5  # a first job is worth this much less, in its logarithm, for an octave off the usual rate, squared
BRIEF = 0.5  # a probe is skipped if it takes this share of the seconds of the full run, which also shows quality
LEAST_NEXT = 0.01  # when a search ends: share of the front that the dollars of a median job add, ...
LEAST_SPENT, IDLE = 15.0, 3.0  # ... median jobs that have been spent, and that have not grown it, ...
ENOUGH = 1.0 / 3.0  # ... or share of the candidates that have run
LEAST_GROWTH = 0.005  # share of the front's hypervolume; less is not growth
LONGER = "max_runtime_minutes (raise it, or set force=limit)"  # what estimates exceed, as messages say it

ExpectedSeconds = tuple[float, float] | None
"""Expected billed seconds of a job and the standard deviation of their logarithm; None if they cannot be predicted."""
Accepts = Callable[[Candidate, ExpectedSeconds], bool]
"""Returns whether a job may start now, for example within a budget."""


class Decision:
    """The choice of the next job. Each quantity is computed at its first use.

    Args:
        beliefs: what is believed of the candidates.
        accepts: returns whether a job may start now.
        can_probe: whether jobs can run as probes of a few steps.
    """

    def __init__(self, beliefs: Beliefs, accepts: Accepts, *, can_probe: bool = True) -> None:
        self.beliefs, self._jobs = beliefs, beliefs.jobs
        self._may_begin, self._can_probe = accepts, can_probe and not beliefs.space.runs_user_code

    @property
    def is_over(self) -> bool:
        """Whether no job is running and none should start."""
        return not any(row.is_running for row in self.beliefs.rows) and self.job is None

    def forget_job(self) -> None:
        """Choose `job` again at its next use, because different jobs may start now."""
        self.__dict__.pop("job", None)

    @cached_property
    def job(self) -> Candidate | None:
        """The next job; None if no job should start, either now or ever."""
        beliefs = self.beliefs
        probe = self._probe()
        if probe is not None or any(row.job.is_probe and row.is_running for row in beliefs.rows):
            return probe  # training jobs wait for the probes, which show what these jobs will cost
        if not beliefs.has_quality:
            return self.first() or self._probe_of_unseen()
        if beliefs.aims.stops and self.why_over:
            return None
        trained = sum(row.is_training for row in beliefs.rows)
        return self._first_accepted(self._log_worth - _NEAR * beliefs.octaves**2 / trained) or self._probe_of_unseen()

    def first(self) -> Candidate | None:
        """Return the training job with the most usual settings that has not run, on the cheapest cluster.

        For the user's own training code, this is the cheapest job, and of equally cheap ones that in the middle of the
        space. For paretune's own training, the usual settings are the usual batch and learning rate. Jobs that are
        likely to fail, or to violate a constraint on dollars or time, come last.
        """
        beliefs = self.beliefs
        log_usd = np.log(beliefs.usd / beliefs.usd.min())
        order = (_CHEAP if beliefs.space.runs_user_code else 0.1) * log_usd + beliefs.unusual
        chance = np.log(beliefs.chance * np.maximum(beliefs.within, 1e-9))
        return self._first_accepted(np.where(beliefs.is_open, 20.0 * chance - order, -math.inf))

    # The acquisition

    @cached_property
    def _mean_usd(self) -> np.ndarray:
        """Mean dollars of each candidate, shape (N,)."""
        return np.asarray(self.beliefs.usd * np.exp(0.5 * np.minimum(self.beliefs.log_deviation, _LARGE_SD) ** 2))

    @cached_property
    def _factors(self) -> np.ndarray:
        """Costs of each candidate at each node, as multiples of the expected ones, shape (N, nodes)."""
        return np.asarray(np.exp(self.beliefs.log_deviation[:, None] * _NODES))

    @cached_property
    def _front(self) -> np.ndarray:
        """The front of what is believed of the completed and running training jobs, shape (K, M)."""
        return front_of(self.beliefs.ran_points)

    @cached_property
    def _reference(self) -> np.ndarray:
        """The reference point, shape (M,): beyond the worst of the hoped and of the measured front, see `margin_of`."""
        beliefs, ran = self.beliefs, self.beliefs.ran_points
        usable = beliefs.is_open & (beliefs.chance > 0.1)
        hoped = np.column_stack(
            [beliefs.costs(beliefs.usd, beliefs.seconds), to_digits(-(beliefs.mean + beliefs.deviation))]
        )[usable]
        points = np.vstack([hoped, ran])
        ran_usd, ran_s, reached = beliefs.ran
        is_met = np.append(self._may_meet[usable], beliefs.aims.meets(ran_usd, ran_s, beliefs.sign * reached))
        points = points[is_met] if is_met.any() else points
        hoped = np.vstack([front_of(points), self._front])  # of one job that is hoped to beat all, no front is left
        margin = margin_of(len(self._front) + 1, ran.shape[1])  # of the front with the next job
        reference = hoped.max(axis=0) + margin * np.maximum(np.ptp(hoped, axis=0), 1e-3 * abs(hoped.max(axis=0)))
        reference[-1] += beliefs.quality.noise
        bounds = beliefs.aims.constraints.get(beliefs.aims.metric, {})
        least = [beliefs.sign * bounds[end] for end in ("min" if beliefs.sign > 0 else "max",) if end in bounds]
        return np.append(reference[:-1], min([reference[-1], *(-bound for bound in least)]))

    @cached_property
    def _at_best(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Dollars, seconds and metric of each candidate, each one standard deviation better than expected."""
        beliefs = self.beliefs
        faster = np.exp(-beliefs.log_deviation)
        return beliefs.usd * faster, beliefs.seconds * faster, beliefs.sign * (beliefs.mean + beliefs.deviation)

    @cached_property
    def _may_meet(self) -> np.ndarray:
        """Whether each candidate would meet the constraints at one standard deviation better than expected, shape (N,).

        If none does, bounds on quality are ignored: the runs so far may all have had bad settings.
        """
        usd, seconds, quality = self._at_best
        may_meet = self.beliefs.aims.meets(usd, seconds, quality)
        if not may_meet.any():
            may_meet = self.beliefs.aims.meets(usd, seconds, np.full(len(quality), self.beliefs.sign * math.inf))
        return may_meet

    @cached_property
    def _gains_here(self) -> np.ndarray:
        """Expected gain of each candidate up to the reference point if the job succeeds, at each node, (N, nodes)."""
        beliefs = self.beliefs
        moved = beliefs.deviation**2 / np.hypot(beliefs.deviation, beliefs.quality.noise)  # by one more noisy run
        costs = beliefs.costs(beliefs.usd, beliefs.seconds)
        at_nodes = [costs * factors[:, None] for factors in self._factors.T]
        return np.column_stack(
            [expected_improvement(each, beliefs.mean, moved, self._front, self._reference) for each in at_nodes]
        )

    @cached_property
    def _gains(self) -> np.ndarray:
        """The same; if no job that is left can gain anything, how little is known of its quality."""
        gains = self._gains_here
        if (gains[self.beliefs.is_open & self.beliefs.is_new] > 0).any():
            return gains
        return np.repeat(self.beliefs.deviation[:, None], len(_NODES), axis=1)

    @cached_property
    def _log_worth(self) -> np.ndarray:
        """Logarithm of the expected gain of each candidate per expected dollar, shape (N,).

        It is -inf for a candidate that may not start.
        """
        return self._log_worth_of(self._gains)

    def _log_worth_of(self, gains: np.ndarray) -> np.ndarray:
        beliefs = self.beliefs
        succeeds = beliefs.chance * np.maximum(beliefs.within, 1e-12)
        worth = np.log(np.maximum(gains @ _WEIGHTS, 1e-300)) + np.log(succeeds / np.maximum(self._mean_usd, 1e-12))
        return np.where(beliefs.is_open & beliefs.is_new, worth, -math.inf)

    @cached_property
    def growth_per_job(self) -> float:
        """The expected gain of the best candidate for the dollars of a median job, as a share of the front."""
        volume = float(hypervolume(self._front, ref=self._reference))
        worth = float(np.exp(self._log_worth_of(self._gains_here).max(initial=-math.inf)))
        return worth * self._median_usd / max(volume, 1e-300)

    def _first_accepted(self, worth: np.ndarray) -> Candidate | None:
        """Return the new job with the largest worth that may start; jobs with a worth of -inf may not."""
        may_start = np.flatnonzero(self.beliefs.is_new & (worth > -math.inf))
        best_first = may_start[np.argsort(-to_digits(worth[may_start]), kind="stable")].tolist()
        return next((self._jobs.jobs[i] for i in best_first if self._accepts(self._jobs.jobs[i])), None)

    def _accepts(self, job: Candidate) -> bool:
        """Return whether a job may start now.

        Its seconds are predicted only once a job on its instance type has completed (for the user's own training code,
        a job on any type), and if the number of rows is known.
        """
        space, model, expected = self.beliefs.space, self.beliefs.of_seconds, None
        is_seen = model.is_seen
        knows_speed = is_seen.any() if space.runs_user_code else is_seen[space.types.index(job.spec.instance_type)]
        if knows_speed and (space.runs_user_code or job.spec.max_train_samples or space.rows):
            seconds, deviation = model.predict(Jobs(space, [job]))
            expected = float(seconds[0]), float(deviation[0])
        return self._may_begin(job, expected)

    # Probes

    def _probe(self) -> Candidate | None:
        """Return the probe that is worth more than it costs, and most so; None if there is none."""
        if not self._can_probe:
            return None
        worth = to_digits(self._worth_of_knowing)
        return self._first_probe(np.argsort(-worth, kind="stable")[: np.count_nonzero(worth > 0)])

    def _probe_of_unseen(self) -> Candidate | None:
        """Return a probe that may start, of the cheapest job on a type of unknown speed; None if there is none.

        Where no job may start, for example within a budget, a measured speed may allow one.
        """
        if not self._can_probe:
            return None
        beliefs = self.beliefs
        cheapest, is_unseen = np.argsort(beliefs.usd, kind="stable"), ~beliefs.of_seconds.is_seen[self._jobs.types]
        return self._first_probe(cheapest[(beliefs.is_open & is_unseen)[cheapest]])

    def _first_probe(self, order: np.ndarray) -> Candidate | None:
        """Return the first probe that may start of the candidates with these indices, or None if none may."""
        final = self.beliefs.final()
        for index in order.tolist():
            probe = self.beliefs.space.job(self._jobs.jobs[index].point, is_probe=True)
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
        beliefs, startup_s = self.beliefs, self.beliefs.of_seconds.startup_s
        usable = beliefs.is_open & beliefs.is_new
        probe_s = startup_s + (beliefs.seconds - startup_s) * PROBE_STEPS / np.maximum(self._jobs.steps, PROBE_STEPS)
        usd, seconds = (each[:, None] * self._factors for each in (beliefs.usd, beliefs.seconds))
        if beliefs.has_quality:
            gains = self._gains / max(self._gains.max(), 1e-300) * beliefs.chance[:, None]
            rates = np.where(usable, np.exp(self._log_worth - math.log(max(self._gains.max(), 1e-300))), 0.0)
        else:
            unusual = beliefs.unusual
            is_usual = usable & (unusual <= np.quantile(unusual[usable], 0.1) + 1e-9) if usable.any() else usable
            gains = np.where(is_usual, beliefs.chance, 0.0)[:, None] * np.ones(len(_NODES))
            rates = gains[:, 0] / self._mean_usd
        unbounded = np.full(len(usd), beliefs.sign * math.inf)
        gains = gains * np.column_stack(
            [beliefs.aims.meets(*both, unbounded) for both in zip(usd.T, seconds.T, strict=True)]
        )
        order = np.argsort(-rates, kind="stable")
        best = np.full(len(rates), rates[order[0]])
        best[order[0]] = rates[order[1]] if len(rates) > 1 else 0.0
        net = gains - best[:, None] * usd
        knowing = np.maximum(net, 0.0) @ _WEIGHTS - np.maximum(net @ _WEIGHTS, 0.0)
        is_brief = probe_s < BRIEF * beliefs.seconds
        worth = beliefs.chance * knowing - rates[order[0]] * probe_s * self._jobs.usd_per_s
        return np.where(usable & is_brief & (rates > 0), worth, -1.0)

    # The end

    @cached_property
    def _median_usd(self) -> float:
        """Median expected dollars of the candidates that may run, or of all if none may."""
        beliefs = self.beliefs
        return float(np.median(beliefs.usd[beliefs.is_open] if beliefs.is_open.any() else beliefs.usd))

    @cached_property
    def _paid_usd(self) -> np.ndarray:
        """Dollars of each ended job, in the order of the trials."""
        return self.beliefs.billed([row for row in self.beliefs.rows if not row.is_running])[0]

    @cached_property
    def since_growth_usd(self) -> float:
        """Dollars spent since the front of the completed training jobs last grew.

        The front last grew with the first job after which its hypervolume was within `LEAST_GROWTH` of the present one.
        If no completed job meets the constraints, these are all dollars spent.
        """
        beliefs, points = self.beliefs, self.beliefs.measured_points
        ended = [row for row in beliefs.rows if not row.is_running]
        is_met = beliefs.aims.meets(*beliefs.billed(beliefs.measured), -beliefs.sign * points[:, -1])
        front = front_of(points[is_met])
        if not len(front):
            return float(self._paid_usd.sum())
        reference = front.max(axis=0) + 0.1 * np.maximum(np.ptp(front, axis=0), 0.1 * abs(front.max(axis=0)))
        whole = hypervolume(front, ref=reference)
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
            return f"no job is expected to meet {' and '.join(self.beliefs.aims.unmet(*self._at_best))}"
        if self.growth_per_job >= LEAST_NEXT:
            return ""
        idle, median, ran = self.since_growth_usd, self._median_usd, np.count_nonzero(~self.beliefs.is_new)
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
        beliefs = self.beliefs
        if self.job is not None:
            return ""
        is_too_long = beliefs.seconds > beliefs.limits_s
        if not beliefs.has_quality:
            return f"the estimates of all jobs exceed {LONGER}" if is_too_long.all() else ""
        if beliefs.aims.stops and self.why_over:
            return self.why_over
        too_long = int(np.count_nonzero(is_too_long & beliefs.is_new))
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


def expected_improvement(
    costs: np.ndarray, mean: np.ndarray, deviation: np.ndarray, front: np.ndarray, reference: np.ndarray
) -> np.ndarray:
    """Return the expected hypervolume improvement of each of N jobs over a front, shape (N,).

    Costs, shape (N, M - 1), are certain; quality is normal with this mean and standard deviation, each of shape (N,).
    The front has the shape (K, M). Jobs beyond the reference point, shape (M,), gain 0. The costs are divided into
    cells between those of the front. In a cell, a job gains what its quality exceeds the front's best.
    """
    inside = front[(front < reference).all(axis=1)]
    edges = [
        np.concatenate([[-math.inf], np.unique(c), [end]])
        for c, end in zip(inside[:, :-1].T, reference[:-1], strict=True)
    ]
    total = np.zeros(len(mean))
    for sides in itertools.product(*(itertools.pairwise(each) for each in edges)):
        low, high = np.array(sides).T
        rivals = inside[(inside[:, :-1] <= low).all(axis=1), -1]
        best = -min(float(rivals.min(initial=math.inf)), float(reference[-1]))
        size = np.clip(high - np.maximum(costs, low), 0.0, None).prod(axis=1)
        ahead = (mean - best) / deviation
        better = deviation * (np.exp(-0.5 * ahead**2) / math.sqrt(2.0 * math.pi) + ahead * ndtr(ahead))
        total += size * np.maximum(better, 1e-290)
    return total
