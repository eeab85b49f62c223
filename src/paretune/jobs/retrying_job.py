"""One job over all its attempts: started or adopted, polled, tried again where that helps, billed and recorded.

Jobs of `launch`, of studies, of `sync` and of projects are all followed by this class.

An attempt that ran out of memory is followed by one with a smaller per-device batch; one that found no capacity, by one
on the next instance type. A spot job that waited too long has found none either: its seconds are billed, and the next
type continues from its checkpoints. What follows depends only on how the attempts before it ended, so a launcher that
died and is started again goes through the same attempts, adopts what is there, and starts nothing twice.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from paretune.core.commands import command_line
from paretune.core.errors import LaunchRefused, LostContact, ParetuneError
from paretune.core.interruption import Interruption
from paretune.jobs.bill import JobBill
from paretune.jobs.ending import JobEnd, record_abandoned, record_end
from paretune.jobs.preparation import inputs_of
from paretune.jobs.record import JobRecord
from paretune.launchers.base import CREATED_WITHIN_S, Job, job_name
from paretune.launchers.shared_jobs import SharedJobs, attach, split_job_name
from paretune.specification.batch_size import BatchPlan
from paretune.specification.container import Event, FailureKind, JobDocument, JobInputs
from paretune.tracking import schema

CAPACITY_PAUSE_S = 60.0
"""Between two rounds of asking all instance types for capacity."""

STOP_PATIENCE_S = 900.0
"""How long a job may take to stop: two minutes to end, then its results travel; or nobody answers any more."""

WATCH_INTERVAL_S = 0.5
"""Between two polls of a job; a launcher that pays for polling limits itself."""

_WITH_SHARED_CHECKPOINTS = {"ddp", "smddp", "fsdp"}  # another number of devices can continue from them
_SHOWN_WITHIN_S = 5.0
"""Seconds until AWS shows a job whose creation was cut short on this side."""


def first_job_name(run_id: str, tags: Mapping[str, str]) -> str:
    """The name of the first attempt's job of a run with these tags; a trial of a shared job keeps its recorded name."""
    recorded = tags.get(schema.JOB_NAME, "")
    return recorded if split_job_name(recorded)[1] else job_name(run_id, 1)


class RetryingJob:
    """A job under way. `begin` starts or adopts it; `poll` it from time to time until it returns how the job ended.

    Args:
        on_events: called with everything that the job reports and with messages of its launcher.
        inputs: makes the job's inputs, by default as `inputs_of` does; not called while attempts can be adopted.
        plan: the batch of the first attempt, if it is not the one that was asked for.
        retry_smaller: whether a job that ran out of memory is tried again with a smaller batch; never a project's.
        name: name of the first attempt's job, for a trial of a shared job; by default made from the run.
        shared: the shared jobs of this process, if the job is a trial.
    """

    def __init__(
        self,
        record: JobRecord,
        on_events: Callable[[list[Event]], None],
        *,
        inputs: Callable[[], JobInputs] | None = None,
        plan: BatchPlan | None = None,
        retry_smaller: bool = True,
        name: str = "",
        shared: SharedJobs | None = None,
    ) -> None:
        spec, workplace = record.spec, record.workplace
        self.record = record
        self.bill = JobBill(spec, workplace.launcher)
        self.current: Job | None = None
        """The job of this attempt; None between two attempts."""
        self.end: JobEnd | None = None
        """How the job ended; None until its end is recorded."""
        self._spec = spec
        self._launcher = workplace.launcher
        self._clock = workplace.clock
        self._inputs = inputs or (lambda: inputs_of(spec, workplace))
        self._on_events = on_events
        self._retry_smaller = retry_smaller and not spec.runs_project
        first = name or job_name(record.run.run_id, 1)
        self._document = JobDocument.first(first, spec, plan, attribution=record.attribution)
        self._selected: tuple[str, int] | None = None  # instances of this attempt, where SageMaker chooses them
        self._shared = shared
        self._memory_retries = 0
        self._without_capacity = 0
        self._waiting_since: float | None = None
        self._pause: Mapping[str, Any] = {}  # that an earlier process has begun
        self._not_before = 0.0
        self._billed_name = ""  # the last job that is in the bill
        self._may_be_created = False  # a Ctrl-C has cut CreateTrainingJob short

    @property
    def attempt(self) -> int:
        """Number of the attempt, from 1."""
        return self._document.attempt

    def resume_pause(self, tags: Mapping[str, str]) -> None:
        """Continue the pause between two attempts that an earlier process has recorded in the run's tags."""
        self._pause = json.loads(tags.get(schema.WAITING) or "{}")
        self._waiting_since = self._pause.get("since")

    def begin(self) -> None:
        """Start this attempt's job, or adopt it if it exists. Its name is recorded before it is created.

        Raises:
            BadInput, LaunchRefused, BudgetRefused: it was not created.
            LostContact: it may have been created; its run stays open.
        """
        self.record.name_attempt(self._document.job_name)
        claimed = self._clock.monotonic()
        try:
            self.current = self._find() or self._create()
        except BaseException as error:
            self._may_be_created = not isinstance(error, ParetuneError)
            raise
        if self._clock.monotonic() - claimed > CREATED_WITHIN_S:  # `sync` may have closed the run meanwhile
            self.record.name_attempt(self._document.job_name)
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
            if self._clock.now() >= self._not_before:
                self.begin()
            return None
        has_ended = self.current.state().is_terminal
        self._take_events()
        if not has_ended:
            return None
        self._add_to_bill(self.current)
        following = self._following(self.current)
        if following is not None:
            self._document, self._selected = following, None
            self.current = None
            return None
        try:
            self.end = record_end(self.record, self.bill, self.current)
        finally:
            self._announce_pool(self.current)
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
        """Stop what runs, wait until the launcher confirms it, and bill it.

        Raises:
            LostContact: the launcher has not confirmed it within STOP_PATIENCE_S.
        """
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
        self._add_to_bill(self.current)
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

    def _find(self) -> Job | None:
        try:
            name = self._document.job_name
            return attach(self._launcher, name) if self._shared is None else self._shared.attach(name)
        except LaunchRefused as error:  # its run must stay open: the job may be there
            raise LostContact(f"{error}\n`{command_line('sync')}` finds the job, if it was started before") from error

    def _create(self) -> Job:
        workplace = self.record.workplace
        workplace.budgets(self._spec, self.record.attribution).reserve(self.record.run.run_id)
        submit, inputs = self._launcher.submit if self._shared is None else self._shared.submit, self._inputs()
        if not self._document.spec.on_sagemaker:
            return submit(self._document, inputs)
        with workplace.working_on("uploading code, data and model, and creating the job"):
            return submit(self._document, inputs)

    def _find_created(self) -> Job | None:
        """The job of this attempt; looks for it as long as AWS may take to show it."""
        until = self._clock.monotonic() + _SHOWN_WITHIN_S
        while (job := self._find()) is None and self._clock.monotonic() < until:
            self._clock.sleep(WATCH_INTERVAL_S)
        self._may_be_created = False
        return job

    def _take_events(self) -> None:
        assert self.current is not None  # the callers have checked
        events = self.current.events()
        self.record.log_progress(self.current, events)
        self._on_events(events)
        self._take_selection(self.current)

    def _take_selection(self, job: Job) -> None:
        """Record, once, which of the allowed instance types SageMaker has selected."""
        selected = job.capacity().instances if self._document.plans else None
        if selected is None or selected == self._selected:
            return
        self._selected = selected
        ran = self._as_it_runs()
        self._change_instances(ran)
        instance_type, count = selected
        plan = ran.plan
        self._announce(
            f"SageMaker has taken {count} x {instance_type}: global batch size {plan.global_batch_size} = "
            f"{plan.per_device_train_batch_size} x {plan.devices} x {plan.gradient_accumulation_steps}"
        )

    def _as_it_runs(self) -> JobDocument:
        """The document on the instances that SageMaker has selected; unchanged without a choice, or before."""
        if self._selected is None or not self._document.plans:
            return self._document
        instance_type, count = self._selected
        ran = self._document.on(instance_type)
        if count == ran.spec.instance_count:
            return ran
        return replace(ran, spec=ran.spec.replace(instance_count=count, global_batch_size=None))

    def _change_instances(self, document: JobDocument) -> None:
        self.bill.change_instances(document.spec)
        self.record.log_instances(document, self.bill.price)

    def _add_to_bill(self, job: Job) -> None:
        """Add an ended attempt to the bill, once."""
        if self._billed_name == job.name:
            return
        ran = self._as_it_runs()
        if job.capacity().has_lost_plan:
            ran = replace(ran, spec=ran.spec.replace(training_plan=None))
            self._change_instances(ran)
        self.record.tag_arns(job)
        self.bill.add(job, ran.spec)
        self._billed_name = job.name

    def _following(self, job: Job) -> JobDocument | None:
        """The next attempt; None if there is none, or no time left for it."""
        failure = job.failure()  # None for a job that was stopped as asked
        kind = failure[0] if failure is not None else None
        if kind is FailureKind.CAPACITY:
            return self._with_another_type(job)
        ran = self._as_it_runs()
        if kind is not FailureKind.OUT_OF_MEMORY or not self._retry_smaller or ran.plan.with_less_memory() is None:
            return None
        document = self._document
        plans = {name: plan.with_less_memory() or plan for name, plan in document.plans.items()}
        again = self._next(plan=document.plan.with_less_memory() or document.plan, plans=plans)
        if again.max_seconds <= 0:
            return None
        self._release_instances()  # a pool beside the next job's would be paid twice; SageMaker bills no start-up
        self._memory_retries += 1
        plan = again.on(ran.spec.instance_type).plan
        self.record.log_memory_retry(self._memory_retries, plan)
        self._announce(
            f"out of memory: again with per-device batch {plan.per_device_train_batch_size} x "
            f"{plan.gradient_accumulation_steps} accumulation steps (global batch size stays {plan.global_batch_size})"
        )
        return again

    def _with_another_type(self, job: Job) -> JobDocument | None:
        """The next type of the list; after the last one the first again, as long as capacity_wait_minutes allows.

        If one job names all types, SageMaker has tried them in turn, and the next job names all of them again.
        """
        all_at_once = bool(self._document.plans)
        types = (" or ".join(self._spec.instance_types()),) if all_at_once else self._spec.instance_types()
        tried = types[self._without_capacity % len(types)]
        self._without_capacity += 1
        following = types[self._without_capacity % len(types)]
        if self._waiting_since is None:
            self._waiting_since = self._clock.now() - job.seconds()
        if all_at_once:
            again = self._next()
        else:
            spec = self._spec.on_instance_type(following)
            shared = self._spec.spec_hash() if self._spec.strategy in _WITH_SHARED_CHECKPOINTS else ""
            again = self._next(spec=spec, plan=spec.plan(), checkpoint_key=shared)
        if again.max_seconds <= 0:
            return None
        pause_s = 0.0
        round_is_over = self._without_capacity % len(types) == 0
        is_paused = self._pause.get("job") == again.job_name  # by a launcher that died or has left it
        if is_paused:
            pause_s = max(0.0, self._pause["until"] - self._clock.now())
        elif round_is_over and self._launcher.attach(again.job_name) is None:  # else it has gone on
            waited_s = self._clock.now() + CAPACITY_PAUSE_S - self._waiting_since
            if waited_s > self._spec.capacity_wait_minutes * 60:
                return None
            pause_s = CAPACITY_PAUSE_S
        self._not_before = self._clock.now() + pause_s
        if pause_s and not is_paused:
            pause = {"job": again.job_name, "since": self._waiting_since, "until": self._not_before}
            self.record.run.set_tags({schema.WAITING: json.dumps(pause)})
        if (virtual_clock := self._launcher.virtual_clock) is not None:
            virtual_clock.wake_at(self._not_before)
        billed_s = job.billable_seconds()  # more than 0 on spot: it trained until its instances were taken
        self._announce(
            f"no capacity for {tried}: {f'in {pause_s:g} s ' if pause_s else ''}trying {following}"
            + (f"; {billed_s:.0f} s are billed until then" if billed_s else "")
        )
        if not all_at_once:
            self._change_instances(again)
        return again

    def _next(self, **changes: object) -> JobDocument:
        attempt = self._document.attempt + 1
        return replace(
            self._document,
            job_name=job_name(self.record.run.run_id, attempt),
            attempt=attempt,
            spent_seconds=self.bill.billable_seconds,
            **changes,  # type: ignore[arg-type]  # names of its fields
        )

    def _release_instances(self) -> None:
        """End the warm pools of the attempts that have ended."""
        for problem in self.bill.release_instances():
            self._announce(problem)

    def _announce_pool(self, job: Job) -> None:
        """Say that instances are kept after the job, and what that may cost."""
        pool, usd = self.bill.pool, self.bill.kept_usd
        if pool is not None and pool.is_kept:
            most = "" if usd is None else f", for at most {usd:.4g} USD more"
            self._announce(
                f"the instances of {job.name} are kept for {pool.most_seconds / 60:g} minutes for the next job like "
                f"it{most}; `{command_line('sync')}` books what they cost"
            )

    def _announce(self, message: str) -> None:
        self._on_events([Event(time=self._clock.now(), step=0, message=message)])
