"""The jobs that a sampler chooses among, with the numbers that their quality and their seconds depend on.

Quality follows from global batch size, learning rate, epochs and further parameters, wherever a job runs. Seconds
follow from the cluster and the per-device batch. So what a training would reach may be found out on the cheapest
cluster, with accumulated gradients, and how long it takes by a probe of a few steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from paretune.core.errors import BadInput
from paretune.estimating.features import Footprint
from paretune.estimating.workload import PROBE_STEPS
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan
from paretune.specification.parameters import STEP, Value, effects_of
from paretune.studies.definition.space import make_spec
from paretune.studies.sampler.quality import are_numbers, scaled

Point = Mapping[str, Value]
ACCUMULATION, PROBE = "gradient_accumulation_steps", "probe_steps"
N_VALUES = 13  # of a range, on the grid of candidates
MOST_CANDIDATES = 5000
_CLUSTER = {"instance_type", "instance_count", "spot", "per_device_train_batch_size", ACCUMULATION}
_KNOWN = {"global_batch_size", "learning_rate", "num_train_epochs"}  # whose effect on quality is known in kind
_DEFAULT_ROWS = 10_000.0  # of data that nobody has counted


@dataclass(frozen=True, eq=False)
class Job:
    """One job: a point of the space, perhaps with accumulated gradients, or ended after a few steps."""

    point: Point
    spec: JobSpec
    plan: BatchPlan
    accumulation: int  # times the batch of its point
    is_probe: bool
    changes: Mapping[str, int]  # parameters of its job that differ from its point's

    @cached_property
    def identity(self) -> tuple[Any, ...]:
        """Equal for jobs that show the same."""
        return (*sorted(self.point.items()), self.accumulation, self.is_probe)

    @cached_property
    def footprint(self) -> Footprint:
        """The memory that it needs and has."""
        return Footprint.of(self.spec, self.plan)


class Space:
    """The candidates of a study.

    Args:
        job: parameters that all jobs share, as given.
        searched: parameter to the distribution of its values.
        rows: training rows of the whole data set, or None if nobody has counted them.
    """

    def __init__(self, job: Mapping[str, Any], searched: Mapping[str, BaseDistribution], rows: float | None) -> None:
        self._job, self.searched, self.rows = job, searched, rows
        self._jobs: dict[tuple[Any, ...], Job | None] = {}
        self._values = {name: _grid_values(distribution) for name, distribution in searched.items()}
        self.candidates = [made for point in _points(self._values) if (made := self.job(point)) is not None]
        self.is_own = any(item.spec.runs_own_training for item in self.candidates[:1])
        self.types = list(dict.fromkeys(item.spec.instance_type for item in self.candidates))
        counts = [item.spec.instance_count for item in self.candidates] or [1]
        self.fewest, self.most = min(counts), max(counts)
        self.own = {} if self.is_own else own_space(job, searched)
        known = {"instance_type", "spot"} if self.is_own else _CLUSTER | _KNOWN
        further = {name: {*effects_of(JobSpec, name)} for name in searched if name not in known}
        self._quality_names = [name for name, effects in further.items() if self.is_own or "quality" in effects]
        self._seconds_names = [name for name, effects in further.items() if self.is_own or effects & STEP]

    def job(self, point: Point, accumulation: int = 1, *, is_probe: bool = False) -> Job | None:
        """The job at a point; None if there is none, for example because devices cannot share its batch."""
        key = (*point.items(), accumulation, is_probe)
        if key not in self._jobs:
            try:
                spec = make_spec(self._job, point)
                steps = accumulation * spec.plan().gradient_accumulation_steps
                changes = {PROBE: PROBE_STEPS} if is_probe else {}
                changes |= {ACCUMULATION: steps} if accumulation > 1 else {}
                spec = spec.replace(**changes) if changes else spec
                self._jobs[key] = Job(dict(point), spec, spec.plan(), accumulation, is_probe, changes)
            except BadInput:
                self._jobs[key] = None
        return self._jobs[key]

    def n_steps(self, job: Job) -> float:
        """Optimiser steps of a training; 1 for a training of the user's own."""
        rows = float(job.spec.max_train_samples or self.rows or _DEFAULT_ROWS) * job.spec.num_train_epochs
        return 1.0 if self.is_own else math.ceil(rows / job.plan.global_batch_size)

    def quality_keys(self, jobs: Sequence[Job]) -> np.ndarray:
        """What quality depends on, shape (N, 4 + D): type, log2 global batch, log rate, log epochs, all others."""
        known = np.zeros((len(jobs), 4))
        known[:, 0] = [self.types.index(job.spec.instance_type) for job in jobs]
        if not self.is_own:
            known[:, 1] = [math.log2(job.plan.global_batch_size) for job in jobs]
            known[:, 2] = [math.log(job.plan.learning_rate) for job in jobs]
            known[:, 3] = [math.log(job.spec.num_train_epochs) for job in jobs]
        return np.hstack([known, self._scaled(jobs, self._quality_names)])

    def seconds_keys(self, jobs: Sequence[Job]) -> np.ndarray:
        """What the seconds of a step are multiplied with, shape (N, T + D): ones for the type, all others scaled."""
        types = [self.types.index(job.spec.instance_type) for job in jobs]
        return np.hstack([np.eye(len(self.types))[types], self._scaled(jobs, self._seconds_names)])

    def changed_seconds(self, job: Job) -> list[dict[str, Value]]:
        """Points that differ in one parameter that may cost time: every other text, the other end of numbers."""
        points: list[dict[str, Value]] = []
        for name in self._seconds_names:
            values = self._values[name]
            others = [values[0], values[-1]] if are_numbers(values) else values
            points += [{**job.point, name: value} for value in others if value != job.point[name]]
        return points

    def _scaled(self, jobs: Sequence[Job], names: Sequence[str]) -> np.ndarray:
        columns = [np.empty((len(jobs), 0))]
        for name in names:
            is_log = bool(getattr(self.searched[name], "log", False))
            columns.append(scaled([job.point[name] for job in jobs], self._values[name], is_log=is_log))
        return np.hstack(columns)


def own_space(job: Mapping[str, Any], searched: Mapping[str, BaseDistribution]) -> dict[str, IntDistribution]:
    """Parameters that the sampler sets itself, with their values; the least one changes nothing."""
    if "entry_script" in job or "project" in job:
        return {}
    steps = IntDistribution(1, 4096, log=True)
    accumulates = not {*searched, *job} & {"global_batch_size", ACCUMULATION}
    return {PROBE: IntDistribution(0, PROBE_STEPS)} | ({ACCUMULATION: steps} if accumulates else {})


def _points(values: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    """All combinations, or a sample of them that is the same each time."""
    lengths = [len(column) for column in values.values()]
    size = math.prod(lengths)
    numbers = np.arange(size)
    if size > MOST_CANDIDATES:
        numbers = np.sort(np.random.default_rng(0).choice(size, MOST_CANDIDATES, replace=False))
    places = zip(*np.unravel_index(numbers, lengths), strict=True)
    return [{n: column[k] for (n, column), k in zip(values.items(), place, strict=True)} for place in places]


def _grid_values(distribution: BaseDistribution) -> list[Any]:
    """Every value of a list, or N_VALUES even ones of a range."""
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    values = (np.geomspace if distribution.log else np.linspace)(low, high, N_VALUES).clip(low, high)
    values = low + step * np.round((values - low) / step) if step else values
    return sorted({type(low)(value) for value in values})
