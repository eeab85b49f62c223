"""The candidates of a search, what the models need to know of them, and the outcomes of earlier jobs.

If there are at most `MOST_LISTED` combinations of values, all are candidates. Otherwise each choice has its own: a
fresh random sample, and the jobs that differ from one on the front in a single parameter.

In shapes, N is the number of jobs.
"""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from paretune.core.errors import BadInput
from paretune.core.noise import Z80
from paretune.estimating.architecture import well_known
from paretune.estimating.estimator import Estimate, Estimator
from paretune.estimating.evidence import Evidence
from paretune.estimating.memory import Footprint
from paretune.estimating.workload import PROBE_STEPS
from paretune.specification.declaration import Value, effects_of
from paretune.specification.job import JobSpec
from paretune.specification.metrics import BILLABLE_SECONDS, COST_USD, JOB_SECONDS, TRAIN_SECONDS
from paretune.specification.parallelism import BatchPlan
from paretune.studies.definition.file import full_name
from paretune.studies.definition.space import Point, make_spec
from paretune.studies.sampler.process import Axes, Axis, Points
from paretune.studies.sampler.quality import quality_axes, quality_points, quality_settings
from paretune.studies.trial_status import TrialStatus

PROBE = "probe_steps"
N_VALUES = 7  # how many values of a range are tried; see `_grid_values` for exceptions
MOST_LISTED, FRESH = 2000, 400
"""Up to `MOST_LISTED` combinations are all candidates. With more, each choice draws `FRESH` of them."""
_CLUSTER = {"instance_type", "instance_count", "per_device_train_batch_size", "gradient_accumulation_steps"}
_PLANNED = {"global_batch_size", "learning_rate", "num_train_epochs"}
FREE_USD_PER_S = 1e-6  # assumed for a price of 0; the lowest price of SageMaker is 30 times as high
_DEFAULT_ROWS = 10_000.0  # assumed for a data set of unknown size
# Without an estimate: seconds assumed for the latency of a micro-batch, a row, and the exchange with another instance.
_LATENCY_S, _ROW_S, _EXCHANGE_S = 0.03, 0.01, 0.02


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

    @cached_property
    def quality_settings(self) -> Mapping[str, Any]:
        """The settings that the quality of the job depends on."""
        return quality_settings(self.spec, self.plan, self.point)


Estimated = Callable[[Candidate], tuple[float, float] | None]
"""Returns the expected seconds of a job and the upper end of their interval (80 %), or None if they are unknown."""


def nothing_known(job: Candidate) -> None:
    """Return None: nothing is known of a job before it has run."""


class Space:
    """The candidates of a study, and the inputs of the models for them.

    Args:
        job: parameters that all jobs share.
        searched: the distribution of each searched parameter, by name.
        rows: training rows of the whole data set, or None if unknown.
        price_of: returns the price of a job in dollars per second.
        estimated: returns the expected seconds of a job of the user's own code and the upper end of their interval
            (80 %), or None if nothing is known of them before it has run.

    Raises:
        BadInput: no point makes a valid job. It has the faults of the last point that was tried.

    Attributes:
        candidates: all candidates, or a sample of them if they are not listed.
        axes: the searched parameters.
        quality_axes: the parameters that the quality of a job depends on.
    """

    def __init__(
        self,
        job: Mapping[str, Any],
        searched: Mapping[str, BaseDistribution],
        rows: float | None,
        price_of: Callable[[JobSpec], float] = lambda spec: 1.0,
        estimated: Estimated = nothing_known,
    ) -> None:
        self._estimated, self._seconds_of_own = estimated, dict[Any, tuple[float, float] | None]()
        self._job, self.searched, self.rows, self._price_of = job, searched, rows, price_of
        self._jobs: dict[tuple[Any, ...], Candidate | None] = {}
        self._full = {name: full_name(job, name) for name in searched}  # full names, such as those of script arguments
        self._values = {
            name: _grid_values(distribution, is_batch="batch" in effects_of(JobSpec, self._full[name]))
            for name, distribution in searched.items()
        }
        self._fault: BadInput | None = None  # why the last invalid point is not a job
        self.is_listed = math.prod(map(len, self._values.values())) <= MOST_LISTED
        points = self._all_points() if self.is_listed else self._drawn(np.random.default_rng(0), MOST_LISTED)
        self.candidates = [made for point in points if (made := self.job(point)) is not None]
        if not self.candidates and self._fault is not None:
            raise self._fault
        self.runs_user_code = self.candidates[0].spec.runs_user_code
        self.types = list(dict.fromkeys(item.spec.instance_type for item in self.candidates))
        is_log = {name: bool(getattr(each, "log", False)) for name, each in searched.items()}
        axes = {name: Axis(values, is_log[name], self._full[name]) for name, values in self._values.items()}
        self.axes, self.quality_axes = Axes.of(axes), quality_axes(axes, runs_user_code=self.runs_user_code)
        further = [name for name in searched if name not in _CLUSTER | _PLANNED]
        self._of_seconds = [n for n in further if {*effects_of(JobSpec, self._full[n])} & {"seconds", "memory"}]
        self._estimator = Estimator(Evidence())
        self._estimates: dict[tuple[Any, ...], Estimate | None] = {}

    @cached_property
    def listed(self) -> "Jobs":
        """The jobs of `candidates`."""
        return Jobs(self, self.candidates)

    def jobs_near(self, best: Sequence[Point], draw: int) -> "Jobs":
        """Return the candidates of a choice: all of them if they are listed; otherwise a fresh random sample.

        The sample depends on the number `draw`. It includes the jobs that differ from one of the `best` points in a
        single parameter.
        """
        if self.is_listed:
            return self.listed
        points = self._drawn(np.random.default_rng(draw), FRESH)
        points += [{**near, name: v} for near in best for name, column in self._values.items() for v in column]
        points += [{**near, name: v} for near in best for name in self.searched for v in self._between(name, near)]
        made = {job.identity: job for point in points if (job := self._made(point, is_probe=False)) is not None}
        return Jobs(self, [*made.values()] or self.candidates)

    def job(self, point: Point, *, is_probe: bool = False) -> Candidate | None:
        """Return the job at a point; None if it is not a valid job, for example if devices cannot share its batch."""
        key = (*point.items(), is_probe)
        if key not in self._jobs:
            self._jobs[key] = self._made(point, is_probe=is_probe)
        return self._jobs[key]

    def price_of(self, spec: JobSpec) -> float:
        """Return the price of a job in dollars per second; `FREE_USD_PER_S` if it is free.

        So all jobs cost something, and gains per dollar and ratios of dollars exist.
        """
        return self._price_of(spec) or FREE_USD_PER_S

    def n_steps(self, job: Candidate) -> float:
        """Return the number of optimizer steps of a full training run; 1 for the user's own training code."""
        rows = float(job.spec.max_train_samples or self.rows or _DEFAULT_ROWS) * job.spec.num_train_epochs
        return 1.0 if self.runs_user_code else math.ceil(rows / job.plan.global_batch_size)

    def seconds_settings(self, job: Candidate) -> dict[str, Any]:
        """Return what the seconds of a step depend on, by name; for the user's own training code, see `axes`."""
        if self.runs_user_code:
            return dict(job.point)
        return {
            "instance_type": job.spec.instance_type,
            "instances": math.log2(job.spec.instance_count),
            "batch": math.log2(job.plan.per_device_train_batch_size),
            "accumulation": math.log2(job.plan.gradient_accumulation_steps),
            **{name: job.point[name] for name in self._of_seconds},
        }

    def speed_key(self, job: Candidate) -> tuple[Any, ...]:
        """Return a hashable key, the same for jobs whose steps take equally long."""
        return tuple(self.seconds_settings(job).values())

    @cached_property
    def seconds_axes(self) -> Axes:
        """The parameters that the seconds of a step depend on."""
        if self.runs_user_code:
            return self.axes
        settings = [self.seconds_settings(each) for each in self.candidates]
        return Axes.of({name: Axis(sorted({each[name] for each in settings}, key=_key)) for name in settings[0]})

    def estimate_of(self, job: Candidate) -> Estimate | None:
        """Return the estimate of paretune's own training from data sheets; None if its model is unknown."""
        if self.runs_user_code or (built := well_known(job.spec.model, job.spec.task)) is None:
            return None
        key = self.speed_key(job)
        if key not in self._estimates:
            facts = {"train_rows": self.rows or _DEFAULT_ROWS}
            spec = job.spec.replace(probe_steps=None) if job.is_probe else job.spec
            self._estimates[key] = self._estimator.estimate(spec, built, None, plan=job.plan, facts=facts)
        return self._estimates[key]

    @cached_property
    def high_of_first_s(self) -> tuple[float, float] | None:
        """Estimated seconds of the first candidate and the upper end of their interval; None if unknown."""
        first = self.candidates[0]
        if self.runs_user_code:
            return self._of_own(first)
        estimate = self.estimate_of(first)
        return None if estimate is None else (estimate.time.seconds, estimate.time.seconds_high)

    def _of_own(self, job: Candidate) -> tuple[float, float] | None:
        if job.identity not in self._seconds_of_own:
            self._seconds_of_own[job.identity] = self._estimated(job)
        return self._seconds_of_own[job.identity]

    def usual_seconds(self, job: Candidate) -> float:
        """Return the seconds that are believed before any run: of a step, or of a whole job of the user's own code."""
        if self.runs_user_code:
            known = self._of_own(job) or self.high_of_first_s
            return 1.0 if known is None else known[0]
        if (estimate := self.estimate_of(job)) is not None and estimate.time.step_seconds > 0:
            return estimate.time.step_seconds
        of_micro_batch = _LATENCY_S + job.plan.per_device_train_batch_size * _ROW_S
        return job.plan.gradient_accumulation_steps * of_micro_batch + _EXCHANGE_S * (job.spec.instance_count - 1)

    def _made(self, point: Point, *, is_probe: bool) -> Candidate | None:
        try:
            spec = make_spec(self._job, {self._full[name]: value for name, value in point.items()})
            spec = spec.replace(probe_steps=PROBE_STEPS) if is_probe else spec
            return Candidate(dict(point), spec, spec.plan(), is_probe)
        except BadInput as fault:
            self._fault = fault
            return None

    def _all_points(self) -> list[dict[str, Value]]:
        columns = itertools.product(*self._values.values())
        return [dict(zip(self._values, point, strict=True)) for point in columns]

    def _drawn(self, random: np.random.Generator, count: int) -> list[dict[str, Value]]:
        columns = [[column[i] for i in random.integers(len(column), size=count)] for column in self._values.values()]
        return [dict(zip(self._values, point, strict=True)) for point in zip(*columns, strict=True)]

    def _between(self, name: str, near: Point) -> list[Value]:
        """Return the middles between a point's value in a range and the next values of the grid."""
        distribution, values = self.searched[name], self._values[name]
        if isinstance(distribution, CategoricalDistribution) or not isinstance(values[0], float):
            return []
        below, above = [v for v in values if v < near[name]][-1:], [v for v in values if v > near[name]][:1]
        is_log = bool(getattr(distribution, "log", False))
        return [float(f"{math.sqrt(near[name] * v) if is_log else (near[name] + v) / 2:.4g}") for v in [*below, *above]]


class Jobs:
    """Some jobs, with the inputs of the models for them. All arrays have a row for each job."""

    def __init__(self, space: Space, jobs: Sequence[Candidate]) -> None:
        self._space, self.jobs = space, jobs

    def __len__(self) -> int:
        return len(self.jobs)

    @cached_property
    def keys(self) -> np.ndarray:
        """All searched parameters, see `Space.axes`."""
        return self._space.axes.keys([job.point for job in self.jobs])

    @cached_property
    def quality(self) -> Points:
        """Inputs of the model of quality."""
        return quality_points(self._space.quality_axes, [job.quality_settings for job in self.jobs])

    @cached_property
    def usd_per_s(self) -> np.ndarray:
        """Price in dollars per second."""
        return np.array([self._space.price_of(job.spec) for job in self.jobs])

    @cached_property
    def limits_s(self) -> np.ndarray:
        """Time limit in seconds; infinite with force=limit, whose user expects the jobs to end in time."""
        limits_s = [math.inf if "limit" in job.spec.force else 60.0 * job.spec.max_runtime_minutes for job in self.jobs]
        return np.array(limits_s)

    @cached_property
    def usual_seconds(self) -> np.ndarray:
        """Seconds that are believed before any run, see `Space.usual_seconds`."""
        return np.array([self._space.usual_seconds(job) for job in self.jobs])

    @cached_property
    def seconds_keys(self) -> np.ndarray:
        """Keys of the model of seconds, see `Space.seconds_axes`."""
        if self._space.runs_user_code:
            return self.keys
        return self._space.seconds_axes.keys([self._space.seconds_settings(job) for job in self.jobs])

    @cached_property
    def types(self) -> np.ndarray:
        """Index of the instance type."""
        return np.array([self._space.types.index(job.spec.instance_type) for job in self.jobs], dtype=int)

    @cached_property
    def fits_probability(self) -> np.ndarray:
        """Probability that the job fits in memory, from its estimate; 1 if there is none."""
        return np.array([_fits_probability(self._space.estimate_of(job)) for job in self.jobs])

    @property
    def steps(self) -> np.ndarray:
        """Optimizer steps; depends on the number of rows, which may become known."""
        return np.array([float(job.spec.probe_steps or self._space.n_steps(job)) for job in self.jobs])


def _key(value: Any) -> tuple[str, Any]:
    """Return a sort key for values of different types."""
    return ("", value) if isinstance(value, int | float) else (str(value), 0)


def _fits_probability(estimate: Estimate | None) -> float:
    if estimate is None or (peak := estimate.memory) is None or not math.isfinite(peak.usable_gib):
        return 1.0
    deviation = math.log(peak.gib_high / peak.gib) / Z80
    return 0.5 * math.erfc(-math.log((peak.usable_gib + peak.unsure_gib) / peak.gib) / deviation / math.sqrt(2.0))


def own_space(job: Mapping[str, Any]) -> dict[str, IntDistribution]:
    """Return the distribution of `probe_steps`, which the sampler itself sets; 0 means a full training run.

    Empty for the user's own training code, which cannot run as a probe.
    """
    return {} if "entry_script" in job or "project" in job else {PROBE: IntDistribution(0, PROBE_STEPS)}


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
    unused: frozenset[str] = frozenset()  # searched parameters that the trial did not suggest, so they have no effect

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

    A trial that does not have its parameters yet counts if it has claimed a job. A parameter that an ended trial never
    suggested has no effect on it: its job has the value that the trial claimed, and `Row.unused` names the parameter.
    Trials are left out if they are in the queue or make no valid job, or if their outcome says nothing about their
    point. A trial with an infinite objective has diverged.

    Seconds come from the attribute SECONDS, otherwise from an objective in seconds, otherwise from dollars and the
    price, otherwise from the time between the trial's start and end.
    """
    trials, rows = list(trials), []
    counted = [trial.user_attrs[ROWS] for trial in trials if ROWS in trial.user_attrs]
    space.rows = space.rows or (statistics.median(counted) if counted else None)
    for trial in trials:
        is_over, attributes = trial.state.is_finished(), trial.user_attrs
        params = {**trial.system_attrs.get(CLAIM, {}), **trial.params}
        if is_over:  # what was claimed and not suggested did not run as a probe
            params[PROBE] = trial.params.get(PROBE, 0)
        is_probe = params.get(PROBE, 0) > 0
        is_fine = trial.state == TrialState.COMPLETE or (is_probe and trial.state == TrialState.PRUNED)
        outcome = attributes.get(OUTCOME, "completed" if is_fine else "failed").upper()
        status = TrialStatus.__members__.get(outcome, TrialStatus.FAILED) if is_over else TrialStatus.RUNNING
        unused = space.searched.keys() - trial.params.keys() if is_over else set[str]()
        if status.is_retryable or trial.state == TrialState.WAITING or len(unused) == len(space.searched):
            continue
        if not space.searched.keys() <= (trial.params if trial.state == TrialState.FAIL else params).keys():
            continue  # it has no job yet, or it failed before it had all parameters
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
            seconds = max(seconds, 0.0)
            rows.append(Row(job, status, seconds, bool(timed), startup_s, step_s, values, baseline, frozenset(unused)))
    return rows
