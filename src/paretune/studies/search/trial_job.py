"""The job of one trial: starts or adopts it, polls it, stops it, and says how it ended."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace

from paretune.core.errors import BadInput, BudgetRefused, LaunchRefused, LostContact
from paretune.jobs.adoption import elsewhere
from paretune.jobs.ending import JobEnd
from paretune.jobs.preparation import inputs_of
from paretune.jobs.record import JobRecord
from paretune.jobs.retrying_job import RetryingJob, first_job_name
from paretune.jobs.verdicts import below_baseline
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import JobState
from paretune.launchers.shared_jobs import SharedJobs, TrialOfSharedJob, split_job_name
from paretune.ledger.trial_entry import TrialEnd, TrialNote, TrialStatus
from paretune.pricing.budget import cost_usd
from paretune.specification import metrics
from paretune.specification.container import Event, FailureKind
from paretune.specification.job import JobSpec
from paretune.studies.definition.quality import BEST, Quality, curve_names
from paretune.studies.search.early_stopping import Progress
from paretune.tracking import Run, schema

PARENT = "mlflow.parentRunId"
"""MLflow's tag that nests a run under another."""


class TrialJob:
    """A trial under way; `note` is what was written down of it.

    `quality` is what measures its model; `best_of` has the metrics of which the best value over the steps counts, and
    which way they are better.
    """

    def __init__(
        self,
        number: int,
        spec: JobSpec,
        run: Run,
        workplace: Workplace,
        *,
        shared: SharedJobs,
        note: TrialNote | None = None,
        quality: Quality | None = None,
        best_of: Mapping[str, str] | None = None,
        study: str = "",
    ) -> None:
        self.number = number
        self.note = note or TrialNote()
        self.spec = spec
        self.curve: list[tuple[float, float]] = []
        self._quality = quality
        self._best_of = best_of or {}
        self._told: dict[str, list[float]] = {name: [] for name in self._best_of}
        self.stopped_because = ""
        self._expected: Mapping[str, float] = {}
        self._progress = Progress()
        self._workplace = workplace
        self._is_adopted = False
        self.record = JobRecord(spec, workplace, run=run, study=study)
        self._shared = shared
        self._job = self._named("")

    @property
    def counts(self) -> bool:
        """Whether it is one of the study's n_trials, as repeats are not."""
        return self.note.counts

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
            recorded = tags.get(schema.JOB_NAME, "")
            self._is_adopted = adopt and self._is_there(tags)
            if self._is_adopted:
                self._job = self._named(recorded)
                self._job.resume_pause(tags)
                self.record.adopt()
            else:
                if self.spec.trials_per_job > 1:
                    self._job = self._named(self._shared.name_for(self.spec, self.record.run.run_id))
                inputs = inputs_of(self.spec, self._workplace)
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
        """How it ended; None while it runs."""
        try:
            end = self._job.poll()
        except (BadInput, LaunchRefused) as error:  # of the next attempt
            return self._refused(error)
        if end is None:
            return None
        return self._failed(end) if end.completed is None else self._completed(end)

    def stop_early(self, reason: str, expected: Mapping[str, float]) -> None:
        """Ask the job to stop; `poll` says when it has. `expected` is what it would have reached at its end."""
        if not self.stopped_because and self._job.current is not None:
            self.stopped_because, self._expected = reason, expected
            known = json.dumps({"reason": reason, "expected": dict(expected)})
            self.record.run.set_tags({schema.STOPPED_EARLY: known})  # a driver that adopts it tells the same of it
            self._job.current.stop()

    def ask_to_stop(self) -> None:
        """Begin to stop it, before others are waited for."""
        if self._job.current is not None:
            self._job.current.stop()

    def abandon(self, error: BaseException) -> TrialEnd:
        """Stop the job now, wait until it has stopped, close its run; LostContact where it cannot be seen to stop."""
        self._job.stop()
        end = self._job.close(error, self._job.current)
        if end.completed is not None:  # it was faster
            return self._completed(end)
        return self._ended(TrialStatus.STOPPED, str(error), retryable=True)

    def expected_end(self) -> dict[str, float] | None:
        """Billable seconds, seconds and dollars at the end of its training, at its speed so far; None where unknown."""
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

    def _named(self, name: str) -> RetryingJob:
        """Its job, of this name where it is one of a shared job."""
        is_shared = bool(split_job_name(name)[1])
        name = name if is_shared else ""
        shared = self._shared if is_shared else None
        return RetryingJob(self.record, self._follow, retry_smaller=False, name=name, shared=shared)

    def _is_there(self, tags: Mapping[str, str]) -> bool:
        name = first_job_name(self.record.run.run_id, tags)
        if not tags:  # every run of a trial has some
            raise LostContact(
                f"MLflow does not tell where {name} is: the same command finds it, if it was started before"
            )
        try:
            if place := elsewhere(tags, self._workplace.launcher):
                raise LostContact(f"trial {self.number} ({name}) cannot be followed from here: {place}")
            return self._shared.attach(name) is not None
        except (BadInput, LaunchRefused) as error:
            raise LostContact(f"{error}: the same command finds {name}, if it was started before") from error

    def _refused(self, error: BadInput | LaunchRefused | BudgetRefused) -> TrialEnd:
        """SageMaker refused the job or its next attempt (quota, permission), or its data cannot be read."""
        self._job.close(error)
        refused = not isinstance(error, BadInput)
        ended = self._ended(TrialStatus.FAILED, str(error), retryable=refused, transient=refused)
        return replace(ended, refused_beside=0 if isinstance(error, LaunchRefused) else None)

    def _failed(self, end: JobEnd) -> TrialEnd:
        kind = None if end.failure is None else end.failure[0]
        if kind is FailureKind.OUT_OF_MEMORY:
            return self._ended(TrialStatus.OUT_OF_MEMORY, end.reason)
        if end.state is JobState.STOPPED and kind is None:
            return self._ended(TrialStatus.STOPPED, self.stopped_because or end.reason)
        # A local job that was adopted from a dead driver has died with it, and says nothing about its point.
        died = self._is_adopted and not self._workplace.launcher.jobs_outlive_submitter
        retryable = died or kind in {FailureKind.CAPACITY, FailureKind.UNTRIED, FailureKind.CROWDED}
        ended = self._ended(
            TrialStatus.FAILED,
            end.reason,
            retryable=retryable and kind is not FailureKind.DIVERGED,
            transient=kind is FailureKind.CAPACITY,
        )
        conclusive = kind in {FailureKind.DIVERGED, FailureKind.OFF_PLAN}
        off_plan = kind is FailureKind.OFF_PLAN
        return replace(ended, alone=kind is FailureKind.CROWDED, conclusive=conclusive, off_plan=off_plan)

    def _completed(self, end: JobEnd) -> TrialEnd:
        found = self._with_best(self._by_itself(end.metrics))
        name = "" if self._quality is None else self._quality.metric
        if name in found and (not self.curve or self.curve[-1][0] < 1.0):
            self.curve.append((1.0, found[name]))
        compared = below_baseline(self.spec, found)  # a study says this itself, of the mean over seeds
        verdicts = tuple(sentence for sentence in end.verdicts if sentence not in compared)
        return replace(self._ended(TrialStatus.COMPLETED, ""), metrics=dict(found), verdicts=verdicts)

    def _by_itself(self, found: Mapping[str, float]) -> dict[str, float]:
        """What was measured, with seconds and dollars as of a job of its own, where it has shared one with others.

        So all points are compared alike, whatever trials theirs met; what is booked is the share of the bill.
        """
        job = self._job.current
        spared = job.spared_seconds() if isinstance(job, TrialOfSharedJob) else 0.0
        more = dict.fromkeys((metrics.JOB_SECONDS, metrics.BILLABLE_SECONDS), spared)
        more[metrics.COST_USD] = cost_usd(self._workplace.launcher.price(self.spec), self.spec, spared) or 0.0
        return {name: value + more.get(name, 0.0) for name, value in found.items()}

    def _ended(self, status: TrialStatus, reason: str, *, retryable: bool = False, transient: bool = False) -> TrialEnd:
        return TrialEnd(
            status=status,
            cost_usd=self._job.bill.cost_usd,
            kept_usd=self._job.bill.kept_usd,
            reason=reason,
            curve=tuple(self.curve),
            retryable=retryable,
            transient=transient,
            expected=self._expected if status is TrialStatus.STOPPED else {},
            at=self._workplace.clock.now(),
        )

    def _follow(self, events: list[Event]) -> None:
        quality = self._quality
        for event in events:
            self._progress.add(event)
            for name, values in self._told.items():
                values += [value for value in [_told(name, event)] if value is not None]
            value = None if quality is None else _told(quality.metric, event)
            if quality is not None and value is not None and event.total_steps:
                share = min(1.0, event.step / event.total_steps)
                if not self.curve or share > self.curve[-1][0]:
                    best_before = self.curve[-1][1] if self.curve and quality.take == BEST else value
                    self.curve.append((share, quality.better(value, best_before)))

    def _with_best(self, found: Mapping[str, float]) -> dict[str, float]:
        """What was measured, with the best value over the steps in place of the last one where that counts.

        From the curve of the job, which its events tell, and from the history of the metric in its run, where a project
        has logged it itself. The best value is recorded beside the last one, as NAME_best.
        """
        best = {}
        for name, direction in self._best_of.items():
            logged = self.record.run.curve(name).values()
            values = [*self._told[name], *logged, *([found[name]] if name in found else [])]
            if values := list(filter(math.isfinite, values)):
                best[name] = max(values) if direction == "maximize" else min(values)
        if best:
            self.record.run.log_metrics({f"{name}_best": value for name, value in best.items()})
            self.record.run.flush()
        return {**found, **best}


def _told(metric: str, event: Event) -> float | None:
    """The value of a metric that an event tells, under whichever name; None where it tells none."""
    return next((event.metrics[name] for name in curve_names(metric) if name in event.metrics), None)
