"""The model of seconds: a Gaussian process of log seconds, for every job, whether a probe or a training run.

For paretune's own training, it models the seconds of an optimizer step. A probe of a few steps and a whole training run
measure the same seconds:

    seconds = startup + steps x seconds of a step

For the user's own training code, it models all billed seconds.

Its mean is the estimate from data sheets (`estimating`), with the estimate's own uncertainty: a level that all jobs
share, one that each instance type has, and the effects of batch and instances. Without an estimate, as for most
scripts, billed seconds are assumed to fall as the price of the cluster rises: a cluster at twice the price is faster,
but not twice as fast. The weight of the price is learned. Before any run, a typical such job is assumed to take 300
seconds, or half of the shortest time limit if that is less.

A job that was cut off at its time limit is assumed to need somewhat longer than that limit. A job that is running
counts with its expected seconds: they stay as expected, but become certain, because the job will show them.
"""

import math
from collections.abc import Sequence

import numpy as np

from paretune.core.noise import Z80
from paretune.studies.sampler.candidates import Jobs, Row, Space
from paretune.studies.sampler.process import Basis, Points, Process
from paretune.studies.trial_status import TrialStatus

_USUAL_START_S, _USUAL_OWN_S = 120.0, 300.0  # assumed before any run: the startup; a job of the user's own code
_BEYOND = 1.25  # a job that was cut off is assumed to need this multiple of its billed seconds
# Prior deviations of log seconds: of their level, of each instance type, of the slope along a number's span, and of the
# bend of the surface.
_SHARES = 0.7, 0.5, 0.9, 0.5  # of a job with an estimate, as shares of the estimate's own, which is about their sum
_UNKNOWN = 1.5, 0.7, 1.0, 0.5  # of paretune's own training without an estimate
_OWN = 2.0, 0.0, 1.0, 0.5  # of the user's own training code without an estimate
_ESTIMATE = (1.0, 0.15)  # weight of the logarithm of the estimate
_PRICE = (-0.5, 0.3)  # weight of the logarithm of the cluster's price
_NOISE = 0.04  # usual deviation of log seconds between runs of the same job


class SecondsModel:
    """Predicts billed seconds from the outcomes of jobs.

    Attributes:
        measured_startup_s: billed seconds outside the training: the median of those measured, or 0 if there are none.
        startup_s: the same, but an assumed value if there are none.
        is_seen: whether a completed job has measured the speed of each instance type, shape (T,).
    """

    def __init__(self, space: Space, rows: Sequence[Row]) -> None:
        self._space, first = space, space.candidates[0]
        startups = [row.startup_s for row in rows if row.startup_s is not None]
        # Users rarely limit jobs to less than twice the startup, or twice what their own training takes.
        half_s = min(30.0 * job.spec.max_runtime_minutes for job in space.candidates)
        self.measured_startup_s = float(np.median(startups)) if startups else 0.0
        estimate = space.estimate_of(first)
        assumed_s = _USUAL_START_S
        if estimate is not None:
            assumed_s = max(estimate.time.seconds - space.n_steps(first) * estimate.time.step_seconds, 1.0)
        self.startup_s = self.measured_startup_s if startups else min(assumed_s, half_s)
        self._deviations, self._is_estimated = _OWN if space.runs_user_code else _UNKNOWN, True
        usual = space.listed.usual_seconds
        if (high_s := space.high_of_first_s) is not None:
            doubt = math.log(high_s[1] / high_s[0]) / Z80
            level, of_type, slope, bend = (share * doubt for share in _SHARES)
            self._deviations = level, of_type, slope, bend
        elif space.runs_user_code:
            self._is_estimated, usual = False, space.listed.usd_per_s
        self._usual = float(np.median(np.log(usual)) if space.runs_user_code else np.mean(np.log(usual)))
        self._center = self._usual if self._is_estimated else float(np.log(min(_USUAL_OWN_S, half_s)))
        ran = [row for row in rows if row.status is TrialStatus.COMPLETED and row.seconds > 0]
        cut_off = [row for row in rows if row.status is TrialStatus.CUT_OFF]
        cut_off = [row for row in cut_off if space.runs_user_code or not row.job.is_probe]
        jobs = Jobs(space, [row.job for row in [*ran, *cut_off]])
        billed = np.append([row.seconds for row in ran], [_BEYOND * row.seconds for row in cut_off])
        self.is_seen = np.isin(range(len(space.types)), jobs.types[: len(ran)])
        values = np.log(np.maximum(billed, 1e-3))
        if not space.runs_user_code:
            step_s = np.maximum(billed - self.startup_s, 0.05 * billed) / jobs.steps
            measured_s = np.array([row.step_s or np.nan for row in ran] + [np.nan] * len(cut_off))
            values = np.log(np.where(np.isnan(measured_s), step_s, measured_s))
        is_used, points = np.arange(len(values)) < len(ran), self._points(jobs)
        self._process = self._fitted(points.at(is_used), values[is_used])
        if cut_off:  # a cut-off job corrects the fit only if the fit predicts less than the job's assumed seconds
            is_used |= self.predict(jobs)[0] < billed
            self._process = self._fitted(points.at(is_used), values[is_used])
        if running := [row.job for row in rows if row.is_running]:  # what they will show counts as known
            self._process = self._process.expecting(self._points(Jobs(space, running)))

    def predict(self, jobs: Jobs) -> tuple[np.ndarray, np.ndarray]:
        """Return the expected seconds of N jobs and the standard deviations of their logarithms, each of shape (N,).

        The expected seconds are medians. The startup is treated as certain.
        """
        mean, deviation = self._process.predict(self._points(jobs))
        if self._space.runs_user_code:
            return np.exp(self._center + mean), deviation
        training_s = jobs.steps * np.exp(self._center + mean)
        seconds = self.startup_s + training_s
        return seconds, deviation * training_s / seconds

    def beliefs(self) -> dict[str, tuple[float, float, float, float]]:
        """Return what was assumed and learned, by name, see `Process.beliefs`; nothing of clusters if there is one."""
        if not self._is_estimated and np.ptp(self._space.listed.usd_per_s) == 0:
            return {}
        return {f"seconds grow with a power of the {self._name}": self._process.beliefs()[self._name]}

    @property
    def _name(self) -> str:
        return "estimate from data sheets" if self._is_estimated else "price of the cluster"

    def _fitted(self, points: Points, values: np.ndarray) -> Process:
        level, of_type, slope, scale = self._deviations
        beliefs = {"level": (0.0, level), self._name: _ESTIMATE if self._is_estimated else _PRICE}
        if self._is_estimated:
            beliefs |= {f"type {name}": (0.0, of_type) for name in self._space.types}
        beliefs |= {f"slope of {i}": (0.0, slope) for i in range(points.terms.shape[1] - len(beliefs))}
        axes = self._space.seconds_axes
        return Process(axes, points, values - self._center, Basis.of(beliefs), scale=scale, noise=_NOISE)

    def _points(self, jobs: Jobs) -> Points:
        """Return the inputs of the process: its basis has a level, what is believed, and a slope for each number."""
        axes, keys = self._space.seconds_axes, jobs.seconds_keys
        slopes = keys[:, axes.are_numbers[axes.of_columns]] - 0.5 if keys.shape[1] else keys
        usual = jobs.usual_seconds if self._is_estimated else jobs.usd_per_s
        of_types = [*np.eye(len(self._space.types))[jobs.types].T] if self._is_estimated else []
        return Points(keys, np.column_stack([np.ones(len(jobs)), np.log(usual) - self._usual, *of_types, slopes]))
