"""The seconds of a job, learnt from what jobs of the study took.

    seconds         start-up + steps x seconds of a step
    of a step       accumulation x (latency + per-device batch x row) + exchange x further instances
    all of that     x an effect of the type and of every further parameter, each normal in its logarithm

Each instance type has its own latency, row and exchange, by least squares of relative errors. A training of the user's
own counts as one step of 300 seconds. What was cut off at its limit would have taken longer: how long, nobody knows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from paretune.studies.sampler.candidates import Job, Space
from paretune.studies.sampler.rows import CUT_OFF, RAN, Row

_NOISE, _EFFECT = 0.05, 1.0  # standard deviations of log seconds: what a fit misses, and an effect before any run
_USUAL = np.array([0.03, 0.01, 0.02])  # seconds: latency, a row, an exchange
_USUAL_START_S, _USUAL_OWN_S = 120.0, 300.0
_BEYOND = 1.25  # times its limit that a job is believed to take which was cut off there
_FITS = 3  # of factors and effects in turn


@dataclass(frozen=True, eq=False)
class Terms:
    """What the seconds of N jobs are made of: type, factors of latency, row and exchange, effects, steps."""

    types: np.ndarray
    factors: np.ndarray
    effects: np.ndarray
    steps: np.ndarray

    @classmethod
    def of(cls, space: Space, jobs: Sequence[Job]) -> "Terms":
        """The terms of these jobs."""
        effects = space.seconds_keys(jobs)
        types = effects[:, : len(space.types)].argmax(axis=1)
        times = [job.plan.gradient_accumulation_steps for job in jobs]
        batches = [job.plan.per_device_train_batch_size for job in jobs]
        further = [job.spec.instance_count - space.fewest for job in jobs]
        factors = np.column_stack([times, np.multiply(times, batches), further])
        steps = [float(job.spec.probe_steps or space.n_steps(job)) for job in jobs]
        return cls(types, factors.astype(float), effects, np.array(steps))


class SecondsModel:
    """Predicts billed seconds; `is_seen` tells for each type whether a job of it has shown its speed."""

    def __init__(self, space: Space, rows: Sequence[Row]) -> None:
        self._space = space
        startups = [row.startup_s for row in rows if row.startup_s is not None]
        # nobody limits jobs to less than twice what starting takes
        usual_s = min([_USUAL_START_S, *(30.0 * job.spec.max_runtime_minutes for job in space.candidates)])
        self.startup_s = 0.0 if space.is_own else float(np.median(startups)) if startups else usual_s
        ran = [row for row in rows if row.outcome == RAN and row.seconds > 0]
        terms = Terms.of(space, [row.job for row in ran])
        billed = np.array([row.seconds for row in ran])
        step_s = np.maximum(billed - self.startup_s, 0.05 * billed) / terms.steps
        told = np.array([np.nan if space.is_own or row.step_s is None else row.step_s for row in ran])
        step_s = np.where(np.isnan(told), step_s, told)
        self.is_seen = np.array([(terms.types == index).any() for index in range(len(space.types))])
        self._effect = np.zeros(terms.effects.shape[1])
        for _ in range(_FITS):
            effect = np.exp(terms.effects @ self._effect)
            self._speeds = self._fit_speeds(terms, step_s / effect)
            base = self._base(terms)
            precision = np.eye(len(self._effect)) / _EFFECT**2 + terms.effects.T @ terms.effects / _NOISE**2
            self._covariance = np.linalg.inv(precision)
            self._effect = self._covariance @ terms.effects.T @ np.log(step_s / base) / _NOISE**2
        for row in rows:
            if row.outcome == CUT_OFF and not row.job.is_probe:
                expected = self.predict(Terms.of(space, [row.job]))[0][0]
                if row.seconds > expected / _BEYOND:
                    self._speeds[space.types.index(row.job.spec.instance_type)] *= _BEYOND * row.seconds / expected

    def predict(self, terms: Terms) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of N jobs, and the standard deviations of their logarithms."""
        deviation = np.sqrt(np.einsum("ij,jk,ik->i", terms.effects, self._covariance, terms.effects))
        step_s = self._base(terms) * np.exp(terms.effects @ self._effect)
        return self.startup_s + terms.steps * step_s, deviation

    def _base(self, terms: Terms) -> np.ndarray:
        if self._space.is_own:
            return np.asarray(_USUAL_OWN_S * self._speeds[terms.types, 0])
        return np.asarray((self._speeds[terms.types] * terms.factors).sum(axis=1))

    def _fit_speeds(self, terms: Terms, step_s: np.ndarray) -> np.ndarray:
        """Latency, row and exchange of each type; of types that were not seen the mean of the others."""
        speeds = np.ones((len(self.is_seen), 3)) if self._space.is_own else np.tile(_USUAL, (len(self.is_seen), 1))
        if self._space.is_own or not len(step_s):
            return speeds
        for index in np.flatnonzero(self.is_seen):
            here = terms.types == index
            relative = terms.factors[here] / step_s[here, None]
            speeds[index], _ = nnls(relative, np.ones(len(relative)))
            if not (relative @ speeds[index]).all():  # no term explains anything
                speeds[index] = _USUAL
        speeds[~self.is_seen] = np.exp(np.log(np.maximum(speeds[self.is_seen], 1e-6)).mean(axis=0))
        return speeds
