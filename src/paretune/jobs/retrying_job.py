"""One job over all its attempts: started or adopted, looked at, tried again where that helps, recorded.

An attempt that ran out of memory is followed by one with a smaller per-device batch; one that found no capacity, by one
on the next instance type. A spot job that waited too long found none either: its seconds are booked, and the next type
continues from its checkpoints. What follows depends on nothing but how the attempts before it ended, so a launcher that
died and is started again goes through the same attempts, adopts what is there, and starts nothing twice.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact, ParetuneError
from paretune.jobs.preparation import inputs_of
from paretune.jobs.recording import JobRunWriter
from paretune.jobs.result import JobResult
from paretune.launchers.base import CREATED_WITHIN_S, Job, job_name
from paretune.launchers.shared import SharedJobs, attach
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import Event, FailureKind, JobDocument, JobInputs
from paretune.tracking import schema

CAPACITY_PAUSE_S = 60.0
"""Between two rounds of asking all instance types for capacity."""

STOP_PATIENCE_S = 900.0
"""How long a job may take to stop: two minutes to end, then its results travel; or nobody answers any more."""

WATCH_INTERVAL_S = 0.5
"""Between two looks at a job; a launcher that pays for looking limits itself."""

_WITH_SHARED_CHECKPOINTS = {"ddp", "smddp", "fsdp"}  # another number of devices can continue from them
_SEEN_WITHIN_S = 5.0
"""Seconds until AWS shows a job whose creation was cut short on this side."""


class RetryingJob:
    """A job under way. `begin` starts or adopts it; `poll` from time to time, until it says that it has ended.

    Args:
        inputs: makes the job's inputs, by default as `inputs_of` does; not called while attempts can be adopted.
        plan: the batch of the first attempt, where it is not the one that was asked for.
        halves: whether a job that ran out of memory is tried again with a smaller batch.
        name: of the first attempt's job, where that is not named after the run alone: a trial of a shared job.
        shared: where such trials are put together.
    """

    def __init__(
        self,
        writer: JobRunWriter,
        on_events: Callable[[list[Event]], None],
        *,
        inputs: Callable[[], JobInputs] | None = None,
        plan: BatchPlan | None = None,
        halves: bool = True,
        name: str = "",
        shared: SharedJobs | None = None,
    ) -> None:
        self.current: Job | None = None
        """The job of this attempt; None between two attempts."""
        self.writer = writer
        spec, workplace = writer.spec, writer.workplace
        self._spec = spec
        self._launcher = workplace.launcher
        self._inputs = inputs or (lambda: inputs_of(spec, workplace))
        self.clock = workplace.clock
        self._on_events = on_events
        self._halves = halves
        first = name or job_name(writer.run.run_id, 1)
        self._document = JobDocument.first(first, spec, plan, attribution=writer.attribution)
        self._selected: tuple[str, int] | None = None  # instances of this attempt, where SageMaker chooses them
        self._shared = shared
        self._without_capacity = 0
        self._waiting_since: float | None = None
        self._pause: Mapping[str, Any] = {}  # that an earlier process has begun
        self._not_before = 0.0
        self._booked = ""  # the last job whose bill has been added
        self._may_be_created = False  # a Ctrl-C has cut CreateTrainingJob short

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        return self._document.attempt

    def resume(self, tags: Mapping[str, str]) -> None:
        """Take up the pause between two attempts that an earlier process has written down in the run's tags."""
        self._pause = json.loads(tags.get(schema.WAITING) or "{}")
        self._waiting_since = self._pause.get("since")

    def begin(self) -> None:
        """Start this attempt's job, or adopt it if it is there."""
        self.writer.begin_attempt(self._document)
        claimed = self.clock.monotonic()
        job = self._find()
        try:
            self.current = job if job is not None else self._reserved_and_submitted()
        except BaseException as error:
            self._may_be_created = not isinstance(error, ParetuneError)
            raise
        if self.clock.monotonic() - claimed > CREATED_WITHIN_S:  # `sync` may have taken it for one that died
            self.writer.begin_attempt(self._document)
            self.writer.run.reopen()

    def _reserved_and_submitted(self) -> Job:
        self.writer.reserve()
        return self._submit()

    def _submit(self) -> Job:
        submit, inputs = self._launcher.submit if self._shared is None else self._shared.submit, self._inputs()
        if not self._document.spec.on_sagemaker:
            return submit(self._document, inputs)
        with self.writer.workplace.working_on("uploading code, data and model, and creating the job"):
            return submit(self._document, inputs)

    def poll(self) -> JobResult | None:
        """Record what is new; begin the next attempt when this one calls for one. The finished job; None until then.

        Raises:
            JobFailed, OutOfMemory: it has ended without a result.
        """
        if self.current is None:
            if self.clock.now() >= self._not_before:
                self.begin()
            return None
        ended = self.current.state().is_terminal
        self._take_events()
        if not ended:
            return None
        self._book(self.current)
        following = self._following(self.current)
        if following is not None:
            self._document, self._selected = following, None
            self.current = None
            return None
        try:
            outcome = self.writer.finish(self.current)
        finally:
            self._tell_of_pool(self.current)
        self.current.clean_up()
        return outcome

    def stop(self) -> None:
        """Stop what runs, wait until the launcher says so, and book what it cost; a job not created yet is none.

        Raises:
            LostContact: nobody has said within STOP_PATIENCE_S that it has stopped.
        """
        if self._may_be_created:
            self.current = self._find_created()
        if self.current is None:
            return
        until = self.clock.monotonic() + STOP_PATIENCE_S
        self.current.stop()
        while not self.current.state().is_terminal:
            if self.clock.monotonic() > until:
                raise LostContact(
                    f"{self.current.name} was asked to stop {STOP_PATIENCE_S / 60:g} minutes ago, and has not said "
                    f"that it has: it may still be running; `{command_line('sync')}` follows it"
                )
            self._take_events()
            self.clock.sleep(WATCH_INTERVAL_S)
        self._take_events()
        self._book(self.current)
        self._give_back()

    def abandon(self, error: BaseException) -> None:
        """Stop and book what runs and close its run, because of `error`; after a `LostContact` leave both as they are.

        Raises:
            LostContact: the job cannot be seen to stop; its run stays open.
        """
        if isinstance(error, LostContact):
            self.writer.leave()
            return
        try:
            self.stop()
        except LostContact:
            self.writer.leave()
            raise
        self.writer.give_up(error, self.current)

    def _find(self) -> Job | None:
        try:
            name = self._document.job_name
            return attach(self._launcher, name) if self._shared is None else self._shared.attach(name)
        except LaunchRefused as error:  # its run must stay open: the job may be there
            raise LostContact(f"{error}\n`{command_line('sync')}` finds the job, if it was started before") from error

    def _find_created(self) -> Job | None:
        """The job of this attempt; looked for as long as AWS may take to show it."""
        until = self.clock.monotonic() + _SEEN_WITHIN_S
        while (job := self._find()) is None and self.clock.monotonic() < until:
            self.clock.sleep(WATCH_INTERVAL_S)
        self._may_be_created = False
        return job

    def _book(self, job: Job) -> None:
        if self._booked == job.name:
            return
        ran = self._as_it_runs()
        if job.has_lost_plan():
            ran = replace(ran, spec=ran.spec.replace(training_plan=None))
            self.writer.change_type(ran)
        self.writer.book(job, ran)
        self._booked = job.name

    def _take_events(self) -> None:
        assert self.current is not None  # the callers have looked
        events = self.current.events()
        self.writer.follow(self.current, events)
        self._on_events(events)
        self._take_selection(self.current)

    def _take_selection(self, job: Job) -> None:
        """Record, once, which of the instance types that the job may run on SageMaker has taken."""
        selected = job.selected_instances() if self._document.plans else None
        if selected is None or selected == self._selected:
            return
        self._selected = selected
        ran = self._as_it_runs()
        self.writer.change_type(ran)
        kind, count = selected
        plan = ran.plan
        self._tell(
            f"SageMaker has taken {count} x {kind}: global batch size {plan.global_batch_size} = "
            f"{plan.per_device_train_batch_size} x {plan.devices} x {plan.gradient_accumulation_steps}"
        )

    def _as_it_runs(self) -> JobDocument:
        """The document on the instances that SageMaker has taken; as it was sent where it had no choice, or before."""
        if self._selected is None or not self._document.plans:
            return self._document
        kind, count = self._selected
        ran = self._document.on(kind)
        if count == ran.spec.instance_count:
            return ran
        return replace(ran, spec=ran.spec.replace(instance_count=count, global_batch_size=None))

    def _following(self, job: Job) -> JobDocument | None:
        """The next attempt; None when there is none, or no time left for it."""
        failure = job.failure()  # of one that was stopped as asked there is none
        kind = failure[0] if failure is not None else None
        if kind is FailureKind.CAPACITY:
            return self._with_another_type(job)
        ran = self._as_it_runs()
        if kind is not FailureKind.OUT_OF_MEMORY or not self._halves or ran.plan.with_less_memory() is None:
            return None
        document = self._document
        plans = {name: plan.with_less_memory() or plan for name, plan in document.plans.items()}
        again = self._next(plan=document.plan.with_less_memory() or document.plan, plans=plans)
        if again.max_seconds <= 0:
            return None
        self._give_back()  # a pool beside the next job's would be paid twice; SageMaker bills no start-up
        self._tell(self.writer.retry(again.on(ran.spec.instance_type)))
        return again

    def _with_another_type(self, job: Job) -> JobDocument | None:
        """The next type of the list; after the last one the first again, as long as capacity_wait_minutes allows.

        Where one job names all types, SageMaker has tried them in turn, and the next job names all of them again.
        """
        all_at_once = bool(self._document.plans)
        types = (" or ".join(self._spec.instance_types()),) if all_at_once else self._spec.instance_types()
        tried = types[self._without_capacity % len(types)]
        self._without_capacity += 1
        following = types[self._without_capacity % len(types)]
        if self._waiting_since is None:
            self._waiting_since = self.clock.now() - job.seconds()
        if all_at_once:
            again = self._next()
        else:
            spec = self._spec.on_instance_type(following)
            shared = self._spec.spec_hash() if self._spec.strategy in _WITH_SHARED_CHECKPOINTS else ""
            again = self._next(spec=spec, plan=spec.plan(), checkpoint_key=shared)
        if again.max_seconds <= 0:
            return None
        pause = 0.0
        round_is_over = self._without_capacity % len(types) == 0
        is_paused = self._pause.get("job") == again.job_name  # by a launcher that died or has left it
        if is_paused:
            pause = max(0.0, self._pause["until"] - self.clock.now())
        elif round_is_over and self._launcher.attach(again.job_name) is None:  # else it has gone on
            waited = self.clock.now() + CAPACITY_PAUSE_S - self._waiting_since
            if waited > self._spec.capacity_wait_minutes * 60:
                return None
            pause = CAPACITY_PAUSE_S
        self._not_before = self.clock.now() + pause
        if pause and not is_paused:
            known = {"job": again.job_name, "since": self._waiting_since, "until": self._not_before}
            self.writer.run.set_tags({schema.WAITING: json.dumps(known)})
        self._launcher.wake_at(self._not_before)
        self._tell(f"no capacity for {tried}: {f'in {pause:g} s ' if pause else ''}trying {following}{_billed(job)}")
        if not all_at_once:
            self.writer.change_type(again)
        return again

    def _next(self, **changes: object) -> JobDocument:
        attempt = self._document.attempt + 1
        return replace(
            self._document,
            job_name=job_name(self.writer.run.run_id, attempt),
            attempt=attempt,
            spent_seconds=self.writer.billable_seconds,
            **changes,  # type: ignore[arg-type]  # names of its fields
        )

    def _give_back(self) -> None:
        """End the warm pools of the attempts that have ended."""
        for sentence in self.writer.release():
            self._tell(sentence)

    def _tell_of_pool(self, job: Job) -> None:
        """Say that instances are kept after the job, and what that may cost."""
        pool, usd = self.writer.pool, self.writer.promised_usd()
        if pool is not None and pool.is_kept:
            most = "" if usd is None else f", for at most {usd:.4g} USD more"
            self._tell(
                f"the instances of {job.name} are kept for {pool.most_seconds / 60:g} minutes for the next job like "
                f"it{most}; `{command_line('sync')}` books what they cost"
            )

    def _tell(self, message: str) -> None:
        self._on_events([Event(time=self.clock.now(), step=0, message=message)])


def _billed(job: Job) -> str:
    """What a job without capacity is billed all the same: one on spot that trained until its instances were taken."""
    billed = job.billable_seconds()
    return f"; {billed:.0f} s are billed until then" if billed else ""
