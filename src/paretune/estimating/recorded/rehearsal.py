"""Figures of simulated jobs without a table: seconds from the estimate, F1 from recorded runs."""

import contextlib
import statistics
from collections.abc import Callable, Mapping
from functools import cached_property

from paretune.core.errors import BadInput
from paretune.estimating.estimator import Estimate, Estimator, architecture_of
from paretune.estimating.evidence import collect
from paretune.estimating.hardware import machine_name
from paretune.estimating.recorded.run_lookup import Point, enclosing, logarithms
from paretune.specification.container import JobDocument
from paretune.specification.job import JobSpec
from paretune.tracking import RecordedJob, Tracking, schema

MOST_RECALLED = 1000
"""Completed runs that are searched for an F1, newest first: more would cost every simulated job over a second."""


class Rehearsal:
    """Predicts jobs from the measured and published runs in MLflow; `tracking` is opened when it is needed."""

    def __init__(self, tracking: Callable[[], Tracking], environment: Mapping[str, str]) -> None:
        self._open = tracking
        self._environment = environment
        self._recalled: dict[tuple[str, ...], dict[Point, list[float]]] = {}

    @cached_property
    def _tracking(self) -> Tracking:
        return self._open()

    @cached_property
    def _estimator(self) -> Estimator:
        return Estimator(collect(self._tracking, machine=machine_name()))

    def predict(self, document: JobDocument) -> Estimate | None:
        """Return the estimate of a job, or None if the number of its training rows is unknown.

        Raises:
            BadInput: the architecture of its model cannot be found.
        """
        built = architecture_of(document.spec.model, document.spec.task, self._environment)
        return self._estimator.estimate(document.spec, built, None, plan=document.plan)

    def recall_f1(self, document: JobDocument) -> tuple[float, str] | None:
        """Return the mean F1 of runs with this batch size and learning rate, or around it, and their count in words."""
        points = self._runs_like(document.spec)
        at = logarithms((document.plan.learning_rate, document.plan.global_batch_size))
        corners = enclosing(points, at)
        if corners is None:
            return None
        f1 = sum(weight * statistics.fmean(points[point]) for point, weight in corners)
        runs = sum(len(points[point]) for point, _ in corners)
        return f1, f"{runs} recorded run{'s' if runs > 1 else ''}{' around it' if len(corners) > 1 else ''}"

    def _runs_like(self, spec: JobSpec) -> dict[Point, list[float]]:
        """Return F1 by learning rate and global batch size, in logarithms; MLflow filters by the length of rows."""
        alike = spec.key_of("quality")
        if alike in self._recalled:
            return self._recalled[alike]
        points: dict[Point, list[float]] = {}
        condition = f"tags.`{schema.ORIGIN}` != 'simulated' and tags.`{schema.STATE}` = 'Completed'"
        condition += f" and params.max_seq_length = '{spec.max_seq_length}'"
        for job in map(RecordedJob, self._tracking.runs(condition, newest=MOST_RECALLED)):
            rate, size = job.param("scaled_learning_rate"), job.param("global_batch_size")
            with contextlib.suppress(BadInput):  # the job cannot be read back
                if job.f1 is not None and rate and size and job.request.spec_from_params().key_of("quality") == alike:
                    points.setdefault(logarithms((float(rate), int(size))), []).append(job.f1)
        self._recalled[alike] = points
        return points
