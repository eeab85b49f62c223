"""The job of one trial: started or adopted, polled, stopped; and the warm pools that jobs leave behind."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from paretune.core.errors import BadInput, BudgetRefused, LaunchRefused, LostContact, TrackingUnavailable
from paretune.core.shell import command_line
from paretune.jobs.attempts import STOP_PATIENCE_S, WATCH_INTERVAL_S, Attempts
from paretune.jobs.bill import KeptPool
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.preparation import inputs_of
from paretune.jobs.record import JobRecord
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import JobState, job_name
from paretune.specification.container import FailureKind
from paretune.studies.results.trials import Trial, TrialStatus
from paretune.studies.search.table import StudyTable
from paretune.tracking.run import Run

_STATUSES = {
    FailureKind.OUT_OF_MEMORY: TrialStatus.OUT_OF_MEMORY,
    FailureKind.DIVERGED: TrialStatus.DIVERGED,
    FailureKind.CAPACITY: TrialStatus.REFUSED,
}


class TrialJob:
    """A trial under way."""

    def __init__(self, trial: Trial, run: Run, workplace: Workplace, study: str) -> None:
        self.trial = trial
        self.number = trial.number
        self.spec = trial.spec
        self._workplace = workplace
        self.record = JobRecord(self.spec, workplace, run=run, study=study)
        self._job = Attempts(self.record)

    def begin(self, *, adopt: bool = False) -> Trial | None:
        """Open its record and start its job, unless that is `adopt`ed; the ended trial where it could not be started.

        Raises LostContact if nobody can see from here whether it was started.
        """
        try:
            tags = self.record.run.tags() if adopt else {}
            if adopt:  # before anything that takes a while, so that `sync` leaves it alone
                self.record.watch()
            if adopt and self._can_adopt(tags):
                self.record.adopt()
            else:
                if adopt:
                    self.record.begin_again()
                worst_usd, run_id = self.trial.worst_usd, self.record.run.run_id  # with uploads of unknown length
                self._workplace.reserve(self.spec, self.record.attribution, run_id, worst_usd)
                inputs = inputs_of(self.spec, self._workplace)
                self.record.describe(inputs, estimate=self._workplace.estimate(self.spec, inputs))
            self._job.begin()
        except (BadInput, LaunchRefused, BudgetRefused) as error:
            return self._refused(error)
        return None

    def poll(self) -> Trial | None:
        """The trial once it has ended, or None while its job runs."""
        try:
            end = self._job.poll()
        except (BadInput, LaunchRefused) as error:  # of the next attempt
            return self._refused(error)
        return None if end is None else self._ended(end)

    def ask_to_stop(self) -> None:
        """Begin to stop its job, without waiting for it."""
        if self._job.current is not None:
            self._job.current.stop()

    def abandon(self, error: BaseException) -> Trial:
        """Stop the job now, wait until it has stopped, close its run; raises LostContact if it may still run."""
        self._job.stop()
        end = self._job.close(error, self._job.current)
        return self._ended(end) if end.has_completed else self._end(TrialStatus.INTERRUPTED, str(error))

    def _can_adopt(self, tags: Mapping[str, str]) -> bool:
        name = job_name(self.record.run.run_id, 1)
        if not tags:  # every run of a trial has some
            text = f"MLflow does not tell where {name} is: the same command finds it, if it was started before"
            raise LostContact(text)
        try:
            if reason := self._workplace.elsewhere(tags):
                raise LostContact(f"trial {self.number} ({name}) cannot be followed from here: {reason}")
            return self._workplace.launcher.attach(name) is not None
        except (BadInput, LaunchRefused) as error:
            raise LostContact(f"{error}: the same command finds {name}, if it was started before") from error

    def _refused(self, error: BadInput | LaunchRefused | BudgetRefused) -> Trial:
        """The end if SageMaker refused the job or an attempt (quota, permission), or if its data cannot be read."""
        self._job.close(error)
        if isinstance(error, BadInput):
            return self._end(TrialStatus.FAILED, str(error))
        beside = 0 if isinstance(error, LaunchRefused) else None
        return self._end(TrialStatus.REFUSED, str(error), refused_beside=beside)

    def _ended(self, end: JobOutcome) -> Trial:
        kind = None if end.failure is None else end.failure[0]
        if end.has_completed:
            measured, verdicts = dict(end.metrics), tuple(end.verdicts)
            return self._end(TrialStatus.COMPLETED, "", measured=measured, verdicts=verdicts)
        if "MaxRuntimeExceeded" in end.reason:  # as SageMaker calls it, and the other launchers
            return self._end(TrialStatus.CUT_OFF, end.reason)
        if kind in _STATUSES:
            return self._end(_STATUSES[kind], end.reason)
        if end.state is JobState.STOPPED and kind is None:
            return self._end(TrialStatus.STOPPED, end.reason)
        # A local job that was adopted from a dead driver has died with it: its end says nothing about its point.
        has_died = self.record.is_adopted and not self._workplace.launcher.jobs_outlive_submitter
        return self._end(TrialStatus.INTERRUPTED if has_died else TrialStatus.FAILED, end.reason)

    def _end(self, status: TrialStatus, reason: str, **more: Any) -> Trial:
        return replace(
            self.trial,
            status=status,
            cost_usd=self._job.bill.cost_usd,
            billed_s=self._job.bill.billable_seconds,
            kept_usd=self._job.bill.kept_usd,
            reason=reason,
            ended_at=self._workplace.clock.now(),
            **more,
        )


class KeptPools:
    """The warm pools that the jobs of a study have left, by trial, whichever driver ran it."""

    def __init__(self, table: StudyTable, workplace: Workplace, say: Callable[[str], None]) -> None:
        self._table, self._workplace, self._say = table, workplace, say
        self._pools: dict[int, KeptPool] = {}

    def settle(self) -> None:
        """Book the pools that are no longer kept."""
        for trial in [trial for trial in self._table.trials()[1] if trial.kept_usd]:
            # What cannot be looked at is tried again, and `sync` looks, too.
            with suppress(BadInput, LaunchRefused, TrackingUnavailable, LostContact):
                if trial.number not in self._pools:
                    run = self._workplace.tracking.runs(f"attributes.run_id = '{trial.run_id}'")[0]
                    self._pools[trial.number] = KeptPool(run, self._workplace)
                usd, sentence = self._pools[trial.number].settle()
                if usd is not None:
                    self._table.save(replace(trial, cost_usd=(trial.cost_usd or 0.0) + usd, kept_usd=None))
                    del self._pools[trial.number]
                    self._say(f"trial {trial.number}: {sentence}")

    def give_back(self) -> None:
        """Give all pools back and book them; says which are still billed."""
        self.settle()
        for number, pool in self._pools.items():
            try:
                pool.release()
            except LostContact as error:
                self._say(f"trial {number}: {error}")
        clock = self._workplace.clock
        until = clock.monotonic() + STOP_PATIENCE_S
        self.settle()
        while self._pools and clock.monotonic() < until:
            clock.sleep(WATCH_INTERVAL_S)
            self.settle()
        for number, pool in self._pools.items():
            self._say(
                f"trial {number}: the instances kept after {pool.name} are still billed: `{command_line('sync')}`"
            )
