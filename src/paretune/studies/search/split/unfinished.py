"""Trials of a job that searches which are not booked yet: results, speeds, and forecasts from their learning curves."""

import math
from collections.abc import Iterable, Iterator, Sequence

from paretune.ledger.trial_entry import TrialStatus
from paretune.specification import metrics
from paretune.specification.job import JobSpec
from paretune.studies.definition.quality import Quality
from paretune.studies.results.trials import Trial
from paretune.studies.search.driver import Driver
from paretune.studies.search.split import curves
from paretune.studies.search.split.curves import Curve, comparable_point
from paretune.studies.search.trial_job import SEARCH, TrialJob

Values = tuple[tuple[float, float], ...]


class Unfinished:
    """Reads the trials of the searching jobs of one driver's study."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._guessed_f1 = 0.0  # of the data that all trials share; 0 until a trial has told it

    def just_finished(self) -> dict[int, tuple[Trial, dict[str, float]]]:
        """Trials that are trained while their job goes on, with their metrics as if each had a job of its own."""
        result = {}
        for job in self._members():
            if (measured := _report_of(job)) is not None:
                trial = Trial(
                    number=job.number,
                    run_id=job.record.run.run_id,
                    point=job.note.point,
                    parameters=job.spec.as_text(),
                    status=TrialStatus.COMPLETED,
                    seed=job.spec.seed,
                )
                billed_s = job.trial.billable_seconds() + job.trial.spared_seconds() if job.trial else 0.0
                result[job.number] = trial, {**measured, metrics.BILLABLE_SECONDS: billed_s}
        return result

    def seconds_per_step(self) -> Iterator[tuple[JobSpec, float]]:
        """Jobs of trials that have paused, and the seconds of an optimiser step in their last rung."""
        for job in self._members():
            if job.seconds_per_step:
                yield job.spec, job.seconds_per_step

    def forecasts(self, quality: Quality) -> Iterator[tuple[JobSpec, float, float]]:
        """Jobs that were begun and not trained to their ends, with mean and standard deviation of their final quality.

        Nothing is forecast before any training has ended: nobody knows what is gained until then.
        """
        open_: dict[int, JobSpec] = {}
        curves_of: dict[int, tuple[JobSpec, Sequence[tuple[float, float]]]] = {}
        for job in self._members():
            self._guessed_f1 = max(self._guessed_f1, job.guessed_f1)
            curves_of[job.number] = job.spec, job.curve
            if _report_of(job) is None:
                open_[job.number] = job.spec
        for number, note in self._driver.history.notes.items():
            trial = self._driver.trials.get(number)
            if note.kind == SEARCH and trial is not None and (end := self._driver.ledger.entry(number).end) is not None:
                spec = JobSpec.from_text(trial.parameters)
                curves_of[number] = spec, end.curve
                if trial.status is TrialStatus.STOPPED:
                    open_[number] = spec
        measured = {
            number: Curve(key=str(number), values=self._comparable(quality, values), point=_point_of(spec))
            for number, (spec, values) in curves_of.items()
            if values
        }
        targets = [measured[number] for number in open_ if number in measured]
        if not targets or all(curve.values[-1][0] < 1.0 for curve in measured.values()):
            return
        means, deviations = curves.forecast([*measured.values()], targets, [1.0] * len(targets))
        for target, mean, deviation in zip(targets, means, deviations, strict=True):
            yield open_[int(target.key)], float(mean), float(deviation)

    def _comparable(self, quality: Quality, values: Iterable[tuple[float, float]]) -> Values:
        """A curve of which larger values are better; F1 below guessing, before anything is learnt, is guessing."""
        least = self._guessed_f1 if quality.metric == metrics.F1 else -math.inf
        return tuple((share, max(least, quality.sign * value)) for share, value in values)

    def _members(self) -> list[TrialJob]:
        return [job for job in self._driver.running if job.searches and job.trial is not None]


def _point_of(spec: JobSpec) -> tuple[float, ...]:
    return comparable_point(spec.plan().global_batch_size, spec.learning_rate or 1.0)


def _report_of(job: TrialJob) -> dict[str, float] | None:
    """The metrics of a trial that is trained to its end, or None."""
    end = None if job.trial is None else job.trial.end
    return None if end is None or end.report is None else dict(end.report.metrics)
