"""Drives a study: asks Optuna for trials, runs their jobs several at a time, books what they cost.

The order of writing lets another driver replace one that is killed at any moment:

    asked in Optuna -> reserved in the ledger -> run created in MLflow -> job created -> run filled -> booked -> told

A driver that starts, or works on the same study meanwhile, takes over the trials that a dead driver was running,
finishes them, and tells Optuna what is booked and was not told. A local job has died with its driver: its trial ends as
failed, what it has cost is booked, and its job is started again from its checkpoint.

A round (`once`) is a driver that does what can be done now and leaves its jobs to the next round: where another driver
would wait, it raises CallAgain. What it must know of earlier rounds it reads in the ledger, in Optuna's storage and in
the tags of runs. Rounds hold the lease of the study one after the other, and write no heartbeat; the drivers that stay
take the holder of the lease for one of them.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from paretune.core.clock import Clock
from paretune.core.commands import command_line
from paretune.core.errors import (
    BadInput,
    BudgetRefused,
    CallAgain,
    Interrupted,
    LaunchRefused,
    LostContact,
    ParetuneError,
    TrackingUnavailable,
)
from paretune.jobs.record import run_name
from paretune.jobs.retrying_job import STOP_PATIENCE_S, WATCH_INTERVAL_S
from paretune.jobs.warm_pools import KeptPool
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Launcher
from paretune.launchers.processes import this_process
from paretune.launchers.shared import SharedJobs
from paretune.ledger.lease import LeaseLost
from paretune.ledger.shared import SharedBudgets, left_usd
from paretune.ledger.study_ledger import Reservation, StudyLedger
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialNote
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.results.trials import Trial
from paretune.studies.search.drivers import ABANDONED_S, Heartbeat, drivers_at_work
from paretune.studies.search.optuna_study import OptunaStudy, Suggestion
from paretune.studies.search.trial_history import TrialHistory
from paretune.studies.search.trial_job import PARENT, TrialJob
from paretune.studies.search.worst_case import WorstCase
from paretune.tracking import schema

REFUSED_PAUSE_S = 60.0
"""Seconds until SageMaker is asked again after it has refused the only job."""
ROOM_S = 1800.0
"""Seconds until SageMaker is asked again for more jobs at a time than it has let run."""
MOST_REFUSED = 3
"""Times in a row that SageMaker refuses the only job, before the study ends."""


class ConcurrencyLimit:
    """The number of jobs that SageMaker lets run at a time, learnt from its refusals."""

    def __init__(self, clock: Clock, launcher: Launcher) -> None:
        self._clock = clock
        self._launcher = launcher
        self._most = math.inf
        self._until = 0.0
        self._refused = 0

    def has_free_slot(self, running: int) -> bool:
        """Whether a job may be started beside those that run."""
        return running < self._most or self._clock.now() >= self._until

    def was_given(self) -> None:
        """A job was created."""
        self._refused = 0

    def recall(self, ends: Iterable[TrialEnd]) -> None:
        """What earlier rounds have learnt, from how trials have ended, in the order of booking."""
        for ended in ends:
            if ended.refused_beside is not None:
                self._learn(ended.refused_beside, ended.at)
            elif ended.cost_usd:  # its job was created
                self._refused = 0

    def was_refused(self, running: int, reason: str) -> None:
        """A job was refused beside those that run; LaunchRefused where none runs, several times in a row."""
        self._learn(running, self._clock.now())
        if self._refused >= MOST_REFUSED:
            raise LaunchRefused(f"{reason} (nothing could be launched {self._refused} times in a row)")
        self._launcher.wake_at(self._until)

    def _learn(self, running: int, at: float) -> None:
        self._most = running
        self._until = at + (ROOM_S if running else REFUSED_PAUSE_S)
        self._refused += not running


MOST_REFUSALS = 12
"""Suggestions in a row that make no job, or are known already, before points are looked for by hand."""
_LIMIT = "max_runtime_minutes"
_MOST_NAMED = 8
_ADOPTION_S = 30.0
"""Seconds between two looks for what dead drivers were running."""
ROUND_S = 600.0
"""Virtual seconds from one round of a study of simulated jobs to the next."""


class Driver:
    """One process at work on a study; `now` is the machine's time, for heartbeats: virtual clocks run ahead of it."""

    def __init__(
        self,
        file: StudyFile,
        study: OptunaStudy,
        ledger: StudyLedger,
        *,
        run_id: str,
        workplace: Workplace,
        now: Callable[[], float],
        on_trial: Callable[[Trial], None],
        say: Callable[[str], None],
        owner: str = "",
    ) -> None:
        self.file = file
        self.study = study
        self.ledger = ledger
        self.workplace = workplace
        self.history = TrialHistory(file, ledger, workplace.launcher.origin)
        self.worst_case = WorstCase(workplace, self.history.longest_s, has_budget=file.budget_usd is not None)
        self.is_full = False
        """Whether as many trials as the study may have are begun, as far as this driver knows."""
        self.is_held_up = False
        """Whether a budget beyond the study was named as what it ends for: its next month, or others' ends, free it."""
        self.run_id = run_id
        """MLflow run of the study."""
        self.shared_budgets = SharedBudgets(
            workplace.budget_ledger(file.budget),
            file.name,
            mark=ledger.mark,
            origin=workplace.launcher.origin,
            now=workplace.clock.now,
            environment=workplace.environment,
        )
        self._now = now
        self._on_trial = on_trial
        self._say = say
        self._owner = owner or this_process()
        self._is_round = file.once
        beat = ledger.lease.renew if self._is_round else lambda: ledger.heartbeat(self._owner, now())
        self._heartbeat = Heartbeat(beat)
        self._seen = -math.inf
        self._has_moved = False  # something has happened since this round has waited last
        self._under_way: dict[int, TrialJob] = {}
        self._pools: dict[int, KeptPool] = {}  # trial to the instances kept after its job
        self._impossible: set[str] = set()
        self._elsewhere: set[str] = set()
        self._off_plan: TrialEntry | None = None  # a trial whose training plan was dropped: no more are started
        self._room = ConcurrencyLimit(workplace.clock, workplace.launcher)
        self._shared = SharedJobs(workplace.launcher, file.n_parallel, self._room.was_given)

    @property
    def trials(self) -> dict[int, Trial]:
        """All trials of the study that have ended, whoever ran them, in the order of booking."""
        return self.history.trials

    @property
    def running(self) -> tuple[TrialJob, ...]:
        """Jobs of this driver that have not ended."""
        return tuple(self._under_way.values())

    def adopt(self) -> None:
        """Take over the trials of dead drivers, and tell Optuna what they have booked and not told."""
        is_first = self._seen == -math.inf
        self._seen = self._now()
        self._heartbeat.start()
        news = self._take_news()
        if is_first and not self._is_round:  # somebody has started this driver after what the ledger tells of
            self._off_plan = None
        if self._is_round and is_first:
            self._room.recall(entry.ended for entry in news if entry.ended is not None)
            self._impossible |= self.study.impossible()
        others = self.others()
        asked_for = self.study.running()  # before the ledger is asked: what another driver reserves meanwhile is known
        running = self.ledger.running()
        for entry in running:
            if entry.trial in self._under_way or entry.owner in others:
                continue
            if self.ledger.take_over(entry.trial, entry.owner, self._owner):
                self._say(f"trial {entry.trial}: taken over")
                spec = JobSpec.from_text(entry.parameters)
                self._begin(entry.trial, spec, entry.run_id, entry.note, adopt=True)
        self._find_pools()
        for owner in self.ledger.drivers().keys() - others - {self._owner}:
            self.ledger.deregister(owner)
        known = {*self.trials, *(entry.trial for entry in running)}
        for number, asked in asked_for.items():  # asked, and never promised: nothing was begun
            if number not in known and (not others or self._now() - asked > ABANDONED_S):
                self.shared_budgets.release(number)  # first: once it is told, no driver finds it here any more
                self.study.tell_failed(number)

    def others(self) -> set[str]:
        """Other drivers of the study that are alive."""
        round_at_work = "" if self._is_round else self.ledger.lease.holder()
        return (drivers_at_work(self.ledger, self._now()) | {round_at_work}) - {"", self._owner}

    def start(self, asked: Suggestion, note: TrialNote | None = None) -> bool:
        """Start the job of a trial; False when none was started, such as one whose outcome is known.

        Point and seed are added to the `note` that is written down of it.
        """
        note = note or TrialNote()
        if (spec := self._possible(asked, note.changes)) is None:
            return False
        note = replace(note, point=asked.point, seed=spec.seed)
        identity = spec.spec_hash()
        if (known := self.history.settled.get(identity)) is not None:
            self.study.report_outcome(self.ledger.entry(known), self.history, asked.number)
            return False
        try:
            has_limit = _LIMIT in note.changes and note.repeats is None
            limited = spec if has_limit else self.worst_case.limited(spec)
            worst_usd = self.worst_case.usd(limited)
            made = self.ledger.reserve(
                asked.number,
                limited.as_text(),
                note,
                worst_usd=worst_usd,
                budget_usd=self.file.budget_usd,
                owner=self._owner,
                identity=identity,
                most_trials=self.file.n_trials,
                reserve_shared=self.shared_budgets.reservation(asked.number, limited, worst_usd),
            )
        except BudgetRefused as error:
            self.study.tell_failed(asked.number)
            self._say(f"trial {asked.number}: {error}")
            return False
        if made is not Reservation.GRANTED:
            self.is_full = made is Reservation.TRIAL_LIMIT
            self._elsewhere |= {identity} if made is Reservation.DUPLICATE else set()
            self.study.tell_failed(asked.number)
            return False
        self.history.due.pop(identity, None)
        self._begin(asked.number, limited, "", note)
        return True

    def affordable(self) -> Callable[[JobSpec], bool]:
        """A test of jobs with their limits: whether what is left of the budget now covers their worst case.

        The ledger is asked once, for all of them. The test raises Interrupted where this command is to end.
        """
        budget_usd = self.file.budget_usd
        balance = None if budget_usd is None else self.ledger.balance()
        shared = self.shared_budgets.statuses()

        def is_affordable(spec: JobSpec) -> bool:
            self.workplace.interruption.check()
            try:
                worst_usd = self.worst_case.usd(spec)
            except BudgetRefused:  # above max_cost_usd, or its price is not known
                return False
            limits = [] if balance is None or budget_usd is None else [(balance, budget_usd)]
            if (standing := shared(spec)) is not None:
                limits.append((standing.balance, standing.budget.usd_per_month))
            return all(worst_usd is not None and spent.covers(worst_usd, most) for spent, most in limits)

        return is_affordable

    def fits_budget(self, spec: JobSpec) -> bool:
        """Whether what is left of the budget now covers the worst case of the job, limited as `start` limits it."""
        return self.affordable()(self.worst_case.limited(spec))

    def start_due(self) -> bool:
        """Start a job again that was retryable, if one is due; whether one was."""
        if (identity := self.next_due()) is None:
            return False
        note = self.history.due.pop(identity).note
        self.start(self.study.ask_for(note.point), note)
        return True

    def next_due(self) -> str | None:
        """Identity of a retryable job that is due; None where none is."""
        now = self.workplace.clock.now()
        return next((identity for identity, due in self.history.due.items() if due.not_before <= now), None)

    def has_free_slot(self) -> bool:
        """Whether a further job may be started; False for ROOM_S seconds after SageMaker refused one beside as many.

        False for good once a job's training plan was dropped.
        """
        running = len(self._under_way)
        if self._off_plan is not None:
            return False
        return running < self.file.n_parallel * self.file.trials_per_job and self._room.has_free_slot(running)

    def has_enough(self, begun: int) -> bool:
        """Whether the study may have no more trials than these."""
        return self.file.n_trials is not None and (self.is_full or begun >= self.file.n_trials)

    def left_usd(self, spec: JobSpec | None = None) -> float:
        """Dollars that are left of the study's budget; with a job, of a budget beyond it where that leaves it less.

        Infinite where there is no budget.
        """
        own = self.file.budget_usd
        left = math.inf if own is None else self.ledger.balance().left_usd(own)
        return left if spec is None else min(left, left_usd(self.shared_budgets.statuses()(spec)))

    def least_left(self, spec: JobSpec | None) -> str:
        """What is left of the budget that leaves a job the fewest dollars, in words; empty where there is none.

        Asked for when the study ends for it.
        """
        standing = None if spec is None else self.shared_budgets.statuses()(spec)
        if standing is not None and standing.left_usd < self.left_usd():
            self.is_held_up = True
            return f"what is left of {standing.sentence()}"
        return "" if self.file.budget_usd is None else f"what is left of the budget ({self.left_usd():.4g} USD)"

    def is_closed(self, spec: JobSpec) -> bool:
        """Whether the job need not, or must not, run any more: its outcome is known, it is impossible, or it failed."""
        identity, history = spec.spec_hash(), self.history
        is_known = identity in history.settled or identity in history.failures or identity in self._impossible
        return is_known or history.cannot_fit(spec)

    def is_impossible(self, spec: JobSpec) -> bool:
        """Whether the launcher has refused this very job for what it asks."""
        return bool(self._impossible) and spec.spec_hash() in self._impossible

    def is_open(self, spec: JobSpec) -> bool:
        """Whether the job could be started now: not closed, not running anywhere, not waiting for a retry."""
        identity = spec.spec_hash()
        under_way = {job.spec.spec_hash() for job in self.running} | self._elsewhere | set(self.history.due)
        return identity not in under_way and not self.is_closed(spec)

    def poll(self) -> None:
        """Ask for the state of all jobs once, conclude those that have ended; now and then look for dead drivers'.

        Called when no more trials can begin, so the groups of those that share a job are complete.

        Raises:
            LaunchRefused: a job's training plan was dropped, and no job runs any more.
        """
        refused = self._shared.create()
        for number, job in list(self._under_way.items()):
            before = job.attempt
            if (ended := job.poll()) is not None:
                self._conclude(number, job, ended)
            self._has_moved |= job.attempt != before
        for reason in refused:
            self._room.was_refused(len(self._under_way), reason)
        self._settle_pools()
        if self._now() - self._seen > _ADOPTION_S:
            self.adopt()
        self._require_plan()

    def wait(self) -> None:
        """Sleep until the next poll; a round does not, and raises CallAgain once nothing has happened since."""
        self.workplace.interruption.check()
        if not self._is_round:
            self.workplace.clock.sleep(WATCH_INTERVAL_S)
        elif not self._has_moved:
            raise CallAgain(self._so_far())
        self._has_moved = False

    def stop(self, error: BaseException) -> None:
        """Stop and book what runs, or leave it running where `on_interrupt` is detach; a round leaves everything."""
        jobs = dict(self._under_way)
        left = {
            number
            for number, job in jobs.items()
            if self._is_round
            or isinstance(error, LostContact)
            or (isinstance(error, Interrupted) and job.spec.on_interrupt == "detach" and job.spec.on_sagemaker)
        }
        for number in jobs.keys() - left:
            with suppress(ParetuneError):  # all at once, before one is waited for
                jobs[number].ask_to_stop()
        for number, job in jobs.items():
            try:
                if number not in left:
                    self._conclude(number, job, job.abandon(error))
                    continue
            except ParetuneError as trouble:
                self._say(f"trial {number}: {trouble}")
            if not isinstance(error, LeaseLost):  # else it is another round's by now
                job.record.leave()
        with suppress(LostContact):
            if not left and not self._is_round:
                self._give_back_pools()
            self._deregister()

    def finish(self) -> None:
        """Give back the instances that are kept for a next job, and record that this driver no longer runs."""
        self._give_back_pools()
        self._deregister()

    def _deregister(self) -> None:
        self._heartbeat.stop()
        if not self._is_round:
            self.ledger.deregister(self._owner)

    def _require_plan(self) -> None:
        """End the study once a job's training plan was dropped, as soon as those that run have ended."""
        if self._off_plan is None or self._off_plan.ended is None or self._under_way:
            return
        again = "the command without once=true" if self._is_round else "the same command"
        raise LaunchRefused(
            f"trial {self._off_plan.trial}: {self._off_plan.ended.reason}: no further job is started, for it would run "
            f"on demand, too; look at the plan (`aws sagemaker list-training-plans`), then {again} goes on"
        )

    def _so_far(self) -> str:
        """What a round leaves to the next one, in words."""
        numbers = sorted(self._under_way)
        named = ", ".join([*map(str, numbers[:_MOST_NAMED]), *["..."] * (len(numbers) > _MOST_NAMED)])
        running = f"{len(numbers)} under way ({named})" if numbers else "none under way"
        return f"study {self.file.name} has not ended: {len(self.trials)} trials have ended, {running}: call again"

    def _find_pools(self) -> None:
        """Follow the instances that are kept after trials, whoever ran them."""
        for entry in self.ledger.with_warm_pools():
            if not entry.kept_usd or entry.trial in self._pools:
                continue
            with suppress(BadInput, LaunchRefused, TrackingUnavailable):  # it is tried again, and `sync` looks, too
                for run in self.workplace.tracking.runs(f"attributes.run_id = '{entry.run_id}'"):
                    self._pools[entry.trial] = KeptPool(run, self.workplace)

    def _settle_pools(self) -> None:
        """Book instances that are no longer kept."""
        for trial, pool in list(self._pools.items()):
            with suppress(LostContact):
                if (settled := pool.settle()) is not None:
                    self.ledger.book_kept(trial, pool.usd(settled) or 0.0)
                    del self._pools[trial]
                    self._say(f"trial {trial}: {settled.sentence(pool.name)}")

    def _give_back_pools(self) -> None:
        """End the warm pools of the study, unless another driver may use them, and book them."""
        self._find_pools()
        if self.others():
            return
        for trial, pool in self._pools.items():
            try:
                pool.release()
            except LostContact as error:
                self._say(f"trial {trial}: {error}")
        clock = self.workplace.clock
        until = clock.monotonic() + STOP_PATIENCE_S
        self._settle_pools()
        if self._pools and self._is_round:
            raise CallAgain(f"study {self.file.name}: instances that were kept are being given back: call again")
        while self._pools and clock.monotonic() < until:
            clock.sleep(WATCH_INTERVAL_S)
            self._settle_pools()
        for trial, pool in self._pools.items():
            self._say(f"trial {trial}: the instances kept after {pool.name} are still billed: `{command_line('sync')}`")
        self.history.refresh()

    def _possible(self, asked: Suggestion, changes: Mapping[str, Any]) -> JobSpec | None:
        """The job of a trial; None where there can be none, which Optuna is told."""
        spec = None
        try:
            spec = self.file.spec_at(asked.point)
            spec = spec.replace(**changes) if changes else spec
            self.workplace.launcher.check(spec)
        except BadInput as error:
            if spec is not None:
                self._impossible.add(spec.spec_hash())
            self.study.tell_infeasible(asked.number, job="" if spec is None else spec.spec_hash())
            self._say(f"trial {asked.number}: cannot be: {error.faults[0]}")
            return None
        if self.history.cannot_fit(spec) and spec.spec_hash() not in self.history.settled:
            self.study.tell_infeasible(asked.number, out_of_memory=True)
            self._say(f"trial {asked.number}: not run: no more rows ran out of memory on as large a device")
            return None
        return spec

    def _begin(self, number: int, spec: JobSpec, run_id: str, note: TrialNote, *, adopt: bool = False) -> None:
        tracking = self.workplace.tracking
        if not run_id and adopt:  # it may have been opened by a driver that died before it could say so
            condition = f"tags.`{PARENT}` = '{self.run_id}' and tags.`{schema.TRIAL}` = '{number}'"
            run_id = next((run.run_id for run in tracking.runs(condition, newest=1)), "")
        tags = {PARENT: self.run_id, schema.TRIAL: str(number)}
        run = tracking.run(run_id) if run_id else tracking.create(f"trial {number}: {run_name(spec)}", tags)
        self.ledger.set_run_id(number, run.run_id)
        self.shared_budgets.name_run(number, run.run_id)
        job = self._under_way[number] = TrialJob(
            number,
            spec,
            run,
            self.workplace,
            shared=self._shared,
            note=note,
            quality=self.file.judged_by,
            best_of=self.file.best_of,
            study=self.file.name,
        )
        ended = job.begin(adopt=adopt)
        if ended is None:
            if spec.trials_per_job == 1:  # else it is not asked for yet
                self._room.was_given()
            return
        self._conclude(number, job, ended)
        if ended.retryable:
            self._room.was_refused(len(self._under_way), ended.reason)

    def _conclude(self, number: int, job: TrialJob, ended: TrialEnd) -> None:
        """Book how a trial ended, then tell Optuna, so that nothing is told that is not booked."""
        if ended.refused_beside is not None:
            ended = replace(ended, refused_beside=len(self._under_way) - 1)
        self._has_moved = True
        self.ledger.book(number, ended, settled=self.history.is_settled(job.spec.spec_hash(), ended))
        self._under_way.pop(number, None)
        if ended.kept_usd:
            self._find_pools()
        self._take_news()
        self._on_trial(self.trials[number])

    def _take_news(self) -> list[TrialEntry]:
        """Read and tell what was booked since the last call."""
        news = self.history.refresh()
        for entry in news:
            self.study.report_outcome(entry, self.history)
            self._elsewhere.clear()
            self.is_full = False
            if entry.ended is not None and entry.ended.off_plan:
                self._off_plan = entry
        self.worst_case.learn(len(self.trials))
        for due in self.history.due.values():
            self.workplace.launcher.wake_at(due.not_before)
        return news
