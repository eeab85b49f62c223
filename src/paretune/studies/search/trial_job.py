"""The job of one trial: started or adopted, polled, stopped, and translated into the end of the trial."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from paretune.core.errors import BadInput, BudgetRefused, LaunchRefused, LostContact
from paretune.jobs.adoption import elsewhere
from paretune.jobs.ending import JobEnd
from paretune.jobs.preparation import inputs_of
from paretune.jobs.record import JobRecord
from paretune.jobs.retrying_job import RetryingJob, first_job_name
from paretune.jobs.verdicts import below_baseline, error_of_rows
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import JobState, job_name
from paretune.launchers.shared_jobs import SharedJobs, TrialOfSharedJob, split_job_name
from paretune.ledger.trial_entry import TrialEnd, TrialNote, TrialStatus
from paretune.pricing.budget import cost_usd
from paretune.specification import metrics
from paretune.specification.container import Event, FailureKind, JobDocument, JobInputs, TrialQueue
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.quality import BEST, curve_names
from paretune.tracking import Run, schema

SEARCH = "search"  # kind of a trial of a job that searches, in its note


class TrainingProgress:
    """The speed of a training, from its events."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self._share = 0.0
        self.last = 0.0
        """Time of its last event with a step, seconds since the epoch."""

    def add(self, event: Event) -> None:
        """Take an event into account; the last event before the first step is the beginning of the training."""
        if event.total_steps and event.step > 0:
            share = min(1.0, event.step / event.total_steps)
            if share > self._share:
                self._share, self.last = share, event.time
        elif not self._share:
            self._begun = event.time

    def seconds_left(self) -> float | None:
        """Seconds from its last step to the end of the training; None before its first step."""
        if self._begun is None or not self._share:
            return None
        return (1.0 - self._share) * (self.last - self._begun) / self._share


class TrialJob:
    """A trial under way."""

    def __init__(
        self,
        number: int,
        spec: JobSpec,
        run: Run,
        workplace: Workplace,
        *,
        file: StudyFile,
        shared: SharedJobs,
        note: TrialNote,  # of the trial in the ledger
        may_end: Callable[[], bool] = lambda: True,  # whether its end may be recorded now
    ) -> None:
        self.number = number
        self._may_end = may_end
        self.note = note
        self.spec = spec
        self.curve: list[tuple[float, float]] = []
        self.guessed_f1 = 0.0  # also if it was adopted
        self._quality = file.judged_by
        self._best_of = file.best_of
        self._logged: dict[str, list[float]] = {name: [] for name in self._best_of}
        self.steps: tuple[int, int] | None = None
        """Optimiser steps done at its last pause, and of the whole training; None before they were reported."""
        self.seconds_per_step: float | None = None
        """Seconds of a step in the last rung, in a job that searches."""
        self._paused: tuple[str, int, float] | None = None
        self.stopped_because = ""
        self._expected: Mapping[str, float] = {}
        self._progress = TrainingProgress()
        self._workplace = workplace
        self._is_adopted = False
        self.record = JobRecord(spec, workplace, run=run, study=file.name, retries_smaller=False)
        self._shared = shared
        self._job = self._retrying_job("")

    @property
    def counts(self) -> bool:
        """Whether it is one of the study's n_trials, as repeats are not."""
        return self.note.counts

    @property
    def searches(self) -> bool:
        """Whether it is a trial of a job that searches."""
        return self.note.kind == SEARCH

    @property
    def spent_seconds(self) -> float:
        """Seconds that earlier attempts of its job were billed."""
        return self._job.document.spent_seconds

    @property
    def trial(self) -> TrialOfSharedJob | None:
        """The trial of a shared job in this attempt; None for a job of its own, and between two attempts."""
        return self._job.current if isinstance(self._job.current, TrialOfSharedJob) else None

    @property
    def attempt(self) -> tuple[int, bool]:
        """The number of its attempt, from 1, and whether that one has a job."""
        return self._job.attempt, self._job.current is not None

    def begin(self, *, adopt: bool = False) -> TrialEnd | None:
        """Open its record and start its job, unless that is `adopt`ed; its end where it could not be started.

        Raises:
            LostContact: whether it was started cannot be seen, or not from here; nothing else is lost.
            Interrupted: before it was started.
        """
        try:
            tags = self.record.run.tags() if adopt else {}
            if adopt:  # before anything that takes a while, so that `sync` leaves it alone
                self.record.watch()
            self._is_adopted = adopt and self._can_adopt(tags)
            if self._is_adopted:
                self._job = self._retrying_job(first_job_name(self.record.run.run_id, tags))
                self._job.capacity.resume(tags)
                self.record.adopt()
            else:
                if adopt:
                    self.record.begin_again()
                if self.spec.trials_per_job > 1:
                    name = self._shared.name_for(self.spec, self.record.run.run_id, searches=self.searches)
                    self._job = self._retrying_job(name)
                inputs = inputs_of(self.spec, self._workplace)
                self.guessed_f1 = guessed_f1(inputs)
                price = self._workplace.launcher.price(self.spec)
                estimate = self._workplace.forecast.time_of(self.spec, self.spec.plan(), inputs, price)
                self.record.describe(inputs, estimate=estimate)
            self._job.begin()
        except (BadInput, LaunchRefused, BudgetRefused) as error:
            return self._refused(error)
        if self._is_adopted and (stopped := tags.get(schema.STOPPED_EARLY)):
            self.stop_early(**json.loads(stopped))
        return None

    def poll(self) -> TrialEnd | None:
        """The end of the trial, or None while its job runs."""
        try:
            end = self._job.poll()
        except (BadInput, LaunchRefused) as error:  # of the next attempt
            return self._refused(error) if self._may_end() else None
        if end is None:
            return None
        return self._failed(end) if end.completed is None else self._completed(end)

    def stop_early(self, reason: str, expected: Mapping[str, float]) -> None:
        """Ask the job to stop; `poll` says when it has. `expected` is what it would have reached at its end."""
        if not self.stopped_because and self._job.current is not None:
            tag = json.dumps({"reason": reason, "expected": dict(expected)})
            self.record.run.set_tags({schema.STOPPED_EARLY: tag})  # for a driver that adopts it
            self.ask_to_stop()
            self.stopped_because, self._expected = reason, expected

    def ask_to_stop(self) -> None:
        """Begin to stop its job, without waiting for it."""
        if self._job.current is not None:
            self._job.current.stop()

    def abandon(self, error: BaseException) -> TrialEnd:
        """Stop the job now, wait until it has stopped, close its run; raises LostContact if it may still run."""
        self._job.stop()
        end = self._job.close(error, self._job.current)
        if end.completed is not None:  # it was faster
            return self._completed(end)
        return self._end(TrialStatus.STOPPED, str(error), retryable=True)

    def expected_end(self) -> dict[str, float] | None:
        """Billable seconds, seconds and dollars at the end of its training, at its speed so far; None if unknown."""
        left = self._progress.seconds_left()
        job = self._job.current
        if left is None or job is None:
            return None
        ahead = left - max(0.0, self._workplace.clock.now() - self._progress.last)
        billable = self._job.bill.billable_seconds + job.billable_seconds() + ahead
        seconds = {
            metrics.BILLABLE_SECONDS: billable,
            metrics.JOB_SECONDS: self._job.bill.seconds + job.seconds() + ahead,
        }
        ran = self._job.bill.ran
        dollars = cost_usd(self._workplace.launcher.price(ran), ran, billable)
        return seconds | ({} if dollars is None else {metrics.COST_USD: dollars})

    def _retrying_job(self, name: str) -> RetryingJob:
        """Its job; `name` is used if it is a trial of a shared job."""
        is_shared = bool(split_job_name(name)[1])
        name = name if is_shared else job_name(self.record.run.run_id, 1)
        document = JobDocument.first(name, self.spec, attribution=self.record.attribution)
        if self.searches:
            document = replace(document, queue=TrialQueue())
        inputs = partial(inputs_of, self.spec, self._workplace)
        shared = self._shared if is_shared else None
        return RetryingJob(self.record, document, self._follow, inputs, shared=shared, may_end=self._may_end)

    def _can_adopt(self, tags: Mapping[str, str]) -> bool:
        name = first_job_name(self.record.run.run_id, tags)
        if not tags:  # every run of a trial has some
            raise LostContact(
                f"MLflow does not tell where {name} is: the same command finds it, if it was started before"
            )
        try:
            if reason := elsewhere(tags, self._workplace.launcher):
                raise LostContact(f"trial {self.number} ({name}) cannot be followed from here: {reason}")
            return self._shared.attach(name) is not None
        except (BadInput, LaunchRefused) as error:
            raise LostContact(f"{error}: the same command finds {name}, if it was started before") from error

    def _refused(self, error: BadInput | LaunchRefused | BudgetRefused) -> TrialEnd:
        """The end if SageMaker refused the job or an attempt (quota, permission), or if its data cannot be read."""
        self._job.close(error)
        is_refused = not isinstance(error, BadInput)
        beside = 0 if isinstance(error, LaunchRefused) else None
        return self._end(
            TrialStatus.FAILED, str(error), retryable=is_refused, transient=is_refused, refused_beside=beside
        )

    def _failed(self, end: JobEnd) -> TrialEnd:
        kind = None if end.failure is None else end.failure[0]
        if kind is FailureKind.OUT_OF_MEMORY:
            return self._end(TrialStatus.OUT_OF_MEMORY, end.reason)
        if end.state is JobState.STOPPED and kind is None:
            return self._end(TrialStatus.STOPPED, self.stopped_because or end.reason)
        # A local job that was adopted from a dead driver has died with it: its end says nothing about its point.
        died = self._is_adopted and not self._workplace.launcher.jobs_outlive_submitter
        retryable = died or kind in {FailureKind.CAPACITY, FailureKind.UNTRIED, FailureKind.CROWDED}
        return self._end(
            TrialStatus.FAILED,
            end.reason,
            retryable=retryable and kind is not FailureKind.DIVERGED,
            transient=kind is FailureKind.CAPACITY,
            alone=kind is FailureKind.CROWDED,
            conclusive=kind in {FailureKind.DIVERGED, FailureKind.OFF_PLAN},
            off_plan=kind is FailureKind.OFF_PLAN,
        )

    def _completed(self, end: JobEnd) -> TrialEnd:
        measured = self._with_best(self._unshared(end.metrics))
        name = "" if self._quality is None else self._quality.metric
        if name in measured and (not self.curve or self.curve[-1][0] < 1.0):
            self.curve.append((1.0, measured[name]))
        # A study says this itself, for the mean over seeds.
        compared = below_baseline(self.spec, measured, error_of_rows(measured))
        verdicts = tuple(sentence for sentence in end.verdicts if sentence not in compared)
        return self._end(TrialStatus.COMPLETED, "", metrics=measured, verdicts=verdicts)

    def _unshared(self, measured: Mapping[str, float]) -> dict[str, float]:
        """The metrics as if the trial had not shared a job, so that points compare alike; its share is booked."""
        job = self._job.current
        spared = job.spared_seconds() if isinstance(job, TrialOfSharedJob) else 0.0
        more = dict.fromkeys((metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS), spared)
        more[metrics.COST_USD] = cost_usd(self._workplace.launcher.price(self.spec), self.spec, spared) or 0.0
        return {name: value + more.get(name, 0.0) for name, value in measured.items()}

    def _end(self, status: TrialStatus, reason: str, **more: Any) -> TrialEnd:
        return TrialEnd(
            status=status,
            cost_usd=self._job.bill.cost_usd,
            kept_usd=self._job.bill.kept_usd,
            reason=reason,
            curve=tuple(self.curve),
            expected=self._expected if status is TrialStatus.STOPPED else {},
            at=self._workplace.clock.now(),
            **more,
        )

    def _follow(self, events: list[Event]) -> None:
        quality = self._quality
        for event in events:
            self._advance(event)
            for name, values in self._logged.items():
                values += [value for value in [_value_in(name, event)] if value is not None]
            value = None if quality is None else _value_in(quality.metric, event)
            if quality is not None and value is not None and event.total_steps:
                share = min(1.0, event.step / event.total_steps)
                if not self.curve or share > self.curve[-1][0]:
                    best_before = self.curve[-1][1] if self.curve and quality.take == BEST else value
                    self.curve.append((share, quality.better(value, best_before)))

    def _advance(self, event: Event) -> None:
        """Note how far the training has come. Its rung ends with its evaluation, so only a pause shows its steps."""
        self._progress.add(event)
        if event.total_steps:
            self.steps = self.steps[0] if self.steps else 0, event.total_steps
        if event.paused is None:
            return
        self.steps = event.step, event.total_steps or max(event.step + 1, self.steps[1] if self.steps else 0)
        job, steps, seconds = self._paused or (self._job.document.job_name, 0, 0.0)
        if job == self._job.document.job_name and event.step > steps:
            self.seconds_per_step = max(0.0, event.paused - seconds) / (event.step - steps)
        self._paused = self._job.document.job_name, event.step, event.paused

    def _with_best(self, measured: Mapping[str, float]) -> dict[str, float]:
        """The metrics, with the best value over the steps in place of the last one for those of `best_of`.

        Values come from the events of the job, and from the metric's history in its run if a project has logged it
        itself. The best value is recorded beside the last one, as NAME_best.
        """
        best = {}
        for name, direction in self._best_of.items():
            logged = self.record.run.curve(name).values()
            values = [*self._logged[name], *logged, *([measured[name]] if name in measured else [])]
            if values := list(filter(math.isfinite, values)):
                best[name] = max(values) if direction == "maximize" else min(values)
        if best:
            self.record.run.log_metrics({f"{name}_best": value for name, value in best.items()})
            self.record.run.flush()
        return {**measured, **best}


def lead_last(jobs: Iterable[TrialJob]) -> list[TrialJob]:
    """The jobs, those of leads last: their reservation covers the other trials of the job that searches."""
    return sorted(jobs, key=lambda job: job.note.lead == job.number)


def guessed_f1(inputs: JobInputs) -> float:
    """Macro F1 of guessing one of C classes, or the most frequent one if that is more; 0 if the classes are unknown."""
    if inputs.dataset is None or not inputs.dataset.labels:
        return 0.0
    return max(1 / len(inputs.dataset.labels), inputs.dataset.facts.get(metrics.BASELINE_MAJORITY, 0.0))


def _value_in(metric: str, event: Event) -> float | None:
    return next((event.metrics[name] for name in curve_names(metric) if name in event.metrics), None)
