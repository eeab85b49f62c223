"""What a split search knows after each job: means and hopes of every candidate, and which are as good as known."""

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from paretune import metrics
from paretune.pareto import front
from paretune.spec import JobSpec
from paretune.studies.driver import Driver
from paretune.studies.split_models import F1_NOISE, Key, f1_model, improvements, seconds_model
from paretune.studies.split_space import Candidate, candidates, quality_of, rows_of, step_of
from paretune.studies.trials import Trial, TrialStatus

SECONDS_KNOWN = 0.08
"""Relative deviation at which seconds are as good as measured."""
F1_KNOWN = 1.6 * F1_NOISE
_HOPE = 1.0  # standard deviations towards the better
_OVERHEAD_S = 120.0  # start-up, before any job has shown it
_SPEEDS = {metrics.BILLABLE_SECONDS, metrics.JOB_SECONDS, metrics.TRAIN_SECONDS, metrics.THROUGHPUT_SAMPLES}


class Knowledge:
    """All candidates, and what is known of each. Arrays have one entry per candidate.

    Args:
        driver: whose trials are learnt from.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.pool = candidates(driver.file)
        self._step_keys = [item.step for item in self.pool]
        self.quality_keys = [item.quality for item in self.pool]
        self.rows = np.array([item.rows for item in self.pool])
        self._limits = np.array([item.spec.max_runtime_minutes * 60 for item in self.pool])
        prices = {item.spec.instance_type: driver.place.launcher.price(item.spec) for item in self.pool}
        hourly = [prices[item.spec.instance_type] for item in self.pool]
        self.usd_per_second = np.array(  # a cluster without a price counts as a dollar an hour
            [
                item.spec.instance_count * (price.usd_per_hour if price is not None else 1.0) / 3600
                for item, price in zip(self.pool, hourly, strict=True)
            ]
        )

    def learn(self, expected: Iterable[JobSpec] = ()) -> None:
        """Fit both models to all that has ended; trainings under way count as if they had shown what is expected."""
        steps: list[Key] = []
        log_seconds: list[float] = []
        overheads: list[float] = []
        qualities: list[Key] = []
        f1: list[float] = []
        self.too_large: list[tuple[str, float]] = []
        self._fitting: set[tuple[str, float]] = set()
        for number, trial in self._driver.trials.items():
            spec = JobSpec.from_text(trial.parameters)
            plan = spec.plan()
            place = (spec.instance_type, float(plan.per_device_train_batch_size))
            if trial.status is TrialStatus.OUT_OF_MEMORY:
                self.too_large.append(place)
            measured = self._driver.measured.get(number)
            if trial.status is not TrialStatus.COMPLETED or measured is None:
                continue
            self._fitting.add(place)
            seconds, overhead = _seconds_of_a_row(measured, rows_of(spec))
            steps.append(step_of(spec, plan))
            log_seconds.append(math.log(seconds))
            overheads.append(overhead)
            if metrics.F1 in measured:
                qualities.append(quality_of(spec, plan))
                f1.append(measured[metrics.F1])
        self._times = seconds_model(steps, log_seconds)
        self.overhead = float(np.median(overheads)) if overheads else _OVERHEAD_S
        self.has_f1 = bool(f1)
        self._f1 = f1_model(qualities, f1)
        if f1:
            waiting = [quality_of(spec, spec.plan()) for spec in expected]
            self._f1 = f1_model([*qualities, *waiting], [*f1, *self._f1.guess(waiting).mean])
        self._predict()

    def _predict(self) -> None:
        """Means and hopes of all candidates, and which of them are as good as known."""
        times, quality = self._times.guess(self._step_keys), self._f1.guess(self.quality_keys)
        self.seconds = self.overhead + self.rows * np.exp(times.mean)
        self.fast = self.overhead + self.rows * np.exp(times.mean - _HOPE * times.deviation)
        self.time_open, self.f1_open = times.deviation, quality.deviation
        self.mean_f1 = np.clip(quality.mean, 0.0, 1.0)
        self.hope_f1 = np.clip(quality.mean + _HOPE * quality.deviation, 0.0, 1.0)
        places = [(item.spec.instance_type, float(item.plan.per_device_train_batch_size)) for item in self.pool]
        self.impossible = np.array([self._is_too_large(place) for place in places])
        self.impossible |= self.seconds > self._limits
        self.fits = np.array([self._is_fitting(place) for place in places])
        self.known = ~self.impossible & self.fits & (self.time_open < SECONDS_KNOWN) & (self.f1_open < F1_KNOWN)

    def gains(self) -> np.ndarray:
        """Share of the hypervolume that each candidate would add in the hopeful case, best pair of objectives."""
        known = np.flatnonzero(self.known)
        gains = np.zeros(len(self.pool))
        for column in self._cost_columns():
            hopeful = np.stack([column(self.fast), -self.hope_f1], axis=1)
            certain = np.stack([column(self.seconds)[known], -self.mean_f1[known]], axis=1)
            middle = np.stack([column(self.seconds), -self.mean_f1], axis=1)[~self.impossible]
            reference = np.array([np.quantile(middle[:, 0], 0.9), middle[:, 1].max() + 1e-3])
            marks = front(certain.tolist(), (False, False)) if len(certain) else []
            best = certain[np.array(marks, dtype=bool)] if len(certain) else np.zeros((0, 2))
            whole = improvements(np.array([[middle[:, 0].min(), middle[:, 1].min()]]), np.zeros((0, 2)), reference)[0]
            gains = np.maximum(gains, improvements(hopeful, best, reference) / max(whole, 1e-12))
        return gains

    def _cost_columns(self) -> list[Callable[[np.ndarray], np.ndarray]]:
        """From seconds to each thing that is minimised, in logarithms."""
        columns: list[Callable[[np.ndarray], np.ndarray]] = []
        names = set(self._driver.file.objectives)
        if metrics.COST_USD in names:
            columns.append(lambda seconds: np.log(seconds * self.usd_per_second))
        if names & _SPEEDS:
            columns.append(np.log)
        return columns or [lambda seconds: np.log(seconds * self.usd_per_second)]

    def _is_too_large(self, place: tuple[str, float]) -> bool:
        return any(name == place[0] and place[1] >= batch for name, batch in self.too_large)

    def _is_fitting(self, place: tuple[str, float]) -> bool:
        return any(name == place[0] and place[1] <= batch for name, batch in self._fitting)

    def expected_minutes(self, spec: JobSpec) -> float:
        """Minutes that a job takes if it goes rather badly: two deviations, at most half as long again each."""
        found = self._times.guess([step_of(spec, spec.plan())])
        slow = float(found.mean[0]) + 2 * min(float(found.deviation[0]), 0.5)
        return (self.overhead + rows_of(spec) * math.exp(slow)) / 60

    def known_types(self) -> set[str]:
        """Instance types of which some job has shown something."""
        return {JobSpec.from_text(trial.parameters).instance_type for trial in self._driver.trials.values()}

    def as_trial(self, place: int, number: int) -> Trial:
        """The candidate at `place` as a trial that was only predicted."""
        item: Candidate = self.pool[place]
        seconds = float(self.seconds[place])
        usd = seconds * float(self.usd_per_second[place])
        values = {
            metrics.COST_USD: usd,
            metrics.BILLABLE_SECONDS: seconds,
            metrics.JOB_SECONDS: seconds,
            metrics.TRAIN_SECONDS: seconds - self.overhead,
            metrics.THROUGHPUT_SAMPLES: float(self.rows[place]) / (seconds - self.overhead),
            metrics.F1: float(self.mean_f1[place]),
        }
        return Trial(
            number=number,
            run_id="",
            point=item.point,
            parameters=item.spec.as_text(),
            status=TrialStatus.COMPLETED,
            values={name: values[name] for name in self._driver.file.objectives if name in values},
            cost_usd=0.0,
            origin="predicted",
        )


def _seconds_of_a_row(measured: Mapping[str, float], rows: float) -> tuple[float, float]:
    """Seconds of one row in steady state, and seconds around the training."""
    billed = measured[metrics.BILLABLE_SECONDS]
    speed = measured.get(metrics.THROUGHPUT_SAMPLES)
    training = measured.get(metrics.TRAIN_SECONDS)
    if speed and training is not None:
        return 1 / speed, max(0.0, billed - training)
    overhead = min(_OVERHEAD_S, billed / 2)
    return (billed - overhead) / rows, overhead
