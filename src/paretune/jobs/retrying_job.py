"""One job over all its attempts: started or adopted, polled, tried again where that helps, billed and recorded.

Jobs of `launch`, of studies, of `sync` and of projects are all followed by this class.

An attempt that ran out of memory is followed by one with a smaller per-device batch, unless the run says that the job
is not tried again; one that found no capacity, by one on the next instance type. A spot job that waited too long has
found none either: its seconds are billed, and the next type continues from its checkpoints. What follows depends only
on the run and on how the attempts before it ended, so a launcher that died and is started again goes through the same
attempts, adopts what is there, and starts nothing twice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact, ParetuneError
from paretune.core.interruption import Interruption
from paretune.jobs.bill import JobBill
from paretune.jobs.ending import JobEnd, record_abandoned, record_end
from paretune.jobs.record import JobRecord
from paretune.launchers.base import CREATED_WITHIN_S, Job, Launcher, job_name
from paretune.specification.container import Event, FailureKind, JobDocument, JobInputs

STOP_PATIENCE_S = 900.0  # the longest time that a job takes to stop: two minutes to end, then its results travel

WATCH_INTERVAL_S = 0.5  # between two polls of a job; a launcher that pays for polling limits itself

SHOWN_WITHIN_S = 5.0  # seconds until AWS shows a job whose creation was cut short on this side


class CapacitySearch:
    """One job's search for capacity, over all its attempts: each of its instance types is tried once."""

    def __init__(self, record: JobRecord) -> None:
        self._record = record
        self._refusals = 0

    def next_attempt(self, refused: Job, make: Callable[..., JobDocument]) -> tuple[JobDocument, str] | None:
        """The attempt after `refused` and a message about it; None if no type or no time is left.

        `make` makes the document of the next attempt from that of `refused`, with changed attributes.
        """
        types = self._record.spec.instance_types()
        self._refusals += 1
        if self._refusals >= len(types):
            return None
        tried, following = types[self._refusals - 1], types[self._refusals]
        spec = self._record.spec.on_instance_type(following)
        attempt = make(spec=spec, plan=spec.plan())
        if attempt.max_seconds <= 0:
            return None
        billed_s = refused.billable_seconds()  # more than 0 on spot: it trained until its instances were taken
        message = f"no capacity for {tried}: trying {following}"
        return attempt, message + (f"; {billed_s:.0f} s are billed until then" if billed_s else "")


class SmallerBatches:
    """One job's attempts with smaller per-device batches, after it ran out of memory."""

    def __init__(self, record: JobRecord) -> None:
        self.retries = 0  # number of attempts so far with a smaller batch than the one before
        self.why_not = ""  # the reason why the job is not tried again with a smaller batch; empty if it is
        self._record = record

    def next_attempt(self, ran: JobDocument, make: Callable[..., JobDocument]) -> tuple[JobDocument, str] | None:
        """The attempt after `ran`, which ran out of memory, and a message about it; None if there is none."""
        batch = f"with per-device batch {ran.plan.per_device_train_batch_size}"
        smaller = ran.plan.with_less_memory()
        if smaller is None:
            self.why_not = "with the smallest per-device batch that could be tried"
            return None
        if not self._record.retries_smaller:
            self.why_not = f"{batch}; a trial of a study is not tried again with a smaller one"
            return None
        again = make(plan=smaller)
        if again.max_seconds <= 0:
            self.why_not = f"{batch}; max_runtime_minutes leaves no time to try a smaller one"
            return None
        self.retries += 1
        plan = again.plan
        self._record.log_memory_retry(self.retries, plan)
        return again, (
            f"out of memory: again with per-device batch {plan.per_device_train_batch_size} x "
            f"{plan.gradient_accumulation_steps} accumulation steps (global batch size stays {plan.global_batch_size})"
        )


@dataclass(eq=False)
class RetryingJob:
    """A job under way. `begin` starts or adopts it; `poll` it from time to time until it returns how the job ended."""

    record: JobRecord
    document: JobDocument  # the job of this attempt; at first that of the first attempt
    on_events: Callable[[list[Event]], None]  # called with all that the job reports and its launcher's messages
    inputs: Callable[[], JobInputs]  # makes the job's inputs; not called while attempts can be adopted
    bill: JobBill = field(init=False)
    current: Job | None = field(default=None, init=False)  # the job of this attempt; None between two attempts
    end: JobEnd | None = field(default=None, init=False)  # how the job ended; None until its end is recorded
    batches: SmallerBatches = field(init=False)  # what follows when it runs out of memory
    capacity: CapacitySearch = field(init=False)
    _may_be_created: bool = field(default=False, init=False)  # whether a Ctrl-C has cut CreateTrainingJob short

    def __post_init__(self) -> None:
        self.bill = JobBill(self.record.spec, self._launcher)
        self.batches = SmallerBatches(self.record)
        self.capacity = CapacitySearch(self.record)

    @property
    def _launcher(self) -> Launcher:
        return self.record.workplace.launcher

    @property
    def _clock(self) -> Clock:
        return self.record.workplace.clock

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        return self.document.attempt

    def begin(self) -> None:
        """Start this attempt's job, or adopt it if it exists. Its name is recorded before it is created.

        Raises:
            BadInput, LaunchRefused, BudgetRefused: it was not created.
            LostContact: it may have been created; its run stays open.
        """
        with self._claimed():
            self.current = _find(self.document.job_name, self._launcher) or self._create()

    @contextmanager
    def _claimed(self) -> Iterator[None]:
        """Record the name of this attempt's job before it is created, so that any later process can find the job."""
        self.record.name_attempt(self.document.job_name)
        claimed = self._clock.monotonic()
        try:
            yield
        except BaseException as error:
            self._may_be_created = not isinstance(error, ParetuneError)
            raise
        if self._clock.monotonic() - claimed > CREATED_WITHIN_S:  # `sync` may have closed the run meanwhile
            self.record.name_attempt(self.document.job_name)
            self.record.run.reopen()

    def poll(self) -> JobEnd | None:
        """Record what is new and begin the next attempt if one is due. How the job ended; None while it runs.

        Raises:
            BadInput, LaunchRefused, BudgetRefused: the next attempt was not created.
            LostContact: AWS does not answer; the job may still be running.
        """
        if self.end is not None:
            return self.end
        if self.current is None:
            self.begin()
            return None
        has_ended = self.current.state().is_terminal
        self._take_events()
        if not has_ended:
            return None
        self.bill.add(self.current, self.document.spec)
        if self._goes_on(self.current):
            return None
        try:
            self.end = record_end(self.record, self.bill, self.current, self.batches.why_not)
        finally:
            if sentence := self.bill.kept_sentence():
                self._announce(sentence)
        if self.end.completed is not None:
            self.current.clean_up()
        return self.end

    def wait(self, interruption: Interruption) -> JobEnd:
        """Poll until the job has ended.

        Raises:
            Interrupted: the job goes on; call `abandon` to stop it or `record.leave` to leave it.
            BadInput, LaunchRefused, BudgetRefused, LostContact: as `poll`.
        """
        while (end := self.poll()) is None:
            interruption.check()
            self._clock.sleep(WATCH_INTERVAL_S)
        return end

    def stop(self) -> None:
        """Stop what runs and bill it once the launcher confirms that; raises LostContact after STOP_PATIENCE_S."""
        if self._may_be_created:
            self.current = self._find_created()
        if self.current is None:
            return
        until = self._clock.monotonic() + STOP_PATIENCE_S
        self.current.stop()
        while not self.current.state().is_terminal:
            if self._clock.monotonic() > until:
                raise LostContact(
                    f"{self.current.name} was asked to stop {STOP_PATIENCE_S / 60:g} minutes ago, and has not said "
                    f"that it has: it may still be running; `{command_line('sync')}` follows it"
                )
            self._take_events()
            self._clock.sleep(WATCH_INTERVAL_S)
        self._take_events()
        self.bill.add(self.current, self.document.spec)
        self._release_instances()

    def abandon(self, error: BaseException) -> None:
        """Stop and bill what runs and close its run because of `error`; after a LostContact both are left as they are.

        Raises:
            LostContact: the job cannot be seen to stop; its run stays open.
        """
        if isinstance(error, LostContact):
            self.record.leave()
            return
        try:
            self.stop()
        except LostContact:
            self.record.leave()
            raise
        self.close(error, self.current)

    def close(self, error: BaseException, job: Job | None = None) -> JobEnd:
        """Close the run because of `error`; a result that `job` has all the same is recorded."""
        if self.end is None:
            self.end = record_abandoned(self.record, self.bill, error, job)
        return self.end

    def _create(self) -> Job:
        workplace = self.record.workplace
        workplace.budgets(self.record.spec, self.record.attribution).reserve(self.record.run.run_id)
        inputs = self.inputs()
        if not self.document.spec.on_sagemaker:
            return self._launcher.submit(self.document, inputs)
        with workplace.working_on("uploading code, data and model, and creating the job"):
            return self._launcher.submit(self.document, inputs)

    def _find_created(self) -> Job | None:
        until = self._clock.monotonic() + SHOWN_WITHIN_S
        while (job := _find(self.document.job_name, self._launcher)) is None and self._clock.monotonic() < until:
            self._clock.sleep(WATCH_INTERVAL_S)
        self._may_be_created = False
        return job

    def _take_events(self) -> None:
        assert self.current is not None  # the callers have checked
        events = self.current.events()
        self.record.log_progress(self.current, events)
        self.on_events(events)

    def _goes_on(self, job: Job) -> bool:
        """Whether an attempt follows this ended one; adopted at once, so that an interruption stops and bills it."""
        document = self._following(job)
        if document is None:
            return False
        self.document, self.current = document, None
        if self.record.is_adopted and (adopted := _find(document.job_name, self._launcher)) is not None:
            self.record.name_attempt(adopted.name)
            self.current = adopted
        return True

    def _following(self, job: Job) -> JobDocument | None:
        failure, following = job.failure(), None
        kind = failure[0] if failure is not None else None  # None for a job that was stopped as asked
        if kind is FailureKind.CAPACITY:
            following = self.capacity.next_attempt(job, self._next)
        elif kind is FailureKind.OUT_OF_MEMORY and not self.record.spec.runs_project:
            following = self.batches.next_attempt(self.document, self._next)
            if following is not None:  # a pool beside the next job's would be paid twice; SageMaker bills no start-up
                self._release_instances()
        if following is None:
            return None
        document, message = following
        self._announce(message)
        if kind is FailureKind.CAPACITY:
            self.bill.change_instances(document.spec)
            self.record.log_instances(document, self.bill.price)
        return document

    def _next(self, **changes: object) -> JobDocument:
        attempt = self.document.attempt + 1
        return replace(
            self.document,
            job_name=job_name(self.record.run.run_id, attempt),
            attempt=attempt,
            spent_seconds=self.bill.billable_seconds,
            **changes,  # type: ignore[arg-type]  # names of its fields
        )

    def _release_instances(self) -> None:
        for problem in self.bill.release_instances():
            self._announce(problem)

    def _announce(self, message: str) -> None:
        self.on_events([Event(time=self._clock.now(), step=0, message=message)])


def _find(name: str, launcher: Launcher) -> Job | None:
    """The job with this name, if any, whoever started it; raises LostContact, and then its run must stay open."""
    try:
        return launcher.attach(name)
    except LaunchRefused as error:
        raise LostContact(f"{error}\n`{command_line('sync')}` finds the job, if it was started before") from error
