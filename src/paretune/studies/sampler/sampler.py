"""An Optuna sampler that knows what a job costs: which cluster, batch and learning rate, for the fewest dollars.

First it buys two short probes of each instance type, from which the seconds of every job follow. Then it takes the job
that promises most expected hypervolume per dollar: for its own place on the front, and for what it tells of others.
What a training would reach may be found out on the cheapest cluster with the same global batch.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import optuna
import pandas as pd
from moocore import filter_dominated, hypervolume
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from paretune.estimating.features import Footprint
from paretune.estimating.workload import BUNDLED_ROWS, PROBE_STEPS
from paretune.pricing import Price, PriceList, usual_price
from paretune.specification import metrics
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.studies.definition.objectives import OBJECTIVES, Constraints
from paretune.studies.sampler.candidates import (
    ACCUMULATION,
    CUT_OFF,
    FAILED,
    OUT_OF_MEMORY,
    PROBE,
    RAN,
    RUNNING,
    Candidate,
    Row,
    SecondsModel,
    Space,
    Terms,
    rows_of,
)
from paretune.studies.sampler.quality import F1_SPREAD, F1_USUAL_BATCH, F1_USUAL_RATE, QualityModel

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
UNPRICED = Price(usd_per_hour=1.0, region="", as_of="", source="unknown", confidence="missing")
"""The price of an instance that has no known one."""
LEAST_GAIN = 0.0005  # of the front's hypervolume: less cannot be told from the models' own errors
PATIENCE = 50.0  # times what a study has cost so far: what its front is worth
LIKELY = 0.6  # chance not to collapse, from which on a job is worth its dollars
SECONDS_KNOWN, QUALITY_KNOWN = 0.08, 1.6  # deviation of log seconds, and of quality in noises: as good as measured
MOST_COMPARED = 150  # candidates with the largest gains
MOST_TRIES, MOST_PROBE_TRIES = 2, 4  # of a job that fails by itself
BY_TYPE = 0.9  # probability from which on a type is trained on for its own quality
REACH = 3.0
"""Times the least cost of the front, up to which it may grow although no better quality is expected there: a model that
is sure too early never looks."""
BRIEF = 0.5  # of the seconds of a training, from which on it shows as much as a probe, and quality too


_SECONDS = (metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS, metrics.TRAIN_SECONDS)  # what constraints may bound


class SplitSampler(optuna.samplers.BaseSampler):
    """Suggests the job with most expected hypervolume per dollar; `space` holds what a trial is asked for.

    A suggestion follows from `study.trials` alone, so a study goes on where it was left. A trial with `probe_steps`
    trains so many steps only and is told as PRUNED. User attributes tell what a job has shown: `seconds` billed,
    `startup_seconds` of them around the training, `step_seconds`, and of a failed one `outcome`: out_of_memory,
    cut_off (at its time limit), failed, or again (its end says nothing of its point).

    Args:
        job: what all jobs share, a `JobSpec` or the parameters that are given.
        searched: parameter of a job to the Optuna distribution of its values.
        objectives: metrics in the order of the study's directions: of the cluster such as cost_usd, and one of quality.
        price_of: dollars a second of a job; by default on demand in the job's region.
        rows: training rows of the whole data set, if known.
        metric: the objective that measures the model; by default the first that is not of the cluster.
        constraints: metric to its `min` and `max`.

    Attributes:
        accepts: whether a job may be begun now, such as within a budget. Set it before a trial is asked for.
    """

    def __init__(
        self,
        job: JobSpec | Mapping[str, Any],
        searched: Mapping[str, BaseDistribution],
        *,
        objectives: Sequence[str] = (metrics.COST_USD, metrics.F1),
        price_of: Callable[[JobSpec], float] | None = None,
        rows: float | None = None,
        metric: str | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        given = job.given() if isinstance(job, JobSpec) else dict(job)
        counted = BUNDLED_ROWS.get(str(given.get("dataset", "")), (None,))[0] if rows is None else rows
        prices = PriceList.read({})
        self.price_of = price_of = price_of or (
            lambda spec: (usual_price(spec, prices, {}) or UNPRICED).cost_usd(1.0, spec.instance_count)
        )
        self._grid = grid = Space(given, searched, counted)
        self._objectives = list(objectives)
        self._metric = metric or next(name for name in objectives if name not in metrics.OF_THE_CLUSTER)
        quality = OBJECTIVES.get(self._metric)
        self._spread = F1_SPREAD if quality is not None and quality.is_share and not grid.is_own else None
        self._constraints = constraints or {}
        is_about_time = bool(set(metrics.TIMES) & {*objectives})
        is_about_usd = metrics.COST_USD in objectives or not is_about_time
        self._goals = [metrics.COST_USD] * is_about_usd + [metrics.JOB_SECONDS] * is_about_time
        self._jobs = grid.candidates
        is_timed = is_about_time or bool({*_SECONDS} & self._constraints.keys())
        self._takes_fewest = not is_timed and not grid.is_own  # more instances never train for fewer dollars
        self._types = np.array([grid.types.index(item.spec.instance_type) for item in self._jobs])
        self._counts = np.array([item.spec.instance_count for item in self._jobs])
        self._keys, self._terms = grid.quality_keys(self._jobs), Terms.of(grid, self._jobs)
        self._usd_per_s = np.array([price_of(item.spec) for item in self._jobs])
        self._most_s = np.array([60.0 * item.spec.max_runtime_minutes for item in self._jobs])
        self._identities = [item.identity for item in self._jobs]
        _, self._family = np.unique(self._keys[:, 2:].round(9), axis=0, return_inverse=True)
        """Numbers, equal for candidates whose quality differs by the global batch at most."""
        self._model: SecondsModel | None = None  # of the last decision
        self._fits: Callable[[Footprint], bool]  # of the last decision
        self._ways: dict[Any, tuple[list[Candidate], Terms, np.ndarray]] = {}
        self.accepts: Callable[[Candidate], bool] = lambda job: True
        self.space: dict[str, BaseDistribution] = {**searched, **grid.own}

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All of `space`."""
        return self.space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of the next job; of the last one again if none is worth its dollars."""
        job = self.next_job(study)
        return self.params(job or next((row.job for row in reversed(self._rows(study)) if row.values), self._jobs[0]))

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A random value of a parameter that `space` does not hold."""
        at_random = optuna.samplers.RandomSampler(trial.number)
        return at_random.sample_independent(study, trial, param_name, param_distribution)

    def params(self, job: Candidate) -> dict[str, Any]:
        """The parameters of a trial that runs this job."""
        own = {PROBE: PROBE_STEPS * job.is_probe, ACCUMULATION: job.accumulation}
        return {**job.point, **{name: value for name, value in own.items() if name in self.space}}

    def next_job(self, study: optuna.Study) -> Candidate | None:
        """The job that a trial would get; None if none is worth its dollars, for now or for good."""
        rows = self._rows(study)
        if not self._jobs:
            return None
        self._model = SecondsModel(self._grid, rows)
        probe = self._next_probe(rows, self._model)
        if probe is not None or any(row.job.is_probe and row.outcome == RUNNING for row in rows):
            return probe  # what a training costs is known when they have ended
        return self._next_training(study, rows, self._model)

    def is_done(self, study: optuna.Study) -> bool:
        """Whether nothing runs and no further job is worth its dollars."""
        return not any(row.outcome == RUNNING for row in self._rows(study)) and self.next_job(study) is None

    def seconds_of(self, job: Candidate) -> tuple[float, float] | None:
        """Seconds of a job and the deviation of their logarithm, as of the last decision; None if nobody can know."""
        model, is_counted = self._model, self._grid.is_own or job.spec.max_train_samples or self._grid.rows
        if model is None or not is_counted or not model.is_seen[self._grid.types.index(job.spec.instance_type)]:
            return None
        seconds, deviation = model.predict(Terms.of(self._grid, [job]))
        return float(seconds[0]), float(deviation[0])

    def predicted(self, study: optuna.Study) -> list[tuple[Candidate, Any]]:
        """Candidates that were not run, are as good as known, and that no other such one beats; with their beliefs."""
        rows = self._rows(study)
        if not any(row.values for row in rows) or not self._jobs:
            return []
        belief, _, _ = self._belief(study, rows, SecondsModel(self._grid, rows))
        chosen = belief[belief.usable & belief.known & belief.new & belief.meets]
        points = self._points(belief)[chosen.index]
        best = {tuple(point) for point in _front_of(points)}
        pairs = zip(chosen.itertuples(), points, strict=True)
        return [(self._jobs[each.Index], each) for each, point in pairs if tuple(point) in best]

    def _rows(self, study: optuna.Study) -> list[Row]:
        counted = self._grid.rows
        rows = rows_of(study, self._grid)
        if self._grid.rows != counted:
            self._terms, self._ways = Terms.of(self._grid, self._jobs), {}
        full = dict.fromkeys(row.job.footprint for row in rows if row.outcome == OUT_OF_MEMORY)
        self._fits = cache(lambda footprint: footprint.why_full(full) is None)
        return rows

    def _settled(self, rows: Sequence[Row], tries: int) -> set[Any]:
        """Jobs that are not begun again: they ran, run, or have failed or were cut off so many times."""
        counts = Counter[Any]()
        for row in rows:
            counts[row.job.identity] += 1 if row.outcome in (FAILED, CUT_OFF) else tries
        return {identity for identity, count in counts.items() if count >= tries}

    def _next_probe(self, rows: Sequence[Row], model: SecondsModel) -> Candidate | None:
        """A probe that has not run, of a job that fits and takes much longer."""
        settled = self._settled(rows, MOST_PROBE_TRIES)
        for job in [] if self._grid.is_own else self._unlike(rows):
            probe = self._grid.job(job.point, is_probe=True) if self._fits(job.footprint) else None
            if probe is not None and probe.identity not in settled:
                seconds, _ = model.predict(Terms.of(self._grid, [probe, job]))
                if seconds[0] < BRIEF * seconds[1] and self.accepts(probe):
                    return probe
        return None

    def _unlike(self, rows: Sequence[Row]) -> Iterator[Candidate]:
        """The smallest and the largest batch that fits of each type, then one change of every other parameter."""
        grid = self._grid
        cluster = {"instance_type", "instance_count", "per_device_train_batch_size", "global_batch_size"}
        others = {n: v for n, v in self._jobs[0].point.items() if n not in cluster}
        for kind in grid.types:
            alike = [job for job in grid.candidates if job.spec.instance_type == kind]
            alike = [job for job in alike if others.items() <= job.point.items()] or alike
            alike = sorted(
                (job for job in alike if self._fits(job.footprint)),
                key=lambda job: job.plan.per_device_train_batch_size,
            )
            fewest = min((job.spec.instance_count for job in alike), default=0)
            few = [job for job in alike if job.spec.instance_count == fewest]
            yield from few[:1] + few[-1:]
            if not self._takes_fewest:
                yield from [job for job in alike if job.spec.instance_count == grid.most][-1:]
        probed = [row.job for row in rows if row.job.is_probe and row.outcome == RAN]
        probed = [job for job in probed if others.items() <= job.point.items()]
        if probed:
            cheapest = min(probed, key=lambda job: self.price_of(job.spec))
            yield from filter(None, map(grid.job, grid.changed_seconds(cheapest)))

    def _next_training(self, study: optuna.Study, rows: Sequence[Row], model: SecondsModel) -> Candidate | None:
        trainings = [row for row in rows if row.is_training]
        if not any(row.values for row in trainings):
            return None if any(row.outcome == RUNNING for row in trainings) else self._first(rows, model)
        belief, ran, quality = self._belief(study, rows, model)
        usable, known, new, meets = (belief[name].to_numpy() for name in ("usable", "known", "new", "meets"))
        if not usable.any():
            return None
        points = self._points(belief)
        front = _front_of(points[usable])
        low, high = front.min(axis=0), front.max(axis=0)
        reference = np.maximum(1.05 * high + 0.1 * (high - low), REACH * low)
        reference[-1] = high[-1] + 0.1 * (high[-1] - low[-1]) + quality.noise
        whole = max(float(hypervolume(front, ref=reference)), 1e-12)

        def gain_over(front: np.ndarray) -> np.ndarray:
            gains = expected_improvement(points[:, :-1], belief["mean"], belief.deviation, front, reference)
            return np.where(usable, gains * belief.chance / whole, 0.0)

        of_knowing = np.where(known, 0.0, gain_over(_front_of(points[usable & known & meets])))
        of_running = np.where(new, gain_over(ran), 0.0)
        usd, settled = belief.seconds.to_numpy() * self._usd_per_s, self._settled(rows, MOST_TRIES)
        spent = sum(row.seconds * self.price_of(row.job.spec) for row in rows)
        options: list[tuple[float, Candidate]] = []
        by_type = quality.type_probability >= BY_TYPE
        for i in map(int, np.argsort(-(of_knowing + of_running), kind="stable")[:MOST_COMPARED]):
            ways = [(of_knowing[i] + of_running[i], usd[i], self._jobs[i])] if new[i] else []
            if of_knowing[i] >= LEAST_GAIN:
                way = self._cheapest(i, model, settled, by_type)
                ways += [(of_knowing[i], *way)] if way is not None else []
            for worth, price, job in ways:
                if worth >= LEAST_GAIN and worth * PATIENCE * (spent + price) >= price:
                    options.append((worth / max(price, 1e-9), job))
        options.sort(key=lambda option: -option[0])
        return next((job for _, job in options if self.accepts(job)), None)

    def _first(self, rows: Sequence[Row], model: SecondsModel) -> Candidate | None:
        """The training with the most usual settings, on the cheapest cluster."""
        seconds, _ = model.predict(self._terms)
        usd, settled = seconds * self._usd_per_s, self._settled(rows, MOST_TRIES)
        usable = self._usable(seconds) & self._is_new(settled)
        away = (self._keys - np.median(self._keys, axis=0))[:, 1:]
        if not self._grid.is_own:
            full = default_learning_rate("full")
            rates = np.array([default_learning_rate(job.spec.fine_tuning) for job in self._jobs])
            away[:, 0] = self._keys[:, 1] - math.log2(F1_USUAL_BATCH)
            octaves = (self._keys[:, 2] - np.log(F1_USUAL_RATE * rates / full)) / math.log(2.0)
            away[:, 1] = octaves - away[:, 0] / 2.0
        distance = np.linalg.norm(away, axis=1) + 1e-3 * usd / usd.max()
        for i in map(int, np.argsort(np.where(usable, distance, math.inf), kind="stable")):
            if not usable[i]:
                return None
            way = self._cheapest(i, model, settled, False)
            job = self._jobs[i] if way is None else way[1]
            if self.accepts(job):
                return job
        return None

    def _is_new(self, settled: set[Any]) -> np.ndarray:
        return np.array([identity not in settled for identity in self._identities])

    def _usable(self, seconds: np.ndarray) -> np.ndarray:
        """Candidates that fit into memory and are not believed to take longer than they may.

        If time does not matter, only those on the fewest instances of their type that they fit on.
        """
        fits = np.array([self._fits(job.footprint) for job in self._jobs])
        usable = fits & (seconds <= self._most_s)
        for kind in set(self._types[fits]) if self._takes_fewest else ():
            is_kind = self._types == kind
            usable &= ~is_kind | (self._counts == self._counts[is_kind & fits].min())
        return np.asarray(usable)

    def _belief(
        self, study: optuna.Study, rows: Sequence[Row], model: SecondsModel
    ) -> tuple[pd.DataFrame, np.ndarray, QualityModel]:
        """Beliefs about each candidate, the front of expected quality of what ran or runs, and the model of quality.

        Columns are seconds and the deviation of their logarithm, mean and deviation of quality, the chance to train,
        and whether it may be suggested, is as good as measured, was not run, and is expected to meet the constraints.
        """
        is_quality = self._objectives.index(self._metric)
        sign = 1.0 if study.directions[is_quality] == StudyDirection.MAXIMIZE else -1.0
        told = [row for row in rows if row.values and row.is_training]
        waiting = [row.job for row in rows if row.is_training and not row.values]
        values = [sign * row.values[is_quality] for row in told if row.values]
        near = [row.baseline is not None and sign * (v - row.baseline) < 0 for row, v in zip(told, values, strict=True)]
        jobs, collapsed = [row.job for row in told] + waiting, np.array(near + [False] * len(waiting))
        keys, ran_s = self._grid.quality_keys(jobs), np.array([row.seconds for row in told])
        quality = QualityModel(keys[: len(told)], values, self._spread, collapsed=collapsed[: len(told)])
        reached, _ = quality.predict(keys)
        if waiting:
            ran_s = np.append(ran_s, model.predict(Terms.of(self._grid, waiting))[0])
            collapsed[: len(told)] = quality.collapsed
            quality = QualityModel(keys, [*values, *reached[len(told) :]], self._spread, collapsed=collapsed)
        reached[: len(told)] = np.where(quality.collapsed[: len(told)], values, reached[: len(told)])
        prices = np.array([self.price_of(job.spec) for job in jobs])
        costs = self._costs(ran_s, prices)
        ran = np.column_stack([costs, -reached])[self._meets(ran_s, prices, sign * reached)]
        seconds, log_deviation = model.predict(self._terms)
        mean, deviation = quality.predict(self._keys)
        failed = [
            row.job for row in rows if row.outcome == FAILED and not row.job.is_probe
        ]  # such as where it diverges
        chance = 1.0 - quality.collapse_probability(self._keys, self._grid.quality_keys(failed))
        may_meet = self._meets(seconds * np.exp(-log_deviation), self._usd_per_s, sign * (mean + deviation))
        columns = {
            "seconds": seconds,
            "log_deviation": log_deviation,
            "mean": mean,
            "deviation": deviation,
            "chance": chance,
            "usable": self._usable(seconds) & (chance > LIKELY) & may_meet,
            "known": (deviation < QUALITY_KNOWN * quality.noise) & (log_deviation < SECONDS_KNOWN),
            "new": self._is_new(self._settled(rows, MOST_TRIES)),
            "meets": self._meets(seconds, self._usd_per_s, sign * mean),
        }
        return pd.DataFrame(columns), _front_of(ran), quality

    def _points(self, belief: pd.DataFrame) -> np.ndarray:
        """Costs and negative quality of all candidates, shape (N, goals + 1)."""
        return np.column_stack([self._costs(belief.seconds.to_numpy(), self._usd_per_s), -belief["mean"]])

    def _costs(self, seconds: np.ndarray, usd_per_s: np.ndarray) -> np.ndarray:
        columns = {metrics.COST_USD: seconds * usd_per_s, metrics.JOB_SECONDS: seconds}
        return np.column_stack([columns[goal] for goal in self._goals])

    def _meets(self, seconds: np.ndarray, usd_per_s: np.ndarray, quality: np.ndarray) -> np.ndarray:
        """Which of N points meet the constraints, whatever the objectives; quality as it is measured."""
        columns = {metrics.COST_USD: seconds * usd_per_s, self._metric: quality}
        columns |= dict.fromkeys(_SECONDS, seconds)
        meets = np.ones(len(quality), dtype=bool)
        for name, bounds in self._constraints.items():
            if name in columns:
                meets &= columns[name] >= bounds.get("min", -math.inf)
                meets &= columns[name] <= bounds.get("max", math.inf)
        return meets

    def _cheapest(
        self, goal: int, model: SecondsModel, settled: set[Any], by_type: bool
    ) -> tuple[float, Candidate] | None:
        """Dollars and job of the cheapest new way to know a candidate's quality; `by_type`: on its own type."""
        job = self._jobs[goal]
        key = self._family[goal], job.plan.global_batch_size, job.spec.instance_type if by_type else ""
        if key not in self._ways:
            alike = [self._jobs[i] for i in np.flatnonzero(self._family == key[0])]
            alike = [each for each in alike if key[2] in ("", each.spec.instance_type)]
            ways = [way for each in alike if (way := self._way(each, key[1])) is not None]
            self._ways[key] = ways, Terms.of(self._grid, ways), np.array([self.price_of(way.spec) for way in ways])
        ways, terms, prices = self._ways[key]
        seconds, _ = model.predict(terms)
        for i in map(int, np.argsort(seconds * prices, kind="stable")):
            way = ways[i]
            if (
                way.identity not in settled
                and self._fits(way.footprint)
                and seconds[i] <= 60.0 * way.spec.max_runtime_minutes
            ):
                return float(seconds[i] * prices[i]), way
        return None

    def _way(self, job: Candidate, size: int) -> Candidate | None:
        """A candidate with the global batch `size`, by accumulation if it must be; None if it cannot have that."""
        times, rest = divmod(size, job.plan.global_batch_size)
        if self._grid.is_own or (times == 1 and not rest):
            return job
        return self._grid.job(job.point, times) if times and not rest and ACCUMULATION in self._grid.own else None


def _front_of(points: np.ndarray) -> np.ndarray:
    """The non-dominated rows of N points, shape (N, M), all objectives minimised."""
    return np.asarray(filter_dominated(points)) if len(points) else points


def hypervolume_improvement(points: np.ndarray, front: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Hypervolume that each of N points, shape (N, M), adds to K others, shape (K, M).

    All objectives are minimised. Points beyond the reference point add nothing. The volume is cut into slabs along the
    last objective, between which the others are compared in one objective less.
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
    """Hypervolume that each of N jobs is expected to add to a front: costs of shape (N, M - 1), quality normal."""
    gains = np.zeros(len(mean))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        points = np.column_stack([costs, -(mean + node * deviation)])
        gains += weight * hypervolume_improvement(points, front, reference)
    return np.asarray(gains / _WEIGHTS.sum())
