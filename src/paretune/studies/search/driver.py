"""Drives a study: asks Optuna for trials, runs their jobs several at a time, books what they cost.

The order of writing lets another driver replace one that is killed at any moment:

    asked in Optuna -> reserved in the ledger -> run created in MLflow -> job created -> run filled -> booked -> told

A driver that starts continues the trials that an earlier one has not ended, and tells Optuna what is booked and was not
told. A local job has died with its driver: its trial ends as failed, what it has cost is booked, and its job is started
again from its checkpoint. One driver at a time works on a study, see `StudyLedger.locked`.

With `once` a driver does what can be done now and leaves its jobs to the next one: it raises CallAgain where another
would wait. What it must know of earlier ones it reads in the ledger, in Optuna's storage and in the tags of runs.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from paretune.core.errors import (
    BadInput,
    BudgetRefused,
    CallAgain,
    Interrupted,
    JobFailed,
    LostContact,
    ParetuneError,
)
from paretune.jobs.attempts import WATCH_INTERVAL_S
from paretune.jobs.record import opening_tags, run_name
from paretune.jobs.workplace import Workplace
from paretune.ledger.study_ledger import StudyLedger
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialNote
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Trial
from paretune.studies.search.admission import Admission
from paretune.studies.search.code_errors import CodeErrors
from paretune.studies.search.concurrency import ConcurrencyLimit
from paretune.studies.search.kept_pools import KeptPools
from paretune.studies.search.optuna_study import OptunaStudy, Point
from paretune.studies.search.trial_history import TrialHistory
from paretune.studies.search.trial_job import TrialJob
from paretune.tracking import schema

MOST_REFUSALS = 12  # suggestions in a row that make no job, or repeat one, before untried points are listed instead
ROUND_S = 600.0  # virtual seconds from one call with `once` to the next, of a study of simulated jobs
_MOST_NAMED = 8


class Driver:
    """One process at work on a study."""

    def __init__(
        self,
        file: StudyFile,
        study: OptunaStudy,
        ledger: StudyLedger,
        *,
        run_id: str,  # MLflow run of the study
        workplace: Workplace,
        on_trial: Callable[[Trial], None],  # called with each trial that was booked
        say: Callable[[str], None],  # prints a line
    ) -> None:
        self.file = file
        self.study = study
        self.ledger = ledger
        self.workplace = workplace
        self.run_id = run_id
        # all trials of the study that have ended.
        self.history = TrialHistory(file, ledger, workplace.launcher.origin)
        self.admission = Admission(file, ledger, workplace, self.history)  # what the budgets still allow
        self._on_trial = on_trial
        self._say = say
        self._once = file.once
        self._has_moved = False  # something has happened since `wait` was called last
        self._jobs: dict[int, TrialJob] = {}  # jobs that have not ended, by trial
        self._pools = KeptPools(file.name, ledger, workplace, say)
        self._code_errors = CodeErrors(file.search)
        self._concurrency = ConcurrencyLimit(workplace.clock, workplace.launcher)

    @property
    def trials(self) -> dict[int, Trial]:
        """All trials of the study that have ended, in the order of booking."""
        return self.history.trials

    @property
    def running(self) -> tuple[TrialJob, ...]:
        """Jobs that have not ended."""
        return tuple(self._jobs.values())

    def adopt(self) -> None:
        """Continue the trials of earlier drivers, and tell Optuna what they have booked and not told."""
        entries = self._refresh()
        if self._once:
            self._concurrency.recall(entry.end for entry in entries if entry.end is not None)
            self.history.impossible |= self.study.impossible()
        else:  # this driver was started after the code was corrected
            self._code_errors = CodeErrors(self.file.search, has_completed=bool(self.history.measured))
        running = self.ledger.running()
        for entry in running:
            self._say(f"trial {entry.trial}: taken over")
            self._begin(entry.trial, JobSpec.read(entry.given), entry.run_id, entry.note, adopt=True)
        self._pools.find()
        reserved = {*self.trials, *(entry.trial for entry in running)}
        for number in self.study.running():  # asked for and never reserved: nothing was begun
            if number not in reserved:
                self.admission.release(number)  # first: once Optuna is told, no driver finds it here any more
                self.study.tell_failed(number)

    def begin(self, point: Point, note: TrialNote | None = None) -> int | None:
        """Ask for a trial at a point and start its job; its number, or None if no job was started (see `start`)."""
        number = self.study.ask_for(point, {} if note is None else note.changes)
        return number if self.start(number, point, note) else None

    def start(self, number: int, point: Point, note: TrialNote | None = None) -> bool:
        """Start the job of a trial; False if none was started, for example because its outcome is known.

        Point and seed are added to the `note` that the ledger keeps of the trial.
        """
        note = note or TrialNote()
        if (spec := self._spec_of(number, point, note.changes)) is None:
            return False
        note = replace(note, point=point, seed=spec.seed)
        identity = spec.spec_hash()
        if (equal_trial := self.history.settled.get(identity)) is not None:
            self.study.report_outcome(self.ledger.entry(equal_trial), self.history, number)
            return False
        try:
            has_limit = "max_runtime_minutes" in note.changes and note.repeats is None
            limited = spec if has_limit else self.admission.worst_case.limited(spec)
            is_reserved = self.admission.reserve(number, limited, note, identity=identity)
        except BudgetRefused as error:
            is_reserved = False
            self._say(f"trial {number}: {error}")
        if not is_reserved:
            self.study.tell_failed(number)
            return False
        self.history.retries.pop(identity, None)
        self._begin(number, limited, "", note)
        return True

    def start_retry(self) -> bool:
        """Start a retryable job again if one is due; returns whether one was."""
        if (identity := self.history.next_retry(self.workplace.clock.now())) is None:
            return False
        note = self.history.retries.pop(identity).note
        self.begin(note.point, note)
        return True

    def has_free_slot(self) -> bool:
        """Whether a further job may be started; False for good after a dropped plan or two equal errors of the code."""
        running = len(self._jobs)
        may_start = not self._code_errors.reason and self._concurrency.has_free_slot(running)
        return may_start and running < self.file.n_parallel

    def is_open(self, spec: JobSpec) -> bool:
        """Whether the job could be started now: not closed, not running anywhere, not waiting for a retry."""
        running = {job.spec.spec_hash() for job in self.running}
        is_taken = spec.spec_hash() in running | set(self.history.retries)
        return not is_taken and not self.history.is_closed(spec)

    def poll(self) -> None:
        """Ask for the state of all jobs once, and book those that have ended.

        Raises:
            LaunchRefused, JobFailed: no job runs any more; a plan was dropped, or two had the same error of the code.
        """
        for job in self.running:
            attempt = job.attempt
            if (end := job.poll()) is not None:
                self._conclude(job, end)
            self._has_moved |= job.attempt != attempt
        self._pools.settle()
        if not self._jobs:
            again = "the command without once=true" if self._once else "the same command"
            if self.admission.has_enough(self.history.counted):  # failed trials count, too
                again += f" with --n_trials {self.history.counted + (self.file.n_trials or 0)}"
            if self._code_errors.reason:
                raise JobFailed("of the study", f"{self._code_errors.reason}; then {again} continues")

    def wait(self) -> None:
        """Sleep until the next poll; with `once`, raise CallAgain instead if nothing has happened since then."""
        self.workplace.interruption.check()
        if not self._once:
            self.workplace.clock.sleep(WATCH_INTERVAL_S)
        elif not self._has_moved:
            raise CallAgain(_progress(self.file.name, len(self.trials), self._jobs.keys()))
        self._has_moved = False

    def stop(self, error: BaseException) -> None:
        """Stop and book running jobs, or leave them running if `on_interrupt` is detach; with `once`, all of them."""
        jobs = dict(self._jobs)
        left = {
            number
            for number, job in jobs.items()
            if self._once
            or isinstance(error, LostContact)
            or (isinstance(error, Interrupted) and job.spec.on_interrupt == "detach" and job.spec.on_sagemaker)
        }
        for number in jobs.keys() - left:
            with suppress(ParetuneError):  # all at once, before one is waited for
                jobs[number].ask_to_stop()
        for job in self.running:
            try:
                if job.number not in left:
                    with self.study.reachable():
                        self._conclude(job, job.abandon(error))
                    continue
            except ParetuneError as failure:
                self._say(f"trial {job.number}: {failure}")
            job.record.leave()
        with suppress(LostContact):
            self.finish(gives_back=not left and not self._once)

    def finish(self, *, gives_back: bool = True) -> None:
        """Give back warm pools."""
        if gives_back:
            self._pools.find()
            self._pools.give_back(waits=not self._once)
            self.history.refresh()

    def _spec_of(self, number: int, point: Point, changes: Mapping[str, Any]) -> JobSpec | None:
        """The job of a trial; None if its point makes none, which Optuna is told."""
        identity = ""
        try:
            spec = self.file.spec_at(point).replace(**changes)
            identity = spec.spec_hash()
            self.workplace.launcher.check(spec)
        except BadInput as error:
            self.history.impossible |= {identity} - {""}
            self.study.tell_impossible(number, identity)
            self._say(f"trial {number}: not possible: {error.faults[0]}")
            return None
        if self.history.cannot_fit(spec) and identity not in self.history.settled:
            self.study.tell_impossible(number)
            reason = "a job with no more rows per device ran out of memory on a device as large"
            self._say(f"trial {number}: not run: {reason}")
            return None
        return spec

    def _begin(self, number: int, spec: JobSpec, run_id: str, note: TrialNote, *, adopt: bool = False) -> None:
        tracking = self.workplace.tracking
        if not run_id and adopt:  # a driver may have died between creating the run and recording it
            condition = f"tags.`{schema.PARENT}` = '{self.run_id}' and tags.`{schema.TRIAL}` = '{number}'"
            run_id = next((run.run_id for run in tracking.runs(condition, newest=1)), "")
        tags = {schema.PARENT: self.run_id, schema.TRIAL: str(number), **opening_tags(spec, self.workplace)}
        run = tracking.run(run_id) if run_id else tracking.create(f"trial {number}: {run_name(spec)}", tags)
        self.admission.name_run(number, run.run_id)
        job = self._jobs[number] = TrialJob(
            number,
            spec,
            run,
            self.workplace,
            file=self.file,
            note=note,
        )
        if (end := job.begin(adopt=adopt)) is not None:
            self._conclude(job, end)
            if end.retryable:
                self._concurrency.job_refused(len(self._jobs), end.reason)
        else:
            self._concurrency.job_created()

    def _conclude(self, job: TrialJob, end: TrialEnd) -> None:
        """Book how a trial ended, then tell Optuna, so that nothing is told that is not booked."""
        if end.refused_beside is not None:
            end = replace(end, refused_beside=len(self._jobs) - 1)
        self._has_moved = True
        self.ledger.book(job.number, end, settled=self.history.is_settled(job.spec.spec_hash(), end))
        self._jobs.pop(job.number, None)
        if end.kept_usd:
            self._pools.find()
        self._refresh()
        self._on_trial(self.trials[job.number])

    def _refresh(self) -> list[TrialEntry]:
        """Read what was booked since the last call, and tell Optuna."""
        entries = self.history.refresh()
        for entry in entries:
            if remark := self.admission.worst_case.add(entry):
                self._say(remark)
            self.study.report_outcome(entry, self.history)
            self._code_errors.add(entry)
        self.admission.refresh(has_news=bool(entries))
        for retry in self.history.retries.values():
            if (virtual_clock := self.workplace.launcher.virtual_clock) is not None:
                virtual_clock.wake_at(retry.not_before)
        return entries


def _progress(study: str, count: int, running: Collection[int]) -> str:
    """In words, the state in which `once` leaves the study: how many trials have ended, and which are under way."""
    names = ", ".join(map(str, sorted(running)[:_MOST_NAMED])) + (", ..." if len(running) > _MOST_NAMED else "")
    under_way = f"{len(running)} under way ({names})" if running else "none under way"
    return f"study {study} has not ended: {count} trials have ended, {under_way}: call again"
