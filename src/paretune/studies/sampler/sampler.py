"""An Optuna sampler that knows what a job costs: which cluster, batch and learning rate, for the fewest dollars.

First it buys two short probes of each instance type, from which the seconds of every job follow. Then it takes the job
that promises most expected hypervolume per dollar: for its own place on the front, and for what it tells of others.
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import cache, partial
from threading import Lock
from typing import Any

import numpy as np
import optuna
import pandas as pd
from moocore import filter_dominated, hypervolume
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from paretune.core.errors import BadInput
from paretune.estimating.memory import Footprint
from paretune.estimating.workload import BUNDLED_ROWS, PROBE_STEPS
from paretune.pricing import Price, PriceList, usual_price
from paretune.specification import metrics
from paretune.specification.job import JobSpec, default_learning_rate
from paretune.studies.definition.objectives import OBJECTIVES, Constraints, judged_by
from paretune.studies.sampler.candidates import (
    CLAIM,
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
LIKELY = 0.6  # chance not to collapse, from which on a job is worth its dollars
FRONT_JOBS = 1000.0  # times the median dollars of the jobs on the front: what all of it is worth
SECONDS_KNOWN, QUALITY_KNOWN = 0.08, 1.6  # deviation of log seconds, and of quality in noises: as good as measured
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
        stop: whether it ends when no job is worth its dollars; else it goes on to the last job that may be run.

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
        stop: bool = True,
    ) -> None:
        given = job.given() if isinstance(job, JobSpec) else dict(job)
        counted = BUNDLED_ROWS.get(str(given.get("dataset", "")), (None,))[0] if rows is None else rows
        prices = PriceList.read({})
        self.price_of = price_of = price_of or partial(_usd_per_s, prices)
        self._grid = grid = Space(given, searched, counted, price_of)
        self._objectives = list(objectives)
        judged = judged_by(dict.fromkeys(objectives, ""))
        if metric is None and judged is None:
            raise BadInput([f"objectives {', '.join(objectives)} say nothing of the model: name a metric of it, too"])
        self._metric = metric or (judged.metric if judged is not None else "")
        if others := [name for name in objectives if name not in {self._metric, *metrics.TIMES, metrics.COST_USD}]:
            raise BadInput([f"objectives: {', '.join(others)} beside {self._metric}: only one may measure the model"])
        quality = OBJECTIVES.get(self._metric)
        self._spread = F1_SPREAD if quality is not None and quality.is_share and not grid.is_own else None
        self._constraints, self._stops = constraints or {}, stop
        is_about_time = bool(set(metrics.TIMES) & {*objectives})
        is_about_usd = metrics.COST_USD in objectives or not is_about_time
        self._goals = [metrics.COST_USD] * is_about_usd + [metrics.JOB_SECONDS] * is_about_time
        self._jobs = grid.candidates
        self._limits_time = bool({metrics.JOB_SECONDS, *metrics.TIMES} & {*self._goals, *self._constraints})
        self._keys, self._terms = grid.quality_keys(self._jobs), Terms.of(grid, self._jobs)
        self._usd_per_s = np.array([price_of(item.spec) for item in self._jobs])
        self._most_s = np.array([60.0 * item.spec.max_runtime_minutes for item in self._jobs])
        self._identities = [item.identity for item in self._jobs]
        self._model: SecondsModel | None = None  # of the last decision
        self._fits: Callable[[Footprint], bool]  # of the last decision
        self.accepts: Callable[[Candidate], bool] = _accepts_any
        self._lock = Lock()
        self.space: dict[str, BaseDistribution] = {**searched, **grid.own}

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All of `space`."""
        return self.space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of the next job, as far as they are in `search_space`; others are random.

        What was enqueued is trained as it is. A worker that would have to wait, or for which nothing is worth its
        dollars, gets a job that nobody has begun.
        """
        params = self._claimed(study, trial) if self.space.keys() & search_space.keys() else {}
        return {
            name: params[name]
            if name in params and _is_in(distribution, params[name])
            else self.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
        }

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """End `Study.optimize` when no further job is worth its dollars."""
        if getattr(study._thread_local, "in_optimize_loop", False):
            ended = copy(trial)
            ended.state = state
            if values is not None:
                ended.values = list(values)
            if not self._is_waiting(rows := self._rows(study, ended)) and self._next_job(study, rows) is None:
                study.stop()

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A random value of a parameter that `space` does not hold."""
        at_random = optuna.samplers.RandomSampler(trial.number)
        return at_random.sample_independent(study, trial, param_name, param_distribution)

    def params(self, job: Candidate) -> dict[str, Any]:
        """The parameters of a trial that runs this job."""
        return {**job.point, **({PROBE: PROBE_STEPS * job.is_probe} if PROBE in self.space else {})}

    def next_job(self, study: optuna.Study) -> Candidate | None:
        """The job that a trial would get; None if none is worth its dollars, for now or for good."""
        return self._next_job(study, self._rows(study))

    def is_done(self, study: optuna.Study) -> bool:
        """Whether nothing runs and no further job is worth its dollars."""
        rows = self._rows(study)
        return not self._is_waiting(rows) and self._next_job(study, rows) is None

    def __getstate__(self) -> dict[str, Any]:
        """All but what a decision makes anew."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_model", "_fits")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The sampler before its first decision."""
        self.__dict__ |= {**state, "_lock": Lock(), "_model": None}

    def _claimed(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        """Parameters of a job for a trial, which others see before the trial has them: two workers begin no equal jobs.

        Both of two that claim one job at the same moment choose again, each after another pause.
        """
        with self._lock:
            for pause_s in (0.0, 0.02, 0.1, 0.5):
                time.sleep(pause_s * (1 + trial.number % 5))
                rows = self._rows(study, without=trial.number)
                job = self._next_job(study, rows) or self._first(rows, self._model or SecondsModel(self._grid, rows))
                params = self.params(job or next((row.job for row in reversed(rows) if row.values), self._jobs[0]))
                if "fixed_params" in trial.system_attrs:  # somebody has enqueued it
                    return {**params, **({PROBE: 0} if PROBE in self.space else {})}
                study._storage.set_trial_system_attr(trial._trial_id, CLAIM, params)
                others = [row for row in self._rows(study, without=trial.number) if row.outcome == RUNNING]
                if job is None or all(row.job.identity != job.identity for row in others):
                    break
            return params

    def _next_job(self, study: optuna.Study, rows: Sequence[Row]) -> Candidate | None:
        if not self._jobs:
            return None
        self._model = SecondsModel(self._grid, rows)
        probe = self._next_probe(rows, self._model)
        if probe is not None or any(row.job.is_probe and row.outcome == RUNNING for row in rows):
            return probe  # what a training costs is known when they have ended
        return self._next_training(study, rows, self._model)

    @staticmethod
    def _is_waiting(rows: Sequence[Row]) -> bool:
        return any(row.outcome == RUNNING for row in rows)

    def seconds_of(self, job: Candidate) -> tuple[float, float] | None:
        """Seconds of a job and the deviation of their logarithm, as of the last decision; None if nobody can know."""
        model, is_own = self._model, self._grid.is_own
        if model is None or not (is_own or job.spec.max_train_samples or self._grid.rows):
            return None
        if not (model.is_seen.any() if is_own else model.is_seen[self._grid.types.index(job.spec.instance_type)]):
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

    def _rows(self, study: optuna.Study, ended: FrozenTrial | None = None, without: int | None = None) -> list[Row]:
        """The jobs of trials with their outcomes; `ended` is a trial whose end the storage does not know yet."""
        counted, trials = self._grid.rows, study.get_trials(deepcopy=False)
        trials = [ended if ended is not None and each.number == ended.number else each for each in trials]
        rows = rows_of((each for each in trials if each.number != without), self._grid)
        directions = study.directions
        of_costs = [d for d, name in zip(directions, self._objectives, strict=False) if name != self._metric]
        is_fitting = len(directions) == len(self._objectives) and {*of_costs} <= {StudyDirection.MINIMIZE}
        if not is_fitting and any(row.outcome != RUNNING for row in rows):
            raise ValueError(
                f"the sampler's objectives are {', '.join(self._objectives)}: create the study with as many directions,"
                ' and "minimize" for dollars and seconds'
            )
        if self._grid.rows != counted:
            self._terms = Terms.of(self._grid, self._jobs)
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
            if self._limits_time:
                yield from [job for job in alike if job.spec.instance_count == grid.most][-1:]
        probed = [row.job for row in rows if row.job.is_probe and row.outcome == RAN]
        probed = [job for job in probed if others.items() <= job.point.items()]
        if probed:
            cheapest = min(probed, key=lambda job: self.price_of(job.spec))
            yield from filter(None, map(grid.job, grid.changed_seconds(cheapest)))
            if not self._limits_time and not grid.is_own:
                yield from self._on_more(rows, cheapest.spec.instance_type)

    def _on_more(self, rows: Sequence[Row], cheapest: str) -> Iterator[Candidate]:
        """For dollars: the largest batch on the next number of instances, on all types if it pays on the cheapest."""
        saves = self._saves(rows)
        for kind in self._grid.types if saves.get(cheapest) else [cheapest]:
            probed = [row.job for row in rows if row.job.is_probe and row.job.spec.instance_type == kind and row.step_s]
            if probed:
                largest = max(probed, key=lambda job: job.plan.per_device_train_batch_size)
                point = {n: v for n, v in largest.point.items() if n != "instance_count"}
                alike = [job for job in self._grid.candidates if point.items() <= job.point.items()]
                more = [job for job in alike if job.spec.instance_count > largest.spec.instance_count]
                yield from sorted(more, key=lambda job: job.spec.instance_count)[:1]

    def _saves(self, rows: Sequence[Row]) -> dict[str, bool]:
        """For each type on which a batch has run on two numbers of instances: whether more took fewer dollars."""
        steps: dict[tuple[str, int], dict[int, float]] = {}
        for row in rows:
            if row.outcome == RAN and row.step_s:
                key = row.job.spec.instance_type, row.job.plan.per_device_train_batch_size
                steps.setdefault(key, {}).setdefault(row.job.spec.instance_count, row.step_s)
        pairs = [(kind, by_count) for (kind, _), by_count in steps.items() if len(by_count) > 1]
        return {kind: by_count[max(by_count)] < by_count[min(by_count)] for kind, by_count in pairs}

    def _is_few(self, rows: Sequence[Row]) -> np.ndarray:
        """Candidates on no more instances of a type than it takes to fit, unless more save dollars or time counts."""
        if self._limits_time or self._grid.is_own:
            return np.ones(len(self._jobs), dtype=bool)
        saves, fewest = self._saves(rows), dict[str, int]()
        for job in self._jobs:
            kind, count = job.spec.instance_type, job.spec.instance_count
            if count < fewest.get(kind, math.inf) and self._fits(job.footprint):
                fewest[kind] = count
        kinds = [(job.spec.instance_type, job.spec.instance_count) for job in self._jobs]
        return np.array([saves.get(kind, False) or count == fewest.get(kind) for kind, count in kinds])

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

        def gain_over(front: np.ndarray, deviation: np.ndarray) -> np.ndarray:
            gains = expected_improvement(points[:, :-1], belief["mean"], deviation, front, reference)
            return np.where(usable, gains * belief.chance / whole, 0.0)

        of_knowing = np.where(known, 0.0, gain_over(_front_of(points[usable & known & meets]), belief.deviation))
        of_running = gain_over(ran, _told_by_a_run(belief.deviation, quality.noise))
        usd, worth = belief.seconds.to_numpy() * self._usd_per_s, np.where(new, of_knowing + of_running, 0.0)
        can_run = self._usable(belief.seconds.to_numpy()) & self._is_few(rows) & new
        alike = self._keys if quality.type_probability >= BY_TYPE else self._keys[:, 1:]
        for job in np.flatnonzero(of_knowing >= LEAST_GAIN):  # found out on the cheapest cluster that shows the same
            ways = np.flatnonzero(can_run & (abs(alike - alike[job]) < 1e-9).all(axis=1))
            if len(ways):
                way = ways[np.argmin(usd[ways])]
                worth[way] = max(worth[way], of_knowing[job])
        front_usd = float(np.median(usd[usable & (points[:, None] == front).all(axis=2).any(axis=1)]))
        if self._stops:
            worth[(worth < LEAST_GAIN) | (worth * FRONT_JOBS * front_usd < usd)] = 0.0
        else:
            worth = np.where(usable & new, np.maximum(worth, 1e-12), 0.0)
        best_first = np.argsort(-worth / np.maximum(usd, 1e-9), kind="stable")[: np.count_nonzero(worth)]
        return next((self._jobs[i] for i in best_first if self.accepts(self._jobs[i])), None)

    def _first(self, rows: Sequence[Row], model: SecondsModel) -> Candidate | None:
        """The training with the most usual settings, on the cheapest cluster."""
        seconds, _ = model.predict(self._terms)
        usd, settled = seconds * self._usd_per_s, self._settled(rows, MOST_TRIES)
        usable = self._usable(seconds) & self._is_few(rows) & self._is_new(settled)
        away = (self._keys - np.median(self._keys, axis=0))[:, 1:]
        if not self._grid.is_own:
            full = default_learning_rate("full")
            rates = np.array([default_learning_rate(job.spec.fine_tuning) for job in self._jobs])
            away[:, 0] = self._keys[:, 1] - math.log2(F1_USUAL_BATCH)
            octaves = (self._keys[:, 2] - np.log(F1_USUAL_RATE * rates / full)) / math.log(2.0)
            away[:, 1] = octaves - away[:, 0] / 2.0
        else:  # on the cheapest cluster, whatever parameter of the script makes it large
            usd = self._usd_per_s
        distance = np.linalg.norm(away, axis=1) + (1e3 if self._grid.is_own else 1e-3) * usd / usd.max()
        for i in map(int, np.argsort(np.where(usable, distance, math.inf), kind="stable")):
            if not usable[i]:
                return None
            alike = np.flatnonzero(usable & (abs(self._keys[:, 1:] - self._keys[i, 1:]) < 1e-9).all(axis=1))
            cheapest = self._jobs[min(alike, key=lambda each: usd[each])]
            if self.accepts(cheapest):
                return cheapest
        return None

    def _is_new(self, settled: set[Any]) -> np.ndarray:
        return np.array([identity not in settled for identity in self._identities])

    def _usable(self, seconds: np.ndarray) -> np.ndarray:
        """Candidates that fit into memory and are not believed to take longer than they may."""
        fits = np.array([self._fits(job.footprint) for job in self._jobs])
        return np.asarray(fits & (seconds <= self._most_s))

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
        failed = [row.job for row in rows if row.outcome == FAILED and not row.job.is_probe]
        near = [row.baseline is not None and sign * (v - row.baseline) < 0 for row, v in zip(told, values, strict=True)]
        jobs, collapsed = [row.job for row in told] + waiting, np.array(near + [False] * len(waiting))
        keys, ran_s = self._grid.quality_keys(jobs), np.array([row.seconds for row in told])
        in_percent = max(map(abs, values), default=0.0) > 1.0
        spread = self._spread and self._spread * (100.0 if in_percent else 1.0)
        quality = QualityModel(keys[: len(told)], values, spread, collapsed=collapsed[: len(told)])
        reached, _ = quality.predict(keys)
        if waiting:
            ran_s = np.append(ran_s, model.predict(Terms.of(self._grid, waiting))[0])
            collapsed[: len(told)] = quality.collapsed
            quality = QualityModel(keys, [*values, *reached[len(told) :]], spread, collapsed=collapsed)
        reached[: len(told)] = np.where(quality.collapsed[: len(told)], values, reached[: len(told)])
        ran_usd = ran_s * np.array([self.price_of(job.spec) for job in jobs])
        costs = self._costs(ran_s, ran_usd / np.maximum(ran_s, 1e-9))
        ran = np.column_stack([costs, -reached])[self._meets(ran_usd, ran_s, sign * reached)]
        seconds, log_deviation = model.predict(self._terms)
        mean, deviation = quality.predict(self._keys)
        chance = 1.0 - quality.collapse_probability(self._keys, self._grid.quality_keys(failed))
        usd, faster = seconds * self._usd_per_s, np.exp(-log_deviation)
        may_meet = self._meets(usd * faster, seconds * faster, sign * (mean + deviation))
        if not may_meet.any():  # as far as runs so far tell, which may be bad settings
            may_meet = self._meets(usd * faster, seconds * faster, np.full(len(mean), sign * math.inf))
        columns = {
            "seconds": seconds,
            "log_deviation": log_deviation,
            "mean": mean,
            "deviation": deviation,
            "chance": chance,
            "usable": self._usable(seconds) & self._is_few(rows) & (chance > LIKELY) & may_meet,
            "known": (deviation < QUALITY_KNOWN * quality.noise) & (log_deviation < SECONDS_KNOWN),
            "new": self._is_new(self._settled(rows, MOST_TRIES)),
            "meets": self._meets(usd, seconds, sign * mean),
        }
        return pd.DataFrame(columns), _front_of(ran), quality

    def _points(self, belief: pd.DataFrame) -> np.ndarray:
        """Costs and negative quality of all candidates, shape (N, goals + 1)."""
        return np.column_stack([self._costs(belief.seconds.to_numpy(), self._usd_per_s), -belief["mean"]])

    def _costs(self, seconds: np.ndarray, usd_per_s: np.ndarray) -> np.ndarray:
        columns = {metrics.COST_USD: seconds * usd_per_s, metrics.JOB_SECONDS: seconds}
        return np.column_stack([columns[goal] for goal in self._goals])

    def _meets(self, usd: np.ndarray, seconds: np.ndarray, quality: np.ndarray) -> np.ndarray:
        """Which of N jobs meet the constraints on dollars, seconds and quality, each as it is measured."""
        columns = {metrics.COST_USD: usd, self._metric: quality}
        columns |= dict.fromkeys((metrics.JOB_SECONDS, *metrics.TIMES), seconds)
        meets = np.ones(len(quality), dtype=bool)
        for name, bounds in self._constraints.items():
            if name in columns:
                meets &= columns[name] >= bounds.get("min", -math.inf)
                meets &= columns[name] <= bounds.get("max", math.inf)
        return meets


def _is_in(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a value is one of the distribution."""
    with suppress(ValueError, TypeError):
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    return False


def _accepts_any(job: Candidate) -> bool:
    return True


def _usd_per_s(prices: PriceList, spec: JobSpec) -> float:
    return (usual_price(spec, prices, {}) or UNPRICED).cost_usd(1.0, spec.instance_count)


def _told_by_a_run(deviation: np.ndarray, noise: float) -> np.ndarray:
    """By how much one run with this noise is expected to move what is believed of N candidates."""
    return np.asarray(deviation**2 / np.sqrt(deviation**2 + noise**2))


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
