"""Drives a study: one step does what can be done now, and a process repeats it until the study is over.

The order of writing lets another driver replace one that is killed at any moment:

    asked in Optuna -> reserved -> run created in MLflow -> job named -> job created -> run filled -> booked -> told

A local job has died with its driver: its trial ends as failed, what it has cost is booked, and its job is started again
from its checkpoint. One driver at a time works on a study, see `ledger.lock`. With `once` a driver makes one step,
leaves its jobs to the next one, and raises CallAgain.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from paretune.core.errors import (
    BadInput,
    BudgetRefused,
    CallAgain,
    Interrupted,
    JobFailed,
    LaunchRefused,
    LostContact,
    ParetuneError,
    collecting,
    first_line,
)
from paretune.jobs.attempts import WATCH_INTERVAL_S
from paretune.jobs.record import opening_tags, run_name
from paretune.jobs.workplace import Workplace
from paretune.presentation.text import usd
from paretune.specification.job import JobSpec
from paretune.studies.definition.file import StudyFile
from paretune.studies.definition.space import Point
from paretune.studies.results.trials import Trial, TrialStatus, counted
from paretune.studies.search.history import MOST_REFUSED, History
from paretune.studies.search.money import Money
from paretune.studies.search.table import Accepts, StudyTable
from paretune.studies.search.trial_job import KeptPools, TrialJob
from paretune.tracking import schema

ROUND_S = 600.0  # virtual seconds from one call with `once` to the next, of a study of simulated jobs


BeginNext = Callable[[], str]
"""Starts the next job of a study; returns why none is started, or an empty text."""


class Driver:
    """One process at work on a study."""

    def __init__(
        self,
        file: StudyFile,
        table: StudyTable,
        *,
        run_id: str,  # MLflow run of the study
        workplace: Workplace,
        on_trial: Callable[[Trial], None],  # called with each trial that was booked
        say: Callable[[str], None],  # prints a line
    ) -> None:
        self.file, self.table, self.workplace, self.run_id = file, table, workplace, run_id
        self.history = History(file, ())  # made anew with each trial that ends
        self.money = Money(file, table, workplace)
        self._on_trial, self._say = on_trial, say
        self._jobs: dict[int, TrialJob] = {}  # jobs that have not ended, by trial
        self._pools = KeptPools(table, workplace, say)
        self._heard: set[int] = set()  # trials whose ends this driver has learnt from
        self._faults: dict[str, str] = {}  # why the launcher refuses a job, by its hash; empty if it takes it
        self._since_s = 0.0  # trials that have ended later may end the study by their failure

    @property
    def trials(self) -> dict[int, Trial]:
        """All trials of the study that have ended, in the order of booking."""
        return self.history.trials

    @property
    def running(self) -> tuple[TrialJob, ...]:
        """Jobs that have not ended."""
        return tuple(self._jobs.values())

    @property
    def under_way(self) -> list[Trial]:
        """Trials whose jobs run, or wait for another try."""
        return [*(job.trial for job in self.running), *(trial for trial, _ in self.history.retries.values())]

    def why_over(self) -> str:
        """The reason why the search of a study begins no further trial; empty while it may."""
        under_way = sum(job.trial.counts for job in self.running)
        enough = f"{self.file.n_trials} trials were made" if self.history.has_enough(under_way) else ""
        return self.history.lacks_objective() or enough

    def adopt(self) -> None:
        """Continue the trials of earlier drivers, and tell Optuna what they have booked and not told."""
        self._refresh()
        if not self.file.once:  # what failed was mended before this driver was started
            self._since_s = self.workplace.clock.now()
        for number in self.table.abandoned():  # asked for and never reserved: nothing was begun
            self.table.drop(number)
        running, ended = self.table.trials()
        if (running or ended) and not self.file.once:
            spent_usd = self.table.balance().spent_usd
            self._say(f"study {self.file.name} continues: {counted(ended)} made, {usd(spent_usd)} spent")
        for trial in running:
            self._say(f"trial {trial.number}: taken over")
            self._begin(trial, adopt=True)

    def run(self, begin_next: BeginNext) -> str:
        """Start and poll jobs until none runs and none may be started; returns why not, in words.

        With `once` CallAgain is raised as soon as no further one can be started now.
        """
        judged, reason = None, ""  # the trials after which `begin_next` gave a reason
        while True:
            self.poll()
            while self._may_start():
                self.workplace.interruption.check()
                if self._start_given():
                    continue
                if not reason or judged is not self.history:  # what has ended may have left dollars
                    judged, reason = self.history, begin_next()
                if reason:
                    break
            if reason and judged is self.history and not self.under_way:
                return reason
            self.workplace.interruption.check()
            if self.file.once:
                counts = f"{len(self.trials)} trials have ended, {len(self._jobs)} are under way"
                raise CallAgain(f"study {self.file.name} has not ended: {counts}: call again")
            self.workplace.clock.sleep(WATCH_INTERVAL_S)

    def _may_start(self) -> bool:
        if len(self._jobs) >= self.file.n_parallel or self.history.hopeless(self._since_s):
            return False
        now = self.workplace.clock.now()
        return len(self._jobs) < self.history.most_running or now >= self.history.asked_again_at

    def begin(
        self,
        point: Point,
        changes: Mapping[str, Any] | None = None,
        repeats: int | None = None,
        accepts: Accepts | None = None,
    ) -> str:
        """Ask for a trial and start its job; why no job was started, such as beyond a budget, or an empty text.

        `changes` are parameters of its job that differ from those of its point, `repeats` the trial that it repeats.
        With `accepts` the point is one that the sampler of the study draws, see `StudyTable.ask`.
        """
        number, point = self.table.ask(point, changes or {}, accepts)
        return self._start(number, point, changes or {}, repeats)

    def _start(self, number: int, point: Point, changes: Mapping[str, Any], repeats: int | None = None) -> str:
        try:
            spec = self.file.spec_at(point).replace(**changes)
            if reason := self.why_not(spec):
                raise BudgetRefused(reason)
            given = (spec if "max_runtime_minutes" in changes else self.money.limited(spec)).changed()
            status = TrialStatus.RUNNING
            trial = Trial(number=number, point=point, given=given, status=status, changes=changes, repeats=repeats)
            trial = self.money.reserve(trial)
        except (BadInput, BudgetRefused) as error:
            self._say(f"trial {number}: not run: {first_line(error)}")
            self.table.drop(number)
            return first_line(error)
        self.history.retries.pop(trial.identity, None)
        self._begin(trial)
        return ""

    def why_not(self, spec: JobSpec) -> str:
        """The reason why a job need not or must not run now, or its launcher would refuse it; empty if it may."""
        identity, faults = spec.spec_hash(), list[str]()
        if (trial := self.history.settled.get(identity)) is not None:
            return f"trial {trial} had the same job"
        if identity in {trial.identity for trial in self.under_way}:
            return "the same job is under way"
        if self.history.cannot_fit(spec):
            return "a job with no more rows per device ran out of memory on a device as large"
        if identity not in self._faults:
            with collecting(faults):
                self.workplace.launcher.check(spec)
            fault = "".join(faults[:1])
            if fault and fault not in self._faults.values():
                self._say(f"some jobs are left out: {fault}")
            self._faults[identity] = fault
        return self._faults[identity]

    def poll(self) -> None:
        """Book the jobs that have ended; raises JobFailed if none runs, and another would fail like two before it."""
        self.table.look_again()
        for job in self.running:
            if (end := job.poll()) is not None:
                self._conclude(job, end)
        self._pools.settle()
        if not self._jobs and (reason := self.history.hopeless(self._since_s)):
            again = "the command without once=true" if self.file.once else "the same command"
            if self.history.has_enough():  # failed trials count, too
                again += f" with --n_trials {self.history.counted + (self.file.n_trials or 0)}"
            raise JobFailed("of the study", f"{reason}; then {again} continues")

    def stop(self, error: BaseException) -> None:
        """Stop and book running jobs after Ctrl-C or a decision of the study; after any other error they go on.

        They go on as well with `once`, and after Ctrl-C if `on_interrupt` is detach.
        """
        decisions = (Interrupted, KeyboardInterrupt, JobFailed, BudgetRefused)
        left = {
            number
            for number, job in self._jobs.items()
            if self.file.once
            or not isinstance(error, decisions)
            or (isinstance(error, Interrupted) and job.spec.on_interrupt == "detach" and job.spec.on_sagemaker)
        }
        for number in self._jobs.keys() - left:
            with suppress(ParetuneError):  # all at once, before one is waited for
                self._jobs[number].ask_to_stop()
        for job in self.running:
            try:
                if job.number not in left:
                    with self.table.reachable():
                        self._conclude(job, job.abandon(error))
                    continue
            except ParetuneError as failure:
                self._say(f"trial {job.number}: {failure}")
            job.record.leave()
        with suppress(LostContact), self.table.reachable():
            if not left and not self.file.once:
                self.finish()

    def finish(self) -> None:
        """Give back warm pools."""
        self._pools.give_back()
        self._refresh()

    def _start_given(self) -> bool:
        """Start what needs no search: a trial that somebody has queued, or a job that is due to be tried again."""
        if (asked := self.table.ask_waiting()) is not None:
            self._start(*asked, {})
            return True
        for trial, not_before in self.history.retries.values():
            if not_before <= self.workplace.clock.now():
                self.history.retries.pop(trial.identity)
                self.begin(trial.point, trial.changes, trial.repeats)
                return True
        return False

    def _begin(self, trial: Trial, *, adopt: bool = False) -> None:
        tracking, number, run_id = self.workplace.tracking, trial.number, trial.run_id
        if not run_id and adopt:  # a driver may have died between creating the run and recording it
            condition = f"tags.`{schema.PARENT}` = '{self.run_id}' and tags.`{schema.TRIAL}` = '{number}'"
            run_id = next((run.run_id for run in tracking.runs(condition, newest=1)), "")
        tags = {schema.PARENT: self.run_id, schema.TRIAL: str(number), **opening_tags(trial.spec, self.workplace)}
        run = tracking.run(run_id) if run_id else tracking.create(f"trial {number}: {run_name(trial.spec)}", tags)
        trial = replace(trial, run_id=run.run_id)
        self.table.save(trial)
        if not (adopt or self.trials or self.running):
            points = self.file.size() or "any number of"
            self._say(f"study {self.file.name}: {points} points; trial {number} runs: {trial.setting()}")
        job = self._jobs[number] = TrialJob(trial, run, self.workplace, self.file.name)
        if (end := job.begin(adopt=adopt)) is not None:
            self._conclude(job, end)
            if end.is_retryable and self.history.refused >= MOST_REFUSED:
                raise LaunchRefused(f"{end.reason} (nothing could be launched {self.history.refused} times in a row)")

    def _conclude(self, job: TrialJob, end: Trial) -> None:
        """Book how a trial ended, then tell Optuna, so that nothing is told that is not booked."""
        self._jobs.pop(job.number, None)
        if end.refused_beside is not None:
            end = replace(end, refused_beside=len(self._jobs))
        self.table.save(end)
        self._refresh()
        self._on_trial(self.trials[job.number])

    def _refresh(self) -> None:
        """Read what was booked since the last call, learn from it, and tell Optuna."""
        ended, told = self.table.trials()[1], self.table.told()
        self.history = History(self.file, ended, [job.trial for job in self.running])
        for trial in ended:
            if trial.number not in self._heard:
                self._heard.add(trial.number)
                if remark := self.money.add(trial):
                    self._say(remark)
                if trial.number not in told:
                    self.table.tell(trial)
        self.money.learn(len(self.trials), self.history.longest_s)
        if (virtual_clock := self.workplace.launcher.virtual_clock) is not None:
            for moment in (self.history.asked_again_at, *(later for _, later in self.history.retries.values())):
                if moment > virtual_clock.now():
                    virtual_clock.wake_at(moment)
