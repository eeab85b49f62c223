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
from pathlib import Path

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
from paretune.jobs.bill import Bill
from paretune.jobs.outcome import JobOutcome, end_job
from paretune.jobs.plan import PLAN, completed, planned_again
from paretune.jobs.record import JobRecord
from paretune.jobs.remaining import Course, Remaining, remaining
from paretune.jobs.run_names import run_name, trial_in_name
from paretune.launchers.base import SHOWN_WITHIN_S, Job, JobStatus, Launcher
from paretune.presentation.text import duration
from paretune.specification.container import measurements_of
from paretune.specification.ending import Cause
from paretune.specification.order import Offer, Order, job_name
from paretune.specification.parallelism import BatchPlan
from paretune.tracking import schema
from paretune.tracking.recorded_run import NO_PRICE, price_tags

STOP_PATIENCE_S = 900.0  # longest wait until a job has stopped: two minutes to end, then the upload of its results
_MOST_INTERNAL_ERRORS = 2  # limit on the retries of a job after internal errors of AWS
_LONGEST_SILENCE_S = 60.0  # seconds after which the waiting command says how far its job is, if nothing else is shown
WATCH_INTERVAL_S = 0.5  # seconds between two polls of a job; launchers ask a rate-limited service less often


@dataclass(eq=False)
class Attempts:
    """A job in progress. `begin` starts or adopts it; `poll` must be called repeatedly until it returns the outcome.

    `end` ends the job early. After an error, `leave` decides whether the job ends or continues without this process.
    """

    record: JobRecord
    creates: bool = True  # whether jobs may be created; if not, only existing ones are followed
    # Failures that this process retries in addition to `record.retries`. Another process that follows the job does not.
    decides: Collection[Cause] = ()
    order: Order = field(init=False)  # the job of this attempt
    bill: Bill = field(init=False)
    current: Job | None = field(default=None, init=False)  # the job of this attempt; None until it is found or created
    outcome: JobOutcome | None = field(default=None, init=False)  # how the job ended; None until its end is recorded
    taken_by: str = field(default="", init=False)  # id of the other run that owns the job of this name; "" if none
    _memory_retries: int = field(default=0, init=False)
    _internal_errors: int = field(default=0, init=False)  # internal errors of AWS so far
    _shown_s: float = field(default=0.0, init=False)  # when something of the job was last shown to who waits
    _may_be_created: bool = field(default=False, init=False)  # whether an unexpected error cut the creation short

    def __post_init__(self) -> None:
        self._take_plan()

    def _take_plan(self) -> None:
        """Begin with the first attempt of the record's plan."""
        self.order = self.record.plan.order(self.record.job, self.record.owner)
        self.bill = Bill(self.record.plan)
        self.course = Course()  # of the current attempt

    @property
    def _launcher(self) -> Launcher:
        return self.record.workplace.launcher

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
        if self.order.attempt == 1:
            self._take_plan()  # the record may have been adopted, or planned, since this object was made
        self.record.name_attempt(self.order.job_name)  # so that any later process can find the job
        is_new, follows_from_run = not self.record.is_adopted, self.record.job == self.record.run.run_id
        if is_new and self.order.attempt == 1 and self.record.run.has_gap and not follows_from_run:
            what = "the name" if self.record.run.is_waiting else f"{PLAN}, an artifact of the run,"
            text = f"MLflow did not record {what} of job {self.order.job_name}"
            raise TrackingUnavailable(f"{text}: nothing was launched; run the same command again")
        try:
            self.current = self._find()
            if self.current is None and not self.taken_by:
                if not self.creates:
                    raise LostContact(f"{self.order.job_name} is not visible now: try again in a minute")
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
        is_first = self.order.attempt == 1
        if is_first:
            self.record.begin_again()
            self.record.watch()
            with suppress(BudgetRefused):  # the job runs; its cost is recorded when it ends
                self._reserve()
        self.record.name_attempt(self.order.job_name)
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
        order, sentence = self._next(status)
        if order is not None and not self._may_go_on(order):
            order, sentence = None, "and it was stopped before a smaller batch was tried"
        if order is not None:
            self._go_on(order, sentence)
            return None
        return self._end(self.current, why_not_smaller=sentence)

    def _may_go_on(self, order: Order) -> bool:
        """Return whether the next attempt exists or may be created.

        `paretune stop` creates none, and no process creates one after the run says that the job has ended.
        """
        if self.creates and not self.record.has_ended_meanwhile():
            return True
        return self._exists(order)

    def _exists(self, order: Order) -> bool:
        """Return whether an attempt has been created. Raises LostContact if this is unknown."""
        return self._look_up(order, SHOWN_WITHIN_S) is not None

    def _next(self, status: JobStatus) -> tuple[Order | None, str]:
        """Return the attempt that follows one that ended with `status`, and a message about it.

        The attempt is None if none follows. If the job ran out of memory, the message then says why no smaller batch is
        tried. What follows depends on the failure:

        - Out of memory: the per-device batch is made smaller if the job can accumulate gradients, except in a trial
          whose batch is searched or given.
        - Internal error of AWS: the job is tried again, at most _MOST_INTERNAL_ERRORS times.
        - No capacity: the next offer is tried. This includes a spot job that waited too long for an instance, at its
          start or after an interruption. If it has run, those seconds are billed, and the job on the next type
          continues from its checkpoints.
        """
        ran, plan, billed_s = self.order, self.record.plan, status.billable_seconds
        cause = None if status.ending is None else status.ending.cause

        def attempt(offers: tuple[Offer, ...] | None = None, batch: BatchPlan | None = None) -> Order | None:
            spent_s = self.bill.billable_seconds
            again = ran.next(attempt=ran.attempt + 1, spent_s=spent_s, offers=offers, batch=batch)
            return again if again.has_time else None

        may_retry = cause in plan.retries or cause in self.decides
        if cause is Cause.INTERNAL and may_retry:
            self._internal_errors += 1
            again = attempt() if self._internal_errors <= _MOST_INTERNAL_ERRORS else None
            title = self._launcher.traits.title
            return again, f"{title} had an internal error: the job continues from its last checkpoint"
        if cause is Cause.CAPACITY and may_retry:
            offers = ran.offers[len(ran.together) :]
            if not offers:
                return None, ""
            fitting, is_smaller = offers[0].batch, self._memory_retries or plan.chosen_batch is not None
            while is_smaller and fitting.per_device_train_batch_size > ran.batch.per_device_train_batch_size:
                fitting = fitting.with_less_memory() or fitting
            billed = f"; {duration(billed_s)} of the last attempt are billed" if billed_s else ""
            message = f"no capacity for {ran.offer.instance_type}: trying {offers[0].instance_type}{billed}"
            return attempt(offers, fitting), message
        if cause is not Cause.OUT_OF_MEMORY or not plan.accumulates:
            return None, ""
        batch, smaller_batch = ran.batch.per_device_train_batch_size, ran.batch.with_less_memory()
        tried = f"with per-device batch {batch}"
        if smaller_batch is None:
            return None, "with the smallest per-device batch that could be tried"
        if not may_retry:
            smaller = attempt(batch=smaller_batch) if self.record.is_adopted else None
            if smaller is None or not self._exists(smaller):
                return None, f"{tried}; its study, which chooses the batches, does not try this job with a smaller one"
            return smaller, "out of memory: following the attempt with a smaller batch that its study has started"
        if (script := self._changed_script(status)) is not None:
            return None, f"{tried}; {script.name} has been changed since"
        if (smaller := attempt(batch=smaller_batch)) is None:
            return None, f"{tried}; max_runtime_minutes leaves no time to try a smaller one"
        rows, steps = smaller_batch.per_device_train_batch_size, smaller_batch.gradient_accumulation_steps
        return smaller, (
            f"out of memory: retrying with per-device batch {rows} x {steps} accumulation steps (global batch size "
            f"stays {smaller_batch.global_batch_size})"
        )

    def _changed_script(self, status: JobStatus) -> Path | None:
        """Return the script of a job on this machine if it was changed after the attempt began, else None."""
        card = self.record.plan.card
        if self._launcher.jobs_outlive_submitter or card.kind != "script" or status.ended_at is None:
            return None
        script = at_home(str(self.record.plan.identity.given["entry_script"]))
        is_changed = script.is_file() and script.stat().st_mtime > status.ended_at - status.seconds
        return script if is_changed else None

    def wait(self, interruption: Interruption) -> JobOutcome:
        """Poll until the job has ended, and return its outcome.

        Raises the errors of `poll`. On Ctrl-C, raises Interrupted, and the job is still running.
        """
        began_s = self._shown_s = self._clock.now()
        while (outcome := self.poll()) is None:
            interruption.check()
            self._clock.sleep(WATCH_INTERVAL_S)
            now_s = self._clock.now()
            if now_s - self._shown_s >= _LONGEST_SILENCE_S and self._launcher.virtual_clock is None:
                self._shown_s, left = now_s, self.remaining()
                far = "it counts no epochs or steps that say how far it is" if left is None else str(left)
                self.record.workplace.say(f"{self.order.job_name}, after {duration(now_s - began_s)}: {far}")
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
        if goes_on and self.order.attempt > 1 and isinstance(error, LaunchRefused | BudgetRefused):
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
                    f"{self.current.name} was asked to stop {duration(STOP_PATIENCE_S)} ago and has not confirmed "
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
            self._complete_order()
            return self._launcher.submit(self.order)
        finally:
            workplace.interruption.on_check.remove(record.beat)

    def _reserve(self) -> None:
        record = self.record
        record.workplace.reserve(record.plan, record.owner, job_name(record.job, 1))

    def _complete_order(self) -> None:
        """Add to the order what only this machine has: the inputs, and for a first attempt the whole plan.

        The job is planned here if an earlier process died before it created the job.
        """
        record, workplace = self.record, self.record.workplace
        if self.order.attempt > 1:
            self.order = completed(self.order, record.plan, workplace)
            return
        if not record.plan.is_whole or record.plan.inputs is None:
            record.describe(planned_again(record.plan, workplace))
            self._take_plan()
        if self._launcher.traits.files_travel:
            workplace.say("uploading code, data and model, and creating the job")

    def _find(self, within_s: float = 0.0) -> Job | None:
        """Find this run's job of this attempt, whichever process started it.

        Raises LostContact if it is unknown whether the job exists.
        """
        return self._own(self._look_up(self.order, within_s))

    def _look_up(self, order: Order, within_s: float) -> Job | None:
        """Return the job that has the name of an attempt, or None. Raises LostContact if the launcher cannot tell."""
        try:
            return self._launcher.find(order.job_name, self._clock, within_s)
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
        if chosen not in ("", self.order.offer.instance_type):
            offers = [offer for offer in self.order.offers if offer.instance_type != chosen]
            offer = replace(self.record.plan.offer_on(chosen), batch=self.order.batch)
            self._move(replace(self.order, offers=(offer, *offers)))
        events = self.current.events()
        if self.record.plan.card.is_users:
            events = measurements_of(events, self.current.name)
        self.course.add(events)
        events = [event for event in events if event.progress is None]
        is_step = bool(events) and bool(events[-1].metrics) and events[-1].step > 0
        self.record.log_progress(self.current, events, self.bill.so_far_usd(self.current) if is_step else None)
        if any(event.message or any(name.startswith("eval") for name in event.metrics) for event in events):
            self._shown_s = self._clock.now()
        self.record.workplace.on_events(events)

    @property
    def has_begun(self) -> bool:
        """Whether the training of the running attempt has sent its number of steps, a metric or its progress."""
        return self.course.has_begun

    def remaining(self) -> Remaining | None:
        """Return what is left of the running attempt; None if no counter of its training says so."""
        return remaining(self.course, self.bill, self._launcher.traits, self._clock.now())

    def _go_on(self, order: Order, message: str) -> None:
        """Switch to the next attempt; the next poll begins or adopts its job."""
        self.course = Course()
        is_smaller = order.batch != self.order.batch
        has_moved = order.offer.instance_type != self.order.offer.instance_type
        self.current = None
        if has_moved:
            self._move(order)
        else:
            self.order = order
            if is_smaller:
                self._memory_retries += 1
                self.record.log_attempt(order.batch, {schema.OUT_OF_MEMORY_RETRIES: str(self._memory_retries)})
            else:
                self.record.run.set_tags({schema.REPEATED: "true"})
            self._release_instances(tries_again=True)  # else this pool is billed along with the next job's
        self.record.workplace.say(message)

    def _move(self, order: Order) -> None:
        """Switch to another instance type, whose price is used from now on."""
        ran, self.order = self.order.offer, order
        self.bill.offer = offer = order.offer
        recorded, card = self.record.run.tags(), self.record.plan.card
        before, after = (f"{trial_in_name(recorded)}{run_name(card, each.instance_type)}" for each in (ran, offer))
        name = after if recorded.get(schema.RUN_NAME) == before else None  # else the user has renamed it
        count = str(offer.instance_count)
        tags = {schema.USED_INSTANCE_TYPE: offer.instance_type, schema.USED_INSTANCE_COUNT: count}
        price = {**NO_PRICE, **price_tags(offer.price)}  # no part of the price of the other type stays
        self.record.log_attempt(order.batch, {**price, **tags, schema.RUN_NAME: name})

    def _release_instances(self, *, tries_again: bool = False) -> None:
        if problem := self.bill.release_instances(tries_again=tries_again):
            self.record.workplace.say(problem)
