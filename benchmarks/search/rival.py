"""A plain rival that knows nothing about the worlds: two probes per type, one Gaussian process, and gain per dollar.

It has no budget, runs one job at a time, and states no result: this is what 200 lines of code reach.

    probes     for each type, the smallest batch and the largest that fits, on the fewest instances. A step takes
               a + b x batch x row length + c x further instances
    quality    a Gaussian process over log2 of the global batch, the logarithm of the learning rate along a ridge
               (best rate = constant x batch ^ power), and all other numbers. It is averaged by likelihood over the
               power, the scale, the noise and a term of the type. Runs far below the best have collapsed and are left
               out
    first      a point near global batch 32 and learning rate 3e-5
    then       the job that adds the most expected hypervolume per dollar: by being on the front itself, or by showing
               the F1 of a point, which the cheapest cluster can measure with accumulation
    end        when no job is worth a fiftieth of what was spent
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import nnls

from paretune.core.pareto import front
from paretune.estimating.workload import PROBE_STEPS
from paretune.launchers.simulated.recorded_runs import COMPLETED, OUT_OF_MEMORY, STARTUP_SECONDS
from paretune.studies.results.front import hypervolume
from search.improvement import hypervolume_improvement
from search.peers import Asking
from search.tables import Costs, Outcome, Point, Table

_SPREAD, _NOISE = 0.03, 0.004  # standard deviations of F1: between points, and of one run
_PATIENCE, _LEAST = 50.0, 0.0005
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
_CLUSTER = {"instance_type", "instance_count", "per_device_train_batch_size", "learning_rate"}


@dataclass(frozen=True, eq=False)
class _Job:
    """A point with what its seconds and its F1 depend on: type, log2 of the global batch, log rate, other numbers."""

    point: Point
    batch: int
    size: int
    terms: np.ndarray  # of the seconds of a step: latency, row, exchange
    steps: float
    usd_per_s: float
    key: tuple[Any, ...]


class Rival(Asking):
    """The rival on a table; it minimizes dollars and maximizes F1."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._others = [name for name in table.axes if name not in _CLUSTER and table.is_ordered(name)]
        jobs = [job for point in table.points if (job := self._job(point)) is not None]
        fewest = min(job.terms[2] for job in jobs)
        self._jobs = [job for job in jobs if job.terms[2] == fewest]
        self._types = sorted({job.key[0] for job in self._jobs})
        self._results: list[tuple[_Job, Outcome]] = []

    def ask(self) -> tuple[Any, Point] | None:
        """Return a probe, the first training, or the point with the most gain per dollar."""
        job = next(self._probes(), None) or self._training()
        return None if job is None else (job, job.point)

    def tell(self, handle: Any, outcome: Outcome, costs: Costs | None) -> None:
        """Record how a job has ended."""
        self._results.append((handle, outcome))

    def _job(self, point: Point) -> _Job | None:
        if (spec := self._table.spec(point)) is None:
            return None
        plan, times = spec.plan(), spec.plan().gradient_accumulation_steps
        row_s = times * plan.per_device_train_batch_size * spec.max_seq_length
        others = [math.log(float(point[name])) for name in self._others]
        return _Job(
            point,
            plan.per_device_train_batch_size,
            plan.global_batch_size,
            np.array([times, row_s, spec.instance_count - 1], dtype=float),
            spec.probe_steps or math.ceil(self._table.rows * spec.num_train_epochs / plan.global_batch_size),
            self._table.usd(spec, 1.0),
            (spec.instance_type, math.log2(plan.global_batch_size), math.log(plan.learning_rate), *others),
        )

    def _is_open(self, job: _Job, tries: int) -> bool:
        """Return whether a job fits, has not ended well, and has failed fewer times than `tries`."""
        full = [each for each, end in self._results if end.status == OUT_OF_MEMORY and each.key[0] == job.key[0]]
        ends = [end.status for each, end in self._results if each.point == job.point]
        fits = all(job.batch < each.batch for each in full)
        return fits and COMPLETED not in ends and len(ends) < tries

    def _probes(self) -> Iterator[_Job]:
        full = {(each.key[0], each.batch) for each, end in self._results if end.status == OUT_OF_MEMORY}
        for name in self._types:
            most = min((batch for kind, batch in full if kind == name), default=math.inf)
            here = [job for job in self._jobs if job.key[0] == name and job.batch < most]
            here.sort(key=lambda job: job.batch)
            for job in [*here[:1], *here[-1:]]:
                probe = self._job({**job.point, "probe_steps": PROBE_STEPS})
                if probe is not None and self._is_open(probe, 4):
                    yield probe

    def _seconds(self, jobs: Sequence[_Job]) -> np.ndarray:
        start_s, speeds = STARTUP_SECONDS, {}
        for name in self._types:
            ran = [(job, end) for job, end in self._results if job.key[0] == name and end.status == COMPLETED]
            fit = [job.terms * job.steps / max(end.seconds - start_s, 1.0) for job, end in ran]
            speeds[name] = nnls(np.array(fit), np.ones(len(fit)))[0] if fit else np.full(3, math.inf)
        return np.array([start_s + job.steps * float(speeds[job.key[0]] @ job.terms) for job in jobs])

    def _keys(self, jobs: Sequence[_Job]) -> np.ndarray:
        return np.array([(self._types.index(job.key[0]), *job.key[1:]) for job in jobs])

    def _training(self) -> _Job | None:
        ran = [(job, end) for job, end in self._results if end.f1 is not None]
        jobs = [job for job in self._jobs if self._is_open(job, 2) or any(job is each for each, _ in ran)]
        seconds, keys = self._seconds(jobs), self._keys(jobs)
        usd = seconds * [job.usd_per_s for job in jobs]
        if not ran:
            off = np.abs(keys[:, 1] - 5.0) + np.abs(keys[:, 2] - math.log(3e-5)) / math.log(2.0)
            return jobs[int(np.argmin(off + 1e-3 * usd / usd.max()))] if jobs else None
        mean, deviation, noise, chance = _believe(self._keys([job for job, _ in ran]), [end.f1 for _, end in ran], keys)
        believed, is_known = np.column_stack([usd, -mean]), deviation < 1.6 * noise
        best = believed[front(believed.tolist(), [False, False])]
        (low, _), (high, worst) = best.min(axis=0), best.max(axis=0)
        reference = np.array([max(1.15 * high, 3.0 * low), worst + 0.1 * np.ptp(best[:, 1]) + noise])
        whole = hypervolume(best.tolist(), reference.tolist())

        def gains(over: np.ndarray) -> np.ndarray:
            added = [
                weight * hypervolume_improvement(np.column_stack([usd, -(mean + node * deviation)]), over, reference)
                for node, weight in zip(_NODES, _WEIGHTS, strict=True)
            ]
            return np.asarray(chance * sum(added) / (_WEIGHTS.sum() * whole))

        paid = [(end.usd, -(end.f1 or 0.0)) for _, end in ran]
        running, knowing = gains(np.array(paid)), np.where(is_known, 0.0, gains(believed[is_known]))
        spent = sum(end.usd for _, end in self._results)
        options: list[tuple[float, _Job]] = []
        for i in np.argsort(-(running + knowing))[:100]:
            ways = [(running[i] + knowing[i], float(usd[i]), jobs[i])] if self._is_open(jobs[i], 2) else []
            if knowing[i] >= _LEAST:
                ways += [(knowing[i], price, way) for price, way in [self._cheapest(jobs[i], jobs)] if way is not None]
            for worth, price, way in ways:
                if worth >= _LEAST and worth * _PATIENCE * (spent + price) >= price:
                    options.append((worth / price, way))
        return max(options, key=lambda option: option[0], default=(0.0, None))[1]

    def _cheapest(self, goal: _Job, jobs: Sequence[_Job]) -> tuple[float, _Job | None]:
        """Return the cheapest job with the same global batch, rate and other numbers, accumulating if necessary."""
        alike = [job for job in jobs if job.key[2:] == goal.key[2:] and goal.size % job.size == 0]
        accumulated = [{**job.point, "gradient_accumulation_steps": goal.size // job.size} for job in alike]
        made = [job if job.size == goal.size else self._job(p) for job, p in zip(alike, accumulated, strict=True)]
        ways = [job for job in made if job is not None and self._is_open(job, 2)]
        usd = self._seconds(ways) * [job.usd_per_s for job in ways]
        return (float(usd.min()), ways[int(usd.argmin())]) if ways else (math.inf, None)


def _believe(
    ran: np.ndarray, shown: Sequence[float | None], keys: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Return means and deviations of F1 at keys, the noise of one run, and the probability of no collapse."""
    values = np.array(shown, dtype=float)
    trained = values > values.max() - 10.0 * _SPREAD
    x, y = ran[trained], values[trained]
    fits = []
    for power, scale, noise, shift in itertools.product((0.0, 0.5, 1.0), (0.5, 1.0, 2.0), (1.0, 2.0, 4.0), (0.0, 0.5)):
        places = [_place(each, power) for each in (x, keys)]
        top = places[0][int(y.argmax()), 1]
        prior = [float(np.median(y)) - 0.13 * _SPREAD * (1.5 * (place[:, 1] - top)) ** 2 for place in places]
        near, far = (
            (scale * _SPREAD) ** 2 * _matern(place, places[0])
            + (shift * _SPREAD) ** 2 * (each[:, None, 0] == x[:, 0])
            + (3.0 * _SPREAD) ** 2
            for place, each in zip(places, (x, keys), strict=True)
        )
        inverse = np.linalg.inv(near + (noise * _NOISE) ** 2 * np.eye(len(y)))
        rest = y - prior[0]
        fit = rest @ inverse @ rest - np.linalg.slogdet(inverse)[1] + math.log(scale) ** 2 + 2.0 * math.log(noise) ** 2
        mean = prior[1] + far @ inverse @ rest
        variance = (scale**2 + shift**2 + 9.0) * _SPREAD**2 - ((far @ inverse) * far).sum(axis=1)
        fits.append((-0.5 * fit - 2.0 * (power - 0.5) ** 2 - 5.0 * shift, mean, variance, (noise * _NOISE) ** 2))
    weights = np.exp(np.array([fit[0] for fit in fits]) - max(fit[0] for fit in fits))
    weights /= weights.sum()
    means, variances = np.array([fit[1] for fit in fits]), np.array([fit[2] for fit in fits])
    mean = weights @ means
    deviation = np.sqrt(np.maximum(weights @ (variances + means**2) - mean**2, 1e-12))
    fallen = _matern(2.0 * _place(keys, 0.5), 2.0 * _place(ran, 0.5))
    share = ((~trained).sum() + 0.5) / (len(values) + 10.0)
    chance = 1.0 - (fallen @ ~trained + share) / (fallen.sum(axis=1) + 1.0)
    return mean, deviation, math.sqrt(weights @ [fit[3] for fit in fits]), np.where(chance > 0.6, chance, 0.0)


def _place(keys: np.ndarray, power: float) -> np.ndarray:
    """Return keys without the type, scaled to distances over which F1 changes, with rates relative to the ridge."""
    rate = keys[:, 2] - power * math.log(2.0) * keys[:, 1]
    return np.column_stack([keys[:, 1] / 6.0, rate / 1.5, keys[:, 3:] / 0.7])


def _matern(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    far = math.sqrt(5.0) * np.linalg.norm(left[:, None] - right, axis=2)
    return np.asarray((1.0 + far + far**2 / 3.0) * np.exp(-far))
