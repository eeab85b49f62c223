"""Drives a study: starts the proposed jobs, polls them, records how they ended, and stops them.

A driver is a process that works on a study. If it is killed at any moment, another driver can take over, because
records are written in this order:

    trial asked for in Optuna -> worst case reserved -> run created in MLflow -> job's name recorded -> job created
    -> outcome written to the run -> end and cost of the trial recorded -> end reported to Optuna

A local job dies with its driver. The next driver then ends the trial as interrupted, records its cost, and starts the
job again as a new trial, from its first step. Only one driver at a time works on a study (see `ledger.lock`). With
`once`, a driver does what can be done now, leaves its jobs to the next driver, and raises CallAgain.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from paretune.core.errors import (
    BadInput,
    BudgetRefused,
    CallAgain,
    Interrupted,
    JobFailed,
    LaunchRefused,
    LostContact,
    ParetuneError,
    TrackingUnavailable,
    collecting,
    first_line,
)
from paretune.core.shell import command_line
from paretune.estimating.memory import Footprint
from paretune.jobs.attempts import STOP_PATIENCE_S, WATCH_INTERVAL_S, Attempts
from paretune.jobs.bill import Bill
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.plan import draft, placed, plan
from paretune.jobs.record import JobRecord, opening_tags, owner_of, plan_in
from paretune.jobs.remaining import Remaining
from paretune.jobs.run_names import run_name, trial_in_name
from paretune.jobs.workplace import Workplace
from paretune.presentation.text import duration
from paretune.specification.ending import Cause
from paretune.specification.job import JobSpec
from paretune.specification.order import job_name
from paretune.specification.plan import Plan
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Point
from paretune.studies.results.trials import Trial, counted
from paretune.studies.search.ended_trials import MOST_REFUSED, EndedTrials
from paretune.studies.search.money import Money
from paretune.studies.search.table import Accepts, StudyTable
from paretune.studies.trial_status import TrialStatus
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.run_writer import Run

ROUND_S = 600.0  # virtual seconds between two commands with `once`, in a study of simulated jobs
_RETRIED_BY_ANYBODY = frozenset({Cause.CAPACITY, Cause.INTERNAL})  # the study alone retries others


class TrialJob:
    """A running trial and its job."""

    def __init__(
        self, trial: Trial, asked: Plan, run: Run, workplace: Workplace, file: StudyFile, owner: str = ""
    ) -> None:
        self.trial, self._objectives = trial, file.goals
        self._own_minutes = file.job.max_runtime_minutes  # the limit that users gave; the study may set a shorter one
        self.number = trial.number
        self.spec = trial.spec
        self._workplace = workplace
        self.record = JobRecord(asked, workplace, run=run, owner=owner)
        # If the per-device batch is searched or given, it is measured unchanged. Otherwise it is halved after the job
        # ran out of memory, but only by this process, not by another one that follows the job.
        smaller = () if trial.spec.per_device_train_batch_size is not None else (Cause.OUT_OF_MEMORY,)
        self._job = Attempts(self.record, decides=smaller)

    def begin(self, *, adopt: bool = False) -> Trial | None:
        """Open the trial's record and start its job; with `adopt`, follow the job of an earlier driver if there is one.

        Returns the ended trial if the job could not be started, else None. Raises LostContact if it is unknown whether
        the job was started.
        """
        try:
            tags = self.record.run.tags() if adopt else {}
            if adopt:  # before anything that takes a while, so that `sync` leaves the job alone
                self.record.restore()
                self.record.watch()
            if adopt and self._can_adopt(tags):
                asked = self.record.plan
                recorded = plan_in(self.record.run, self._workplace, asked.identity).at_worst(asked.limits.worst_usd)
                self.record.plan = replace(
                    recorded, owner=replace(recorded.owner, study=asked.owner.study), retries=asked.retries
                )
                self.record.adopt()
            else:
                if adopt:
                    self.record.begin_again()
                self.record.describe(plan(self.spec, self._workplace, begun=self.record.plan, judges_limit=False))
            self._job.begin()
        except (BadInput, LaunchRefused, BudgetRefused, JobFailed) as error:  # JobFailed: preparing the inputs failed
            return self._refused(error)
        return None

    def poll(self) -> Trial | None:
        """Return the trial once it has ended, or None while its job runs."""
        try:
            end = self._job.poll()
        except (BadInput, LaunchRefused, BudgetRefused, JobFailed) as error:  # the next attempt was refused
            return self._refused(error)
        return None if end is None else self._ended(end)

    @property
    def has_begun(self) -> bool:
        """Whether its training has sent its number of steps, a metric or its progress."""
        return self._job.has_begun

    def remaining(self) -> Remaining | None:
        """Return what is left of the job; None if no counter of its training says so."""
        return self._job.remaining()

    def shown(self) -> str:
        """Describe the trial and, if a counter of its training says so, what is left of its job."""
        left = self.remaining()
        return f"trial {self.number} ({self.trial.setting()}" + (f"; {left})" if left is not None else ")")

    def ask_to_stop(self) -> None:
        """Ask the launcher to stop the job, without waiting until it has stopped."""
        if self._job.current is not None:
            self._job.current.stop()

    def end(self, error: BaseException) -> Trial:
        """Stop the job, wait until it has stopped, and close its run. Raises LostContact if it may still run."""
        outcome = self._job.end(error)
        return self._ended(outcome) if outcome.has_completed else self._end(TrialStatus.INTERRUPTED, str(error))

    def _can_adopt(self, tags: Mapping[str, str]) -> bool:
        name = job_name(self.record.owner, 1)
        if not tags:  # every run of a trial has some
            text = f"MLflow does not show where {name} runs: if it was started, the same command finds it"
            raise LostContact(text)
        try:
            if reason := self._workplace.elsewhere(tags):
                raise LostContact(f"trial {self.number} ({name}) cannot be followed from here: {reason}")
            return self._workplace.launcher.attach(name) is not None
        except (BadInput, LaunchRefused) as error:
            raise LostContact(f"{error}: if {name} was started, the same command finds it") from error

    def _refused(self, error: BadInput | LaunchRefused | BudgetRefused | JobFailed) -> Trial:
        """Close the run of a job that was refused (quota, permission, budget) or whose inputs cannot be prepared.

        Returns the ended trial.
        """
        self._job.end(error, stops=False)
        if isinstance(error, BadInput):
            return self._end(TrialStatus.FAILED, str(error), cause=Cause.BAD_INPUT)
        if isinstance(error, JobFailed):
            return self._end(TrialStatus.FAILED, str(error), cause=Cause(error.cause or Cause.ERROR.value))
        running = 0 if isinstance(error, LaunchRefused) else None
        return self._end(TrialStatus.REFUSED, str(error), running_when_refused=running)

    def _ended(self, end: JobOutcome) -> Trial:
        not_finite = () if end.report is None else {*end.report.not_finite} - {*end.metrics}
        if end.has_completed and (lost := [name for name in self._objectives if name in not_finite]):
            return self._end(TrialStatus.DIVERGED, f"{', '.join(lost)} ended NaN or infinite")
        if end.has_completed:
            measured, verdicts = dict(end.metrics), tuple(end.verdicts)
            return self._end(TrialStatus.COMPLETED, "", measured=measured, verdicts=verdicts)
        # A local job of an earlier driver died with that driver: its end says nothing about its point.
        is_lost = self.record.is_adopted and not self._workplace.launcher.jobs_outlive_submitter
        status, reason = TrialStatus.of_end(end.ending, is_lost=is_lost), end.reason
        minutes = self.spec.max_runtime_minutes
        if status is TrialStatus.CUT_OFF and minutes < self._own_minutes:
            reason = (
                f"it ran longer than the {duration(60 * minutes)} that the study had given it; the next one gets more"
            )
        return self._end(status, reason, cause=end.ending.cause)

    def _end(self, status: TrialStatus, reason: str, **more: Any) -> Trial:
        kind = self._job.order.offer.instance_type
        return replace(
            self.trial,
            status=status,
            ran_on="" if kind == self.spec.instance_type else kind,
            chosen_batch=self.record.plan.chosen_batch,
            cost_usd=self._job.bill.cost_usd,
            billed_s=self._job.bill.billable_seconds,
            kept_usd=self._job.bill.kept_usd,
            takes_seed=self.record.plan.card.takes_seed,
            reason=reason,
            ended_at=self._workplace.clock.now(),
            **more,
        )


class Start(NamedTuple):
    """A job to start: the job of a point, with `changes` to its parameters.

    If the job repeats an earlier trial, `repeats` is the number of that trial. With `accepts`, the study's
    sampler may draw another point (see `StudyTable.ask`). `remark` is printed when the job starts.
    """

    point: Point
    changes: Mapping[str, Any] = MappingProxyType({})
    repeats: int | None = None
    accepts: Accepts | None = None
    remark: str = ""


Propose = Callable[[], Start | str]
"""Returns the next job of a study, or the reason why no job should be started."""


class Driver:
    """Works on a study: starts its jobs, polls and records them. Only one process at a time may do so."""

    def __init__(
        self,
        file: StudyFile,
        table: StudyTable,
        *,
        run_id: str,  # MLflow run of the study
        workplace: Workplace,
        on_trial: Callable[[Trial], None],  # called with each ended trial once it is recorded
        on_wait: Callable[[], None] = lambda: None,  # called before each wait for running jobs
        say: Callable[[str], None],  # prints a line
    ) -> None:
        self.file, self.table, self.workplace, self.run_id = file, table, workplace, run_id
        self.ended = EndedTrials(file, ())  # replaced when a trial ends
        self.money = Money(file, table, workplace)
        self._on_trial, self._on_wait, self._say = on_trial, on_wait, say
        self._jobs: dict[int, TrialJob] = {}  # trial number to its job; running jobs only
        # Trial number to the warm pool that its job left, whichever driver ran the job.
        self._pools: dict[int, tuple[Bill, RecordedRun]] = {}
        self._heard: set[int] = set()  # numbers of the ended trials that `_refresh` has processed
        self._faults: dict[str, str] = {}  # job hash to the launcher's reason for refusing it; empty if accepted
        self._assumed_fixed = frozenset[int]()  # see `EndedTrials`; empty with `once`: all commands act as one driver

    @property
    def trials(self) -> dict[int, Trial]:
        """The ended trials of the study by number, see `EndedTrials.trials`."""
        return self.ended.trials

    @property
    def running(self) -> tuple[TrialJob, ...]:
        """The trials whose jobs have not ended."""
        return tuple(self._jobs.values())

    @property
    def under_way(self) -> list[Trial]:
        """Trials whose jobs are running or waiting to be retried."""
        return [*(job.trial for job in self.running), *(trial for trial, _ in self.ended.retries.values())]

    def why_over(self) -> str:
        """Return why the search starts no more trials; empty while it may start some."""
        under_way = sum(trial.repeats is None and not trial.is_probe for trial in self.under_way)
        enough = f"{self.file.n_trials} trials were run" if self.ended.has_enough(under_way) else ""
        return self.ended.lacks_objective() or enough

    def adopt(self) -> None:
        """Continue the running trials of earlier drivers, and report to Optuna the ended trials not yet reported."""
        if not self.file.once:
            self._assumed_fixed = frozenset(trial.number for trial in self.table.trials()[1])
        self._refresh()
        self._drop_abandoned()
        running, ended = self.table.trials()
        if (running or ended) and not self.file.once:
            spent = self.table.seconds()[0] if self.file.spending.is_time else self.table.balance().spent_usd
            self._say(f"study {self.file.name} continues: {counted(ended)} run, {self.file.spending.text(spent)} spent")
        for trial in running:
            self._say(
                f"trial {trial.number}: it was running when the last command ended; following its job if it still runs"
            )
            self._begin(trial, self._drafted(trial), adopt=True)

    def run(self, propose: Propose) -> str:
        """Start and poll jobs until none is running and none should start, and return the reason why none should.

        With `once`, raise CallAgain instead of waiting.
        """
        judged, reason = None, ""  # what the last proposal depended on, and why nothing was started
        while True:
            self.poll()
            while self._may_start():
                self.workplace.interruption.check()
                if self._start_given():
                    continue
                if not reason or judged != self._stage:
                    judged, proposal = self._stage, propose()
                    reason = proposal if isinstance(proposal, str) else self.begin(proposal)
                if reason:
                    break
            if reason and judged == self._stage and not self.under_way:
                return reason
            self.workplace.interruption.check()
            if self.file.once:
                counts = f"{counted([*self.trials.values()])} done, {len(self._jobs)} running"
                raise CallAgain(f"study {self.file.name} has not ended ({counts}): run the same command again later")
            self._on_wait()
            self.workplace.clock.sleep(WATCH_INTERVAL_S)

    @property
    def _stage(self) -> tuple[EndedTrials, bool]:
        """What a proposal depends on: the ended trials, and whether a job has begun to train.

        A job that ends may free part of a budget. One that begins to train shows that others can, too.
        """
        return self.ended, any(job.has_begun for job in self.running)

    def _may_start(self) -> bool:
        if len(self._jobs) >= self.file.n_parallel or self.ended.hopeless():
            return False
        now = self.workplace.clock.now()
        return len(self._jobs) < self.ended.most_running or now >= self.ended.asked_again_at

    def begin(self, start: Start) -> str:
        """Ask Optuna for a trial and start its job. Return why the job was not started, or an empty string."""
        number, point = self.table.ask(start.point, start.changes, start.accepts)
        if start.remark:
            self._say(f"trial {number}: {start.remark}")
        return self._start(number, point, dict(start.changes), start.repeats)

    def _start(self, number: int, point: Point, changes: Mapping[str, Any], repeats: int | None = None) -> str:
        try:
            spec = self.file.spec_at(point).replace(**changes)
            if reason := self.why_not(spec):
                raise BudgetRefused(reason)
            given = (spec if "max_runtime_minutes" in changes else self.money.limits.shortest(spec)).given_text()
            status = TrialStatus.RUNNING
            trial = Trial(number=number, point=point, given=given, status=status, changes=changes, repeats=repeats)
            asked = self._drafted(trial)
            trial = self.money.reserve(trial, asked)
        except (BadInput, BudgetRefused) as error:
            self._say(f"trial {number}: not run: {first_line(error)}")
            self.table.drop(number)
            return first_line(error)
        self._begin(trial, asked)
        return ""

    def why_not(self, spec: JobSpec) -> str:
        """Return why a job should not run now or would be refused by its launcher; empty if it may run."""
        computation, faults = spec.spec_hash(), list[str]()
        if (trial := self.ended.final.get(computation)) is not None:
            return f"trial {trial} had the same job"
        if computation in {trial.computation for trial in self.under_way}:
            return "the same job is under way"
        if self.ended.cannot_fit(Footprint.of(spec, spec.plan())):
            return "the same or a smaller batch per device ran out of memory on a device of this size"
        if computation not in self._faults:
            with collecting(faults):
                self.money.check_prices(spec)
                placed(spec, self.workplace)
            fault = "".join(faults[:1])
            if fault and fault not in self._faults.values():
                self._say(f"some jobs are skipped: {fault}")
            self._faults[computation] = fault
        return self._faults[computation]

    def poll(self) -> None:
        """Record ended jobs. Raises JobFailed if no job is running and no further one can complete."""
        self.table.look_again()
        for job in self.running:
            if (end := job.poll()) is not None:
                self._conclude(job.number, end)
        self._record_pools()
        if not self._jobs and (reason := self.ended.hopeless()):
            again = "the command without once=true" if self.file.once else "the same command"
            if self.ended.has_enough():  # failed trials count too
                again += f" with --n_trials {self.ended.counted + (self.file.n_trials or 0)}"
            raise JobFailed("of the study", f"{reason}; then {again} continues")

    def stop(self, error: BaseException) -> None:
        """Stop and record running jobs after Ctrl-C, JobFailed or BudgetRefused.

        After any other error, and with `once`, the jobs keep running.
        """
        decisions = (Interrupted, KeyboardInterrupt, JobFailed, BudgetRefused)
        stops = isinstance(error, decisions) and not self.file.once
        for job in self.running if stops else ():
            with suppress(ParetuneError):  # ask all of them before waiting for any
                job.ask_to_stop()
        for job in self.running:
            try:
                if stops:
                    with self.table.reachable():
                        self._conclude(job.number, job.end(error))
                    continue
            except ParetuneError as failure:
                self._say(f"trial {job.number}: {failure}")
            job.record.leave()
        with suppress(LostContact), self.table.reachable():
            if (stops or not self.running) and not self.file.once:  # no job is left that could use the warm pools
                self.finish()

    def finish(self) -> None:
        """Release warm pools, record their cost, and print which ones are still billed."""
        self._record_pools()
        for number, (bill, _) in self._pools.items():
            if fault := bill.release_instances():
                self._say(f"trial {number}: {fault}")
        clock = self.workplace.clock
        until = clock.monotonic() + STOP_PATIENCE_S
        self._record_pools()
        while self._pools and clock.monotonic() < until:
            clock.sleep(WATCH_INTERVAL_S)
            self._record_pools()
        for trial in self.table.trials()[1]:
            if trial.kept_usd:  # even if MLflow did not show which job kept them
                text = f"the instances kept after its job are still billed: `{command_line('sync')}`"
                self._say(f"trial {trial.number}: {text}")
        self._refresh()

    def _record_pools(self) -> None:
        """Record the cost of warm pools that have ended."""
        for trial in [trial for trial in self.table.trials()[1] if trial.kept_usd]:
            # A later call, or `sync`, reads what cannot be read now.
            with suppress(BadInput, LaunchRefused, TrackingUnavailable, LostContact):
                if trial.number not in self._pools:
                    run = self.workplace.tracking.recorder_of(trial.run_id)
                    if run is None:
                        continue
                    self._pools[trial.number] = Bill.of_run(run, self.workplace), run
                bill, run = self._pools[trial.number]
                kept_usd, sentence = bill.record_pool(run, self.workplace)
                if kept_usd is not None:
                    self.table.save(replace(trial, cost_usd=(trial.cost_usd or 0.0) + kept_usd, kept_usd=None))
                    del self._pools[trial.number]
                    self._say(f"trial {trial.number}: {sentence}")

    def _start_given(self) -> bool:
        """Start the job of a queued trial, or a retry that is due; neither needs the search.

        Return whether there was such a job, even if it could not be started.
        """
        try:
            asked = self.table.ask_waiting()
        except ValueError as error:
            self._say(f"a queued trial: not run: {first_line(error)}")
            self._drop_abandoned()
            return True
        if asked is not None:
            self._start(*asked, {})
            return True
        for trial, not_before in self.ended.retries.values():
            if not_before <= self.workplace.clock.now():
                self.ended.retries.pop(trial.computation)
                self.begin(Start(trial.point, trial.changes, trial.repeats))
                return True
        return False

    def _drop_abandoned(self) -> None:
        for number in self.table.abandoned():  # asked of Optuna but never reserved, so nothing was started
            self.table.drop(number)

    def _drafted(self, trial: Trial) -> Plan:
        """Return the plan of a trial's job as far as its parameters decide it."""
        return replace(draft(trial.spec, self.workplace, study=self.file.name), retries=_RETRIED_BY_ANYBODY)

    def _begin(self, trial: Trial, asked: Plan, *, adopt: bool = False) -> None:
        tracking, number, run_id = self.workplace.tracking, trial.number, trial.run_id
        if not run_id and adopt:  # a driver may have died between creating the run and recording it
            condition = f"tags.`{schema.PARENT}` = '{self.run_id}' and tags.`{schema.TRIAL}` = '{number}'"
            run_id = next((run.run_id for run in tracking.runs(condition, newest=1, deleted=True)), "")
        # The worst case of a trial may include an upload of unknown length, see `Money.worst_usd`.
        asked = asked.at_worst(trial.worst_usd)
        tags = opening_tags(asked.identity, asked.card.command_line, self.workplace)
        tags |= {schema.PARENT: self.run_id, schema.TRIAL: str(number)}
        if trial.repeats is not None:
            tags[schema.REPEATS] = str(trial.repeats)
        # Whether the training gets the seed is known once a job of the study has ended.
        takes_seed = all(each.takes_seed for each in self.trials.values())
        card, owner = replace(asked.card, takes_seed=takes_seed), ""
        name = f"{trial_in_name(tags)}{run_name(card, asked.offer.instance_type)}"
        try:
            if run_id and adopt:
                run, owner = self._run_to_continue(run_id, number, name, tags)
            else:
                run = tracking.create(name, tags)
        except TrackingUnavailable as error:
            if not (self.trials or self.running):  # nothing has been launched yet
                raise
            status, now = TrialStatus.REFUSED, self.workplace.clock.now()
            end: Trial | None = replace(
                trial, status=status, cost_usd=0.0, reason=str(error), running_when_refused=0, ended_at=now
            )
        else:
            trial = replace(trial, run_id=run.run_id)
            self.table.save(trial)
            if not (adopt or self.trials or self.running):
                points = self.file.size() or "any number of"
                self._say(f"study {self.file.name}: {points} points; trial {number} runs: {trial.setting()}")
            self._jobs[number] = TrialJob(trial, asked, run, self.workplace, self.file, owner)
            end = self._jobs[number].begin(adopt=adopt)
        if end is not None:
            self._conclude(number, end)
            if end.status.is_retryable and self.ended.refused >= MOST_REFUSED:
                raise LaunchRefused(f"{end.reason} ({self.ended.refused} launches failed in a row)")

    def _run_to_continue(self, run_id: str, number: int, name: str, tags: Mapping[str, str]) -> tuple[Run, str]:
        """Return the run of a running trial, and the id of the run that its job and reservations name.

        If the run was removed from MLflow for good, a new run continues its record. Raises LostContact if MLflow does
        not answer.
        """
        tracking = self.workplace.tracking
        try:
            if (recorder := tracking.recorder_of(run_id)) is not None:
                return tracking.run(recorder.run_id), owner_of(recorder.run_id, recorder.tags, self.workplace)
            self._say(f"trial {number}: its run was removed from MLflow: a new run records it")
            return tracking.create(name, {**tags, schema.CONTINUES: run_id}), run_id
        except TrackingUnavailable as error:
            raise LostContact(f"trial {number}: {error}; the same command follows its job") from error

    def _conclude(self, number: int, end: Trial) -> None:
        """Record how a trial ended, then report it to Optuna, so that Optuna never has an end that is not recorded."""
        self._jobs.pop(number, None)
        if end.running_when_refused is not None:
            end = replace(end, running_when_refused=len(self._jobs))
        self.table.save(end)
        self._refresh()
        self._on_trial(self.trials[number])

    def _refresh(self) -> None:
        """Read what was recorded since the last call, learn from it, and report it to Optuna."""
        (running, ended), reported = self.table.trials(), self.table.reported()
        self.ended = EndedTrials(self.file, ended, running, self._assumed_fixed)
        for trial in ended:
            if trial.number not in self._heard:
                self._heard.add(trial.number)
                if remark := self.money.add(trial):
                    self._say(remark)
                if trial.number not in reported:
                    self.table.tell(trial)
        if (virtual_clock := self.workplace.launcher.virtual_clock) is not None:
            for moment in (self.ended.asked_again_at, *(later for _, later in self.ended.retries.values())):
                if moment > virtual_clock.now():
                    virtual_clock.wake_at(moment)
