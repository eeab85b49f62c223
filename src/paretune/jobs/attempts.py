"""Follows one job through all its attempts: starts or adopts it, polls it, retries it if useful, bills and records it.

Each attempt is a job of its own for the launcher. `launch`, studies and `sync` follow all jobs with `Attempts`,
including jobs of projects.

The next attempt depends only on the run, on how earlier attempts ended, and on the failures that the command retries
(`decides`). A restarted command therefore goes through the same attempts, adopts those whose jobs exist, and starts
nothing twice.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import dropwhile
from typing import Any

from paretune.core.clock import Clock
from paretune.core.errors import (
    BudgetRefused,
    Interrupted,
    LaunchRefused,
    LostContact,
    ParetuneError,
    TrackingUnavailable,
)
from paretune.core.interruption import Interruption
from paretune.core.reading import at_home
from paretune.core.shell import command_line
from paretune.jobs.bill import NO_PRICE, Bill, price_tags
from paretune.jobs.outcome import JobOutcome, end_job
from paretune.jobs.preparation import inputs_of
from paretune.jobs.preview import Admitted, admit
from paretune.jobs.record import JobRecord
from paretune.jobs.run_names import run_name, trial_in_name
from paretune.launchers.base import SHOWN_WITHIN_S, Job, JobSetup, JobStatus, Launcher
from paretune.specification.container import JobDocument, JobInputs, measurements_of
from paretune.specification.ending import Cause
from paretune.specification.order import job_name
from paretune.tracking import schema

STOP_PATIENCE_S = 900.0  # longest wait until a job has stopped: two minutes to end, then the upload of its results
_MOST_INTERNAL_ERRORS = 2  # limit on the retries of a job after internal errors of AWS
WATCH_INTERVAL_S = 0.5  # seconds between two polls of a job; launchers ask a rate-limited service less often


@dataclass(eq=False)
class Attempts:
    """A job in progress. `begin` starts or adopts it; `poll` must be called repeatedly until it returns the outcome.

    `end` ends the job early. After an error, `leave` decides whether the job ends or continues without this process.
    """

    record: JobRecord
    admitted: Admitted | None = None  # the admitted job; if None, the job is admitted when it must be created
    creates: bool = True  # whether jobs may be created; if not, only existing ones are followed
    # Failures that this process retries in addition to `record.retries`. Another process that follows the job does not.
    decides: Collection[Cause] = ()
    document: JobDocument = field(init=False)  # the job of this attempt
    bill: Bill = field(init=False)
    current: Job | None = field(default=None, init=False)  # the job of this attempt; None until it is found or created
    outcome: JobOutcome | None = field(default=None, init=False)  # how the job ended; None until its end is recorded
    taken_by: str = field(default="", init=False)  # id of the other run that owns the job of this name; "" if none
    _memory_retries: int = field(default=0, init=False)
    _internal_errors: int = field(default=0, init=False)  # internal errors of AWS so far
    _may_be_created: bool = field(default=False, init=False)  # whether an unexpected error cut the creation short

    def __post_init__(self) -> None:
        record, spec = self.record, self.record.spec
        self.document = JobDocument.first(job_name(record.job, 1), spec, record.attribution, run_id=record.owner)
        self.bill = Bill(spec, record.price(spec))
        if self.admitted is not None:
            record.command = self.admitted.command

    @property
    def _launcher(self) -> Launcher:
        return self.record.workplace.launcher

    @property
    def _worst_usd(self) -> float | None:
        return None if self.admitted is None else self.admitted.worst_usd

    @property
    def _clock(self) -> Clock:
        return self.record.workplace.clock

    def begin(self) -> None:
        """Start this attempt's job, or adopt it if it exists. The job's name is recorded before the job is created.

        If the job of this name belongs to another run, `taken_by` is that run's id and `current` is None.

        Raises:
            BadInput, JobFailed, LaunchRefused, BudgetRefused, TrackingUnavailable: the job was not created.
            LostContact: the job may exist; its run stays open.
        """
        self.bill.worst_usd = self._worst_usd
        if self.document.attempt == 1:
            self.document = replace(self.document, plan=self.record.plan)
        # An adopted job keeps the owner and the price that it was launched with.
        self.document = replace(self.document, attribution=self.record.attribution)
        self.bill.price = self.record.price(self.document.spec)
        self.record.name_attempt(self.document.job_name)  # so that any later process can find the job
        is_new, follows_from_run = not self.record.is_adopted, self.record.job == self.record.run.run_id
        if is_new and self.document.attempt == 1 and self.record.run.has_gap and not follows_from_run:
            text = f"MLflow did not record the name of job {self.document.job_name}"
            raise TrackingUnavailable(f"{text}: nothing was launched; run the same command again")
        try:
            self.current = self._find()
            if self.current is None and not self.taken_by:
                if not self.creates:
                    raise LostContact(f"{self.document.job_name} is not visible now: try again in a minute")
                self.current = self._own(self._create())
                if self.current is not None and self.record.has_ended_meanwhile():
                    self._reopen(self.current)
        except BaseException as error:
            self._may_be_created = not isinstance(error, ParetuneError)
            raise

    def _reopen(self, job: Job) -> None:
        """Reopen the run that another process has closed while this one created the job, so that others find the job.

        If this is a first attempt, `sync` closed its run because the job seemed to have never been created: the job
        continues. If it is a later attempt, `paretune stop` closed the run: the job is stopped.
        """
        is_first = self.document.attempt == 1
        if is_first:
            self.record.begin_again()
            self.record.watch()
            with suppress(BudgetRefused):  # the job runs; its cost is recorded when it ends
                self._reserve()
        self.record.name_attempt(self.document.job_name)
        if not is_first:
            job.stop()

    def poll(self) -> JobOutcome | None:
        """Record new events, begin the next attempt if one is due, and return the outcome; None until the job ends.

        Raises:
            BadInput, JobFailed, LaunchRefused, BudgetRefused: the next attempt was not created.
            LostContact: the launcher cannot read the job's state; the job may still be running.
        """
        if self.outcome is not None:
            return self.outcome
        if self.current is None:
            self.begin()
            return None
        has_ended = self.current.state().is_terminal
        self._take_news()
        if not has_ended:
            return None
        status = self.current.status()
        self.bill.add(self.current)
        document, sentence = self._next(status)
        if document is not None and not self._may_go_on(document):
            document, sentence = None, "and it was stopped before a smaller batch was tried"
        if document is not None:
            self._go_on(document, sentence)
            return None
        return self._end(self.current, why_not_smaller=sentence)

    def _may_go_on(self, document: JobDocument) -> bool:
        """Return whether the next attempt exists or may be created.

        `paretune stop` creates none, and no process creates one after the run says that the job has ended.
        """
        if self.creates and not self.record.has_ended_meanwhile():
            return True
        return self._exists(document)

    def _exists(self, document: JobDocument) -> bool:
        """Return whether an attempt has been created. Raises LostContact if this is unknown."""
        return self._look_up(document, SHOWN_WITHIN_S) is not None

    def _next(self, status: JobStatus) -> tuple[JobDocument | None, str]:
        """Return the attempt that follows one that ended with `status`, and a message about it.

        The attempt is None if none follows. If the job ran out of memory, the message then says why no smaller batch is
        tried. What follows depends on the failure:

        - Out of memory: the per-device batch is made smaller if the job can accumulate gradients, except in a trial
          whose batch is searched or given.
        - Internal error of AWS: the job is tried again, at most _MOST_INTERNAL_ERRORS times.
        - No capacity: the next instance type is tried. This includes a spot job that waited too long for an instance,
          at its start or after an interruption. If it has run, those seconds are billed, and the job on the next type
          continues from its checkpoints.
        """
        ran, job, billed_s = self.document, self.record.spec, status.billable_seconds
        cause = None if status.ending is None else status.ending.cause

        def attempt(**changes: Any) -> JobDocument | None:
            number, spent_s = ran.attempt + 1, self.bill.billable_seconds
            name = job_name(self.record.job, number)
            again = replace(ran, job_name=name, attempt=number, spent_seconds=spent_s, **changes)
            return again if self._launcher.deadline_s(again) > 0 else None

        may_retry = cause in self.record.retries or cause in self.decides
        if cause is Cause.INTERNAL and may_retry:
            self._internal_errors += 1
            again = attempt() if self._internal_errors <= _MOST_INTERNAL_ERRORS else None
            title = self._launcher.traits.title
            return again, f"{title} had an internal error: the job continues from its last checkpoint"
        if cause is Cause.CAPACITY and may_retry:
            *_, last = self._launcher.types_of_request(ran.spec)
            _, *types = dropwhile(last.__ne__, job.instance_types())
            if not types:
                return None, ""
            following, *further = types  # with further types left, an on-demand job waits at most half an hour
            whole = job.with_its_batch() if self.record.takes_batch else job
            spec = whole.on_instance_type(following).replace(fallback_instance_types=tuple(further) or None)
            billed = f"; {billed_s:.0f} s of the last attempt are billed" if billed_s else ""
            message = f"no capacity for {ran.spec.instance_type}: trying {following}{billed}"
            fitting, is_smaller = spec.plan(), self._memory_retries or self.record.chosen_batch is not None
            while is_smaller and fitting.per_device_train_batch_size > ran.plan.per_device_train_batch_size:
                fitting = fitting.with_less_memory() or fitting
            return attempt(spec=spec, plan=fitting), message
        if cause is not Cause.OUT_OF_MEMORY or not self.record.accumulates:
            return None, ""
        batch, plan = f"with per-device batch {ran.plan.per_device_train_batch_size}", ran.plan.with_less_memory()
        if plan is None:
            return None, "with the smallest per-device batch that could be tried"
        if not may_retry:
            smaller = attempt(plan=plan) if self.record.is_adopted else None
            if smaller is None or not self._exists(smaller):
                return None, f"{batch}; its study tries no smaller one"
            return smaller, "out of memory: following the attempt with a smaller batch that its study has started"
        script, ended_at = at_home(job.entry_script or ""), status.ended_at
        runs_as_it_is = not self._launcher.jobs_outlive_submitter and script.is_file()
        if runs_as_it_is and ended_at and script.stat().st_mtime > ended_at - status.seconds:
            return None, f"{batch}; {script.name} has been changed since"
        if (smaller := attempt(plan=plan)) is None:
            return None, f"{batch}; max_runtime_minutes leaves no time to try a smaller one"
        return smaller, (
            f"out of memory: retrying with per-device batch {plan.per_device_train_batch_size} x "
            f"{plan.gradient_accumulation_steps} accumulation steps (global batch size stays {plan.global_batch_size})"
        )

    def wait(self, interruption: Interruption) -> JobOutcome:
        """Poll until the job has ended, and return its outcome.

        Raises the errors of `poll`. On Ctrl-C, raises Interrupted, and the job is still running.
        """
        while (outcome := self.poll()) is None:
            interruption.check()
            self._clock.sleep(WATCH_INTERVAL_S)
        return outcome

    def end(self, error: BaseException, *, stops: bool = True) -> JobOutcome:
        """End the job because of `error`, and return the outcome. A job that has completed by then keeps its result.

        A running job is first stopped and billed, unless `stops` is False, which means that no job can be running.
        Raises LostContact if the launcher does not confirm the stop; then the run stays open, and `sync` follows the
        job.
        """
        if self.outcome is None:
            if stops:
                try:
                    self._stop()
                except LostContact:
                    self.record.leave()
                    raise
            return self._end(self.current if stops else None, error=error)
        return self.outcome

    def _end(self, job: Job | None, *, error: BaseException | None = None, why_not_smaller: str = "") -> JobOutcome:
        """Record the end of the job, and remove the checkpoints of a completed one. The arguments are `end_job`'s."""
        self.outcome = end_job(self.record, self.bill, job, error=error, why_not_smaller=why_not_smaller)
        if job is not None and self.outcome.has_completed:
            job.clean_up()
        return self.outcome

    def leave(self, error: BaseException) -> None:
        """Let the job continue after `error` if it can outlive this process; otherwise end it.

        Ctrl-C ends the job unless another process also watches it. LostContact never ends it. If the job was not
        created because its first attempt was refused, its run is closed.

        Raises LostContact if a later attempt was refused; `sync` must then begin that attempt. Raises Interrupted if
        the job continues after Ctrl-C because another process watches it.
        """
        goes_on = self._launcher.jobs_outlive_submitter and self.outcome is None
        if goes_on and self.document.attempt > 1 and isinstance(error, LaunchRefused | BudgetRefused):
            self.record.leave()
            raise LostContact(f"{error}\n`{command_line('sync')}` continues it from its last checkpoint") from error
        goes_on = goes_on and self.current is not None and not isinstance(error, Interrupted | KeyboardInterrupt)
        if not (goes_on or self.record.is_watched_elsewhere or isinstance(error, LostContact)):
            self.end(error)
            return
        self.record.leave()
        if not goes_on and isinstance(error, Interrupted) and self.current is not None:
            text = f"{error}; {self.current.name} continues, `{command_line('sync')}` collects it"
            raise Interrupted(text) from error

    def _stop(self) -> None:
        """Stop the job, and add it to the bill once it has stopped.

        Raises LostContact if it has not stopped after STOP_PATIENCE_S.
        """
        if self._may_be_created or (self.record.is_adopted and self.current is None):
            self.current, self._may_be_created = self._find(SHOWN_WITHIN_S), False
        if self.current is None:
            return
        until = self._clock.monotonic() + STOP_PATIENCE_S
        self.current.stop()
        while not self.current.state().is_terminal:
            if self._clock.monotonic() > until:
                raise LostContact(
                    f"{self.current.name} was asked to stop {STOP_PATIENCE_S / 60:g} minutes ago and has not confirmed "
                    f"it: it may still be running; `{command_line('sync')}` follows it"
                )
            self._take_news()
            self._clock.sleep(WATCH_INTERVAL_S)
        self._take_news()
        self.bill.add(self.current)
        self._release_instances()

    def _create(self) -> Job:
        workplace, record = self.record.workplace, self.record
        self._reserve()
        workplace.interruption.on_check.append(record.beat)  # an upload may take hours
        try:
            order = self._first_attempt() if self.document.attempt == 1 else self._next_attempt()
            return self._launcher.submit(*order)
        finally:
            workplace.interruption.on_check.remove(record.beat)

    def _reserve(self) -> None:
        record = self.record
        name = job_name(record.job, 1)
        record.workplace.reserve(record.spec, record.attribution, record.owner, self._worst_usd, name)

    def _first_attempt(self) -> tuple[JobDocument, JobInputs, JobSetup]:
        """Return document, inputs and setup of the first attempt.

        The job is admitted here if an earlier process died before it created the job. The setup that the earlier
        process recorded in MLflow is not used, because anybody with access to MLflow may have edited it.
        """
        record, workplace = self.record, self.record.workplace
        if self.admitted is None:
            self.admitted = admit(record.spec, workplace, revision=record.revision, judges_limit=False)
            record.log_setup(self.admitted.setup)
            record.command = self.admitted.command
        if self._launcher.traits.files_travel:
            workplace.say("uploading code, data and model, and creating the job")
        return self.document, self.admitted.inputs, self.admitted.setup

    def _next_attempt(self) -> tuple[JobDocument, JobInputs, None]:
        """Return document and inputs of a later attempt; the inputs are empty if the first attempt has sent them."""
        record, document = self.record, self.document
        if self._launcher.traits.files_travel:
            settings = record.settings or self._launcher.check(record.spec).recorded
            return replace(document, spec=document.spec.replace(**settings)), JobInputs(), None
        if self.admitted is not None:
            return document, self.admitted.inputs, None
        return document, inputs_of(record.spec, record.workplace, revision=record.revision), None

    def _find(self, within_s: float = 0.0) -> Job | None:
        """Find this run's job of this attempt, whichever process started it.

        Raises LostContact if it is unknown whether the job exists.
        """
        return self._own(self._look_up(self.document, within_s))

    def _look_up(self, document: JobDocument, within_s: float) -> Job | None:
        """Return the job that has the name of an attempt, or None. Raises LostContact if the launcher cannot tell."""
        try:
            return self._launcher.find(document.job_name, self._clock, within_s)
        except LaunchRefused as error:
            raise LostContact(f"{error}\n`{command_line('sync')}` finds the job if it was started before") from error

    def _own(self, job: Job | None) -> Job | None:
        """Return the job if it belongs to this run; otherwise set `taken_by` and return None.

        AWS accepts each name only once, and identical jobs have the same name, so one of several runs owns the job.
        """
        if job is None or job.run_id == self.record.owner:
            return job
        self.taken_by = job.run_id
        return None

    def _take_news(self) -> None:
        """Record new events, and the instance type that the service has chosen, whose price is used from now on."""
        assert self.current is not None  # the callers have checked
        chosen = self.current.chosen_instance_type()
        if chosen not in ("", self.document.spec.instance_type):
            self._move(replace(self.document, spec=self.record.spec.on_instance_type(chosen)))  # its plan stays
        events = self.current.events()
        if self.record.runs_user_code:
            events = measurements_of(events, self.current.name)
        is_step = bool(events) and bool(events[-1].metrics) and events[-1].step > 0
        self.record.log_progress(self.current, events, self.bill.so_far_usd(self.current) if is_step else None)
        self.record.workplace.on_events(events)

    def _go_on(self, document: JobDocument, message: str) -> None:
        """Switch to the next attempt; the next poll begins or adopts its job."""
        is_smaller = document.plan != self.document.plan
        has_moved = document.spec.instance_type != self.document.spec.instance_type
        self.current = None
        if has_moved:
            self._move(document)
        else:
            self.document = document
            if is_smaller:
                self._memory_retries += 1
                self.record.log_attempt(document.plan, {schema.OUT_OF_MEMORY_RETRIES: str(self._memory_retries)})
            else:
                self.record.run.set_tags({schema.REPEATED: "true"})
            self._release_instances(tries_again=True)  # else this pool is billed along with the next job's
        self.record.workplace.say(message)

    def _move(self, document: JobDocument) -> None:
        """Switch to another instance type, whose price is used from now on."""
        ran, self.document = self.document, document
        self.bill.ran, self.bill.price = document.spec, self.record.price(document.spec)
        count = str(document.spec.instance_count)
        recorded = self.record.run.tags()
        trial = trial_in_name(recorded)
        before, after = (f"{trial}{run_name(each.spec, takes_seed=self.record.takes_seed)}" for each in (ran, document))
        name = after if recorded.get(schema.RUN_NAME) == before else None  # else the user has renamed it
        tags = {schema.USED_INSTANCE_TYPE: document.spec.instance_type, schema.USED_INSTANCE_COUNT: count}
        price = {**NO_PRICE, **price_tags(self.bill.price)}  # no part of the price of the other type stays
        self.record.log_attempt(document.plan, {**price, **tags, schema.RUN_NAME: name})

    def _release_instances(self, *, tries_again: bool = False) -> None:
        if problem := self.bill.release_instances(tries_again=tries_again):
            self.record.workplace.say(problem)
