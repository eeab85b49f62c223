"""The candidates of a search, the outcomes of its trials, and the model of seconds.

The models assume that quality depends on the global batch size, learning rate, epochs, precision and further
parameters, but not otherwise on where a job runs. Seconds depend on the cluster, the per-device batch and further
parameters. A probe of a few steps measures the seconds of a step:

    seconds            = startup + steps x seconds of a step
    seconds of a step  = effects x (accumulation x (latency + per-device batch x row) + further instances x exchange)

Accumulation is the number of micro-batches in a step. A micro-batch takes the latency and, for each of its rows, the
seconds `row`. Each instance beyond the smallest number of instances in the search adds the seconds `exchange`, for
communication. A hierarchical prior gives each instance type its own latency, row and exchange, close to those of the
other types. Each further parameter has an effect, a factor with a log-normal prior.

A job that runs the user's own training code counts as one step. Before any run, a typical such job is assumed to take
300 seconds, or half of the shortest time limit if that is less. Its dollars are assumed to grow with the price of its
cluster and with its counts, such as epochs, units or workers, and to fall as its batch grows.

A job that was cut off at its time limit is assumed to need somewhat longer than that limit.

In shapes, N is the number of jobs, T that of instance types and D that of further columns.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from paretune.core.errors import BadInput
from paretune.estimating.memory import Footprint
from paretune.estimating.workload import PROBE_STEPS
from paretune.specification.declaration import Value, effects_of
from paretune.specification.job import JobSpec
from paretune.specification.metrics import BILLABLE_SECONDS, COST_USD, JOB_SECONDS, TRAIN_SECONDS
from paretune.specification.parallelism import BatchPlan
from paretune.studies.definition.file import full_name
from paretune.studies.definition.space import Point, make_spec
from paretune.studies.sampler.quality import (
    CATEGORY,
    LEAST_SHARE,
    OF_CLUSTER,
    OF_PLAN,
    Axis,
    Hypothesis,
    Part,
    Surface,
    are_numbers,
    quality_keys,
    scaled,
)
from paretune.studies.trial_status import TrialStatus

PROBE = "probe_steps"
N_VALUES = 7  # how many values of a range are tried; see `_grid_values` for exceptions
MOST_CANDIDATES = 5000
FREE_USD_PER_S = 1e-6  # assumed for a price of 0; the lowest price of SageMaker is 30 times as high
_DEFAULT_ROWS = 10_000.0  # assumed for a data set of unknown size


@dataclass(frozen=True, eq=False)
class Candidate:
    """One job with the parameters of a point: a full training run, or a probe, which ends after a few steps."""

    point: Point
    spec: JobSpec
    plan: BatchPlan
    is_probe: bool

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """A hashable key, the same for two candidates that have the same parameters and are both probes or both not."""
        return (*sorted(self.point.items()), self.is_probe)

    @cached_property
    def footprint(self) -> Footprint:
        """The memory that the job needs, and that its devices have."""
        return Footprint.of(self.spec, self.plan)


class Space:
    """The candidates of a study, and the inputs of the models for them.

    Args:
        job: parameters that all jobs share.
        searched: the distribution of each searched parameter, by name.
        rows: training rows of the whole data set, or None if unknown.
        price_of: returns the price of a job in dollars per second.

    Raises:
        BadInput: no point makes a valid job. It has the faults of the last point that was tried.
    """

    def __init__(
        self,
        job: Mapping[str, Any],
        searched: Mapping[str, BaseDistribution],
        rows: float | None,
        price_of: Callable[[JobSpec], float] = lambda spec: 1.0,
    ) -> None:
        self._job, self.searched, self.rows, self._price_of = job, searched, rows, price_of
        self._jobs: dict[tuple[Any, ...], Candidate | None] = {}
        self._terms: dict[float | None, Terms] = {}
        self._full = {name: full_name(job, name) for name in searched}  # full names, such as those of script arguments
        self._values = {
            name: _grid_values(distribution, is_batch="batch" in effects_of(JobSpec, self._full[name]))
            for name, distribution in searched.items()
        }
        self._fault: BadInput | None = None  # why the last invalid point is not a job
        self.candidates = [made for point in _points(self._values) if (made := self.job(point)) is not None]
        if not self.candidates and self._fault is not None:
            raise self._fault
        self.is_own = self.candidates[0].spec.runs_user_code
        self.types = list(dict.fromkeys(item.spec.instance_type for item in self.candidates))
        counts = [item.spec.instance_count for item in self.candidates]
        self.fewest, self.most = min(counts), max(counts)
        self.own = {} if self.is_own else own_space(job)
        modeled = {"instance_type"} if self.is_own else OF_CLUSTER | OF_PLAN
        further = {name: {*effects_of(JobSpec, self._full[name])} for name in searched if name not in modeled}
        self._seconds_names = [name for name, of in further.items() if self.is_own or of & {"seconds", "memory"}]

    def job(self, point: Point, *, is_probe: bool = False) -> Candidate | None:
        """Return the job at a point; None if it is not a valid job, for example if devices cannot share its batch."""
        key = (*point.items(), is_probe)
        if key not in self._jobs:
            try:
                spec = make_spec(self._job, {self._full[name]: value for name, value in point.items()})
                spec = spec.replace(probe_steps=PROBE_STEPS) if is_probe else spec
                self._jobs[key] = Candidate(dict(point), spec, spec.plan(), is_probe)
            except BadInput as fault:
                self._jobs[key], self._fault = None, fault
        return self._jobs[key]

    def price_of(self, spec: JobSpec) -> float:
        """Return the price of a job in dollars per second; `FREE_USD_PER_S` if it is free.

        So all jobs cost something, and gains per dollar and ratios of dollars exist.
        """
        return self._price_of(spec) or FREE_USD_PER_S

    @cached_property
    def keys(self) -> np.ndarray:
        """Inputs of the quality model for all candidates."""
        return self.quality_keys(self.candidates)

    @property
    def terms(self) -> "Terms":
        """Inputs of the model of seconds for all candidates."""
        if self.rows not in self._terms:
            self._terms[self.rows] = Terms.of(self, self.candidates)
        return self._terms[self.rows]

    def n_steps(self, job: Candidate) -> float:
        """Return the number of optimizer steps of a full training run; 1 for the user's own training code."""
        rows = float(job.spec.max_train_samples or self.rows or _DEFAULT_ROWS) * job.spec.num_train_epochs
        return 1.0 if self.is_own else math.ceil(rows / job.plan.global_batch_size)

    def quality_keys(self, jobs: Sequence[Candidate]) -> np.ndarray:
        """Return the inputs of the quality model for N jobs, shape (N, 4 + D), see `quality.quality_keys`."""
        axes = {
            name: Axis(values=values, is_log=bool(getattr(self.searched[name], "log", False)), name=self._full[name])
            for name, values in self._values.items()
        }
        specs, plans, points = [job.spec for job in jobs], [job.plan for job in jobs], [job.point for job in jobs]
        return quality_keys(specs, plans, points, axes, is_own=self.is_own)

    @cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """All searched parameters of all candidates as columns, and the index of each column's parameter.

        Shapes (N, D) and (D,). Numbers are scaled to 0 to 1. Two different categories are 1 apart.
        """
        return self.axes_of(self.candidates), np.repeat(
            range(len(self.searched)), [1 if are_numbers(values) else len(values) for values in self._values.values()]
        )

    def axes_of(self, jobs: Sequence[Candidate]) -> np.ndarray:
        """Return all searched parameters of any jobs, scaled as in `axes`, shape (N, D)."""
        columns = [np.empty((len(jobs), 0))]
        for name, values in self._values.items():
            column = self._scaled(jobs, [name])
            columns.append(column if are_numbers(values) else column / (math.sqrt(2.0) * CATEGORY))
        return np.hstack(columns)

    @cached_property
    def counts(self) -> dict[str, tuple[float, int]]:
        """Searched positive integers that are assumed to set how long the user's own training code runs, by name.

        Each maps to its smallest value and a sign: 1 if larger values take longer, or -1 for a batch size, because
        larger batches take fewer steps. Seeds and numbers that change the price of the cluster are left out.
        """
        counts = dict[str, tuple[float, int]]()
        for name, values in self._values.items() if self.is_own else ():
            is_whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
            if not is_whole or min(values) <= 0 or "seed" in name.lower():
                continue
            ends = [self.job({**self.candidates[0].point, name: value}) for value in (min(values), max(values))]
            if len({self.price_of(job.spec) for job in ends if job is not None}) == 1:
                counts[name] = float(min(values)), -1 if "batch" in name.lower() else 1
        return counts

    def seconds_keys(self, jobs: Sequence[Candidate]) -> np.ndarray:
        """Return the inputs of the effects on the seconds of a step, shape (N, T + D).

        The first T columns are 1 for the job's instance type and 0 for others. Then comes the logarithm of the number
        of instances, scaled to 0 to 1, unless it does not vary or the training code is the user's own. The other
        columns are the further parameters, see `scaled`.
        """
        columns = [np.eye(len(self.types))[[self.types.index(job.spec.instance_type) for job in jobs]]]
        if self.most > self.fewest and not self.is_own:
            counts = np.array([job.spec.instance_count for job in jobs], dtype=float)
            columns.append(np.log(counts / self.fewest)[:, None] / math.log(self.most / self.fewest))
        return np.hstack([*columns, self._scaled(jobs, self._seconds_names)])

    def changed_seconds(self, job: Candidate) -> list[dict[str, Value]]:
        """Return points that differ from a job's in one further parameter that may change its seconds.

        For a parameter with categories, there is a point for each other category; for one with numbers, a point for the
        lowest and the highest number.
        """
        points: list[dict[str, Value]] = []
        for name in self._seconds_names:
            values = self._values[name]
            others = [min(values), max(values)] if are_numbers(values) else values
            points += [{**job.point, name: value} for value in others if value != job.point[name]]
        return points

    def _scaled(self, jobs: Sequence[Candidate], names: Sequence[str]) -> np.ndarray:
        """Return the columns of these searched parameters for N jobs, shape (N, D), see `scaled`."""
        columns = [np.empty((len(jobs), 0))]
        for name in names:
            is_log = bool(getattr(self.searched[name], "log", False))
            columns.append(scaled([job.point[name] for job in jobs], self._values[name], is_log=is_log))
        return np.hstack(columns)


def own_space(job: Mapping[str, Any]) -> dict[str, IntDistribution]:
    """Return the distribution of `probe_steps`, which the sampler itself sets; 0 means a full training run.

    Empty for the user's own training code, which cannot run as a probe.
    """
    return {} if "entry_script" in job or "project" in job else {PROBE: IntDistribution(0, PROBE_STEPS)}


def _points(values: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    """Return all combinations of values, or a random sample if there are more than MOST_CANDIDATES.

    The sample is the same each time.
    """
    lengths = [len(column) for column in values.values()]
    size = math.prod(lengths)
    if size <= MOST_CANDIDATES:
        return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]
    rng = np.random.default_rng(0)  # nine ranges have more combinations than fit in memory
    drawn = {tuple(int(k) for k in rng.integers(lengths)) for _ in range(MOST_CANDIDATES)}
    return [{n: column[k] for (n, column), k in zip(values.items(), place, strict=True)} for place in sorted(drawn)]


def _grid_values(distribution: BaseDistribution, *, is_batch: bool) -> list[Any]:
    """Return the values of a parameter that the search tries.

    For a list, these are all values. For a range of batch sizes, or of whole numbers on a log scale, if its step is 1,
    they are its ends and the powers of two between them, because clusters can share only round batches. For any other
    range, they are N_VALUES evenly spaced values, or on a log scale one per octave if that is more, rounded to the
    range's step or to four digits, without duplicates. The noise of runs would hide differences between closer values.
    """
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    if isinstance(low, int) and isinstance(high, int) and step == 1 and (is_batch or distribution.log):
        return sorted({low, high, *(2**power for power in range(low.bit_length(), high.bit_length()))})
    octaves = math.ceil(math.log2(high / low)) + 1 if distribution.log else 0
    values = (np.geomspace if distribution.log else np.linspace)(low, high, max(N_VALUES, octaves)).clip(low, high)
    if step:
        values = low + step * np.round((values - low) / step)
    else:  # users retype them: 0.0005, not 0.0004999999999999999
        values = np.array([float(f"{value:.4g}") for value in values]).clip(low, high)
    return sorted({type(low)(value) for value in values})


OUTCOME, SECONDS, STARTUP_S, STEP_S = "outcome", "seconds", "startup_seconds", "step_seconds"
ROWS, BASELINE = "train_rows", "baseline"
"""User attributes of a trial: how it ended if it failed; seconds that were billed, that were spent outside the
training, and that one optimizer step took; training rows of the whole data set; quality of a model that predicts one
class for every row."""
_IN_SECONDS = (BILLABLE_SECONDS, JOB_SECONDS, TRAIN_SECONDS)
CLAIM = "paretune:job"  # system attribute: parameters of the job that a trial has claimed, until it has them itself


@dataclass(frozen=True)
class Row:
    """One job and its outcome so far."""

    job: Candidate
    status: TrialStatus
    seconds: float
    is_timed: bool  # whether a time was reported; if not, seconds are dollars (in any unit) divided by the price
    startup_s: float | None
    step_s: float | None
    values: tuple[float, ...] | None  # of all objectives; None unless the job was trained to the end
    baseline: float | None  # quality of a model that predicts one class for every row

    @property
    def is_running(self) -> bool:
        """Whether the job has not ended."""
        return self.status is TrialStatus.RUNNING

    @property
    def is_training(self) -> bool:
        """Whether the job is running or has completed, and is a full training run, which measures quality."""
        return not self.job.is_probe and (self.is_running or self.status is TrialStatus.COMPLETED)


def rows_of(trials: Iterable[FrozenTrial], space: Space, objectives: Sequence[str]) -> list[Row]:
    """Return a row for each trial, and set `space.rows`, if it is unknown, to the median of the trials' attribute ROWS.

    A trial that does not have its parameters yet counts if it has claimed a job. Trials are left out if they lack a
    searched parameter, are in the queue or make no valid job, or if their outcome says nothing about their point. A
    trial with an infinite objective has diverged.

    Seconds come from the attribute SECONDS, otherwise from an objective in seconds, otherwise from dollars and the
    price, otherwise from the time between the trial's start and end.
    """
    trials, rows = list(trials), []
    counted = [trial.user_attrs[ROWS] for trial in trials if ROWS in trial.user_attrs]
    space.rows = space.rows or (statistics.median(counted) if counted else None)
    for trial in trials:
        is_over, attributes = trial.state.is_finished(), trial.user_attrs
        params = trial.params if is_over else {**trial.system_attrs.get(CLAIM, {}), **trial.params}
        is_probe = params.get(PROBE, 0) > 0
        is_fine = trial.state == TrialState.COMPLETE or (is_probe and trial.state == TrialState.PRUNED)
        outcome = attributes.get(OUTCOME, "completed" if is_fine else "failed").upper()
        status = TrialStatus.__members__.get(outcome, TrialStatus.FAILED) if is_over else TrialStatus.RUNNING
        if status.is_retryable or trial.state == TrialState.WAITING or not space.searched.keys() <= params.keys():
            continue
        point = {name: params[name] for name in space.searched}
        if (job := space.job(point, is_probe=is_probe)) is not None:
            values = tuple(trial.values) if trial.state == TrialState.COMPLETE and not job.is_probe else None
            measured = {n: v for n, v in zip(objectives, values or (), strict=False) if math.isfinite(v)}
            if values is not None and not all(map(math.isfinite, values)):
                values, status = None, TrialStatus.DIVERGED
            timed = (
                [attributes[SECONDS]]
                if SECONDS in attributes
                else [measured[name] for name in _IN_SECONDS if name in measured]
            )
            if not timed and COST_USD in measured and (usd_per_s := space.price_of(job.spec)) != FREE_USD_PER_S:
                seconds = measured[COST_USD] / usd_per_s
            else:
                timed = timed or [trial.duration.total_seconds() if trial.duration is not None else 0.0]
                seconds = timed[0]
            startup_s, step_s, baseline = (attributes.get(name) for name in (STARTUP_S, STEP_S, BASELINE))
            rows.append(Row(job, status, max(seconds, 0.0), bool(timed), startup_s, step_s, values, baseline))
    return rows


_NOISE, _EFFECT = 0.05, 1.0  # standard deviations of log seconds: of the residuals, and of an effect before any run
_USUAL = np.array([0.03, 0.01, 0.02])  # seconds assumed before any run: latency, row, exchange
_USUAL_START_S, _USUAL_OWN_S = 120.0, 300.0  # the same for the startup, and for a job of the user's own training code
_OWN_POWER = 0.5
"""Before any run, the dollars of the user's own training are assumed to grow with this power of its cluster's price per
second and of its size (see `Terms.size`): a cluster at twice the price is faster, but not twice as fast."""
_BEYOND = 1.25  # a job that was cut off is assumed to need this multiple of its billed seconds
_FITS = 20  # Gauss-Newton steps to the posterior mode
_COMMON, _OF_TYPE = np.full(3, 1.5), np.array([0.7, 1.0, 1.0])
"""Prior standard deviations of the logarithms of latency, row and exchange: of the part that all types share, and of
each type's difference from it. They matter because a single run does not show which of the three took the time."""
# Hypotheses about log dollars of the user's own training: standard deviations of the smooth term and of a run's noise.
_BENDS, _SCATTERS = (0.01, 0.3, 0.8), (0.02, 0.1, 0.3)
_LENGTH = 0.5  # length scale of the smooth term, as a share of the span of a parameter
_LEVEL = 2.0  # standard deviation of the level of log dollars of the user's own training


@dataclass(frozen=True, eq=False)
class Terms:
    """The inputs of the model of seconds for N jobs.

    Attributes:
        types: index of the instance type, shape (N,).
        factors: how many times a step takes the latency, the row and the exchange, shape (N, 3).
        effects: inputs of the effects, shape (N, T + D), see `Space.seconds_keys`.
        steps: optimizer steps, shape (N,).
        usd_per_s: price in dollars per second, shape (N,).
        size: for the user's own training, the product of the parameters in `Space.counts`, each relative to its
            smallest value, with batches as divisors; shape (N,). Otherwise 1.
    """

    types: np.ndarray
    factors: np.ndarray
    effects: np.ndarray
    steps: np.ndarray
    usd_per_s: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, space: Space, jobs: Sequence[Candidate]) -> "Terms":
        """Return the inputs for these jobs."""
        effects = space.seconds_keys(jobs)
        types = effects[:, : len(space.types)].argmax(axis=1)
        times = [job.plan.gradient_accumulation_steps for job in jobs]
        batches = [job.plan.per_device_train_batch_size for job in jobs]
        further = [job.spec.instance_count - space.fewest for job in jobs]
        factors = np.column_stack([times, np.multiply(times, batches), further])
        steps = [float(job.spec.probe_steps or space.n_steps(job)) for job in jobs]
        usd_per_s = [space.price_of(job.spec) for job in jobs]
        counts = space.counts.items()
        size = [
            math.prod(max(float(job.point[name]) / least, LEAST_SHARE) ** sign for name, (least, sign) in counts)
            for job in jobs
        ]
        return cls(types, factors.astype(float), effects, np.array(steps), np.array(usd_per_s), np.array(size))

    def of_those(self, chosen: np.ndarray) -> "Terms":
        """Return the inputs for the jobs where `chosen`, shape (N,), is true."""
        return Terms(**{name: column[chosen] for name, column in vars(self).items()})


class SecondsModel:
    """Predicts billed seconds from the outcomes of jobs.

    Attributes:
        measured_startup_s: billed seconds outside the training: the median of those measured, or 0 if there are none.
        startup_s: the same, but an assumed value if there are none.
        is_seen: whether a completed job has measured the speed of each instance type, shape (T,).
    """

    def __init__(self, space: Space, rows: Sequence[Row]) -> None:
        self._space = space
        startups = [row.startup_s for row in rows if row.startup_s is not None]
        # Users rarely limit jobs to less than twice the startup, or twice what their own training takes.
        half_s = min(30.0 * job.spec.max_runtime_minutes for job in space.candidates)
        usual_s, self._own_s = min(_USUAL_START_S, half_s), min(_USUAL_OWN_S, half_s)
        self.measured_startup_s = float(np.median(startups)) if startups else 0.0
        self.startup_s = self.measured_startup_s if startups else usual_s
        ran = [row for row in rows if row.status is TrialStatus.COMPLETED and row.seconds > 0]
        cut_off = [row for row in rows if row.status is TrialStatus.CUT_OFF and (space.is_own or not row.job.is_probe)]
        terms = Terms.of(space, [row.job for row in [*ran, *cut_off]])
        billed = np.append([row.seconds for row in ran], [_BEYOND * row.seconds for row in cut_off])
        self.is_seen = np.isin(range(len(space.types)), terms.types[: len(ran)])
        if space.is_own:
            self._usual_usd_per_s = float(np.median(space.terms.usd_per_s))
            self._usual_size = float(np.median(space.terms.size))
            usd = np.log(np.maximum(billed, 1e-3) * terms.usd_per_s / (self._own_s * self._usual_usd(terms)))
            self._own = Surface(terms.effects, usd, _own_hypotheses(*terms.effects.shape))
            return
        step_s = np.maximum(billed - self.startup_s, 0.05 * billed) / terms.steps
        measured_s = np.array([row.step_s or math.nan for row in ran] + [math.nan] * len(cut_off))
        step_s = np.where(np.isnan(measured_s), step_s, measured_s)
        is_used = np.arange(len(step_s)) < len(ran)
        self._fit(terms.of_those(is_used), np.log(step_s[is_used]))
        if cut_off:  # a cut-off job corrects the fit only if the fit predicts less than the job's assumed seconds
            is_used |= self.predict(terms)[0] < billed
            self._fit(terms.of_those(is_used), np.log(step_s[is_used]))

    def predict(self, terms: Terms) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected seconds of N jobs and the standard deviations of their logarithms, each of shape (N,).

        The expected seconds are medians. The startup is treated as certain.
        """
        if self._space.is_own:
            mean, deviation = self._own.predict(terms.effects)
            return self._own_s * self._usual_usd(terms) * np.exp(mean) / terms.usd_per_s, deviation
        log_step_s, slopes = self._log_step_s(terms, self._logs)
        deviation = np.sqrt(np.einsum("ij,jk,ik->i", slopes, self._covariance, slopes))
        return self.startup_s + terms.steps * np.exp(log_step_s), deviation

    def _usual_usd(self, terms: Terms) -> np.ndarray:
        """Return the dollars assumed before any run for the user's own training, divided by `_own_s`, shape (N,)."""
        grown = terms.size / self._usual_size * terms.usd_per_s / self._usual_usd_per_s
        return np.asarray(self._usual_usd_per_s * grown**_OWN_POWER)

    def _fit(self, terms: Terms, log_step_s: np.ndarray) -> None:
        """Find the posterior mode of the logarithms by the Gauss-Newton method, and their covariance there.

        The L logarithms are those of the latency, row and exchange that all types share, then each type's differences
        from these three, then those of the effects.
        """
        n_types, n_effects = len(self.is_seen), terms.effects.shape[1] - len(self.is_seen)
        usual = np.concatenate([np.log(_USUAL), np.zeros(3 * n_types + n_effects)])
        spread = np.concatenate([_COMMON, np.tile(_OF_TYPE, n_types), np.full(n_effects, _EFFECT)])
        logs, damping = usual, 1.0

        def misfit(logs: np.ndarray) -> float:
            missed = (self._log_step_s(terms, logs)[0] - log_step_s) / _NOISE
            return float((missed**2).sum() + (((logs - usual) / spread) ** 2).sum())

        for _ in range(_FITS):
            expected, slopes = self._log_step_s(terms, logs)
            precision = np.diag(spread**-2) + slopes.T @ slopes / _NOISE**2
            pull = slopes.T @ (log_step_s - expected) / _NOISE**2 - (logs - usual) / spread**2
            moved = logs + damping * np.linalg.solve(precision, pull)
            logs, damping = (moved, min(1.0, 2.0 * damping)) if misfit(moved) <= misfit(logs) else (logs, damping / 4.0)
        slopes = self._log_step_s(terms, logs)[1]
        self._logs = logs
        self._covariance = np.linalg.inv(np.diag(spread**-2) + slopes.T @ slopes / _NOISE**2)

    def _log_step_s(self, terms: Terms, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the log seconds of a step of N jobs, shape (N,), and their derivatives, shape (N, L).

        The derivatives are with respect to the L logarithms in `logs`, see `_fit`.
        """
        n_types = len(self.is_seen)
        common, of_type, effects = np.split(logs, [3, 3 + 3 * n_types])
        parts = terms.factors * np.exp(common + of_type.reshape(n_types, 3)[terms.types])
        whole = parts.sum(axis=1)
        shares = parts / whole[:, None]
        of_types = (terms.effects[:, :n_types, None] * shares[:, None, :]).reshape(len(shares), 3 * n_types)
        further = terms.effects[:, n_types:]
        return np.log(whole) + further @ effects, np.hstack([shares, of_types, further])


def _own_hypotheses(n_runs: int, n_keys: int) -> Iterator[Hypothesis]:
    """Yield hypotheses about the log ratio of the dollars of the user's own training to those assumed before any run.

    Each hypothesis models the ratio as a sum of a level, linear effects, a smooth term and noise. See `_OWN_POWER` for
    the assumed dollars.
    """
    level, linear, smooth = Part(), Part(is_linear=True), Part(lengths=np.full(n_keys, _LENGTH))
    for bend, noise in itertools.product(_BENDS, _SCATTERS):
        yield {level: _LEVEL**2, linear: _EFFECT**2, smooth: bend**2}, np.full(n_runs, noise), 0.0
