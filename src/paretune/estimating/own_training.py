"""Seconds of trainings of the user's own: a start-up plus a line in declared sizes for each training and cluster.

They are learnt from finished runs; there is no estimate before one has run.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from paretune.core.errors import BadInput
from paretune.estimating.phases import Seconds
from paretune.estimating.time_estimate import TimeEstimate
from paretune.pricing.prices import Price
from paretune.specification.job import JobSpec
from paretune.tracking import RecordedJob, Runs, schema

NEWEST = 200  # number of runs of projects, and of scripts, that are read
_Z80 = NormalDist().inv_cdf(0.9)
# Assumed for a training that has run once; not measured, rather too large than too small.
_SPREAD, _SPREAD_DEGREES = 0.3, 2.0
"""Standard deviation of the logarithm of seconds around the line, and with how many degrees of freedom it is known."""
_PRIOR_WEIGHT = 0.1  # weight, in runs, of the assumption that start-up and each size have an equal share of the seconds


@dataclass(frozen=True, kw_only=True)
class OwnTrainingTimes:
    """Predicts the seconds of trainings of the user's own from completed jobs and their seconds."""

    runs: Sequence[tuple[JobSpec, float]] = ()

    @classmethod
    def collect(cls, tracking: Runs, machine: str) -> "OwnTrainingTimes":
        """Read the newest measured runs, local ones of `machine` only; raises TrackingUnavailable."""
        completed = f"tags.`{schema.ORIGIN}` = 'measured' and tags.`{schema.STATE}` = 'Completed'"
        runs = []
        for name in ("project", "entry_script"):
            runs += tracking.runs(f"{completed} and params.{name} LIKE '_%'", newest=NEWEST)
        readable = (_read(RecordedJob(run), machine) for run in runs)
        return cls(runs=[run for run in readable if run is not None])

    def predict(self, spec: JobSpec, price: Price | None) -> TimeEstimate | None:
        """Return the estimate of a job, or None if no similar job has run on its cluster.

        Jobs of the same training whose other sizes are known are similar; without `size` only jobs that are equal but
        for the seed.
        """
        key, sizes = _key(spec), spec.sizes()
        alike = [(run.replace(size=spec.size).sizes(), seconds) for run, seconds in self.runs if _key(run, spec) == key]
        alike = [(run_sizes, seconds) for run_sizes, seconds in alike if run_sizes.keys() == sizes.keys()]
        if not alike:
            return None
        table = [list(run_sizes.values()) for run_sizes, _ in alike]
        time = _line(table, [seconds for _, seconds in alike], list(sizes.values()))
        count = f"{len(alike)} run{'s' if len(alike) > 1 else ''}"
        along = f"a start-up and a line in {', '.join(sizes)}" if sizes else "equal ones"
        basis = f"{count} of this training on this cluster: {along}"
        return TimeEstimate(spec=spec, measured_here=len(alike), time=time, price=price, basis=basis)


def _read(job: RecordedJob, machine: str) -> tuple[JobSpec, float] | None:
    """Return the job of a run and its seconds, or None if they are not those of a whole job on its cluster."""
    try:
        spec = job.request.spec_as_run()
    except (BadInput, ValueError, KeyError):
        return None
    is_elsewhere = not spec.has_instances and (job.cluster.machine or machine) != machine
    if is_elsewhere or job.was_retried or job.cluster.is_spot or job.is_of_shared_job or not job.bill.billable_seconds:
        return None
    return spec, job.bill.billable_seconds


def _key(spec: JobSpec, like: JobSpec | None = None) -> object:
    """Return a key that is equal for jobs on one line: of one training and cluster; without `size`, for equal jobs."""
    training = (spec.project, spec.entry_point, spec.entry_script, spec.instance_type, spec.instance_count)
    if (like or spec).size is not None:
        return training
    values = json.dumps(dict(spec.project_parameters), sort_keys=True)
    return (*training, values, replace(spec, seed=0, size=None, launcher="auto").spec_hash())


def _line(sizes: Sequence[Sequence[float]], seconds: Sequence[float], target: Sequence[float]) -> Seconds:
    """Predict seconds from a start-up and a share for each of P sizes, none negative, fitted to N runs.

    `sizes` is N x P. The interval is that of a linear model whose deviation is partly assumed, see _SPREAD.
    """
    measured = np.asarray(seconds, dtype=float)
    usual = float(np.exp(np.log(measured).mean()))
    table = np.column_stack([np.ones(len(measured)), np.asarray(sizes, dtype=float).reshape(len(measured), -1)])
    scale = np.abs(table).mean(axis=0)
    scale[scale == 0] = 1.0
    rows = table / scale / measured[:, None] * usual  # relative to the seconds of each run
    columns = rows.shape[1]
    ridge = np.sqrt(_PRIOR_WEIGHT) * np.eye(columns)
    assumed = np.sqrt(_PRIOR_WEIGHT) * np.full(columns, 1.0 / columns)
    from scipy.optimize import nnls  # takes a third of a second, which most estimates do not need

    shares, _ = nnls(np.vstack([rows, ridge]), np.concatenate([np.ones(len(measured)), assumed]))
    target_row = np.array([1.0, *target]) / scale
    middle = max(float(target_row @ shares), 1e-9)
    errors = np.log(np.maximum(rows @ shares, 1e-9))
    degrees = _SPREAD_DEGREES + max(0, len(measured) - columns)
    variance = (_SPREAD_DEGREES * _SPREAD**2 + float(errors @ errors)) / degrees
    relative = target_row / middle
    leverage = float(relative @ np.linalg.solve(rows.T @ rows + ridge.T @ ridge, relative))
    factor = float(np.exp(_Z80 * np.sqrt(variance * (1.0 + leverage))))
    return Seconds(seconds=usual * middle, seconds_low=usual * middle / factor, seconds_high=usual * middle * factor)
