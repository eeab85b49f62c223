"""Bring MLflow up to date with jobs whose launcher has ended.

Those that run are adopted, those that have ended are collected, and a run whose job was never created is closed.
A finished job whose model was to be registered, and is not, gets its version.
Instances kept after a job are followed until they are given back, and booked. The jobs of MLflow projects are followed
like those of our training.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from paretune.core.errors import BadInput, Interrupted, JobFailed, LaunchRefused, LostContact
from paretune.core.interruption import Interruption
from paretune.jobs.adoption import elsewhere
from paretune.jobs.recording import JobRunWriter, collect_nothing
from paretune.jobs.result import JobResult
from paretune.jobs.retrying_job import WATCH_INTERVAL_S, RetryingJob
from paretune.jobs.warm_pools import KeptPool, kept_runs
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import CREATED_WITHIN_S, Job, job_name
from paretune.launchers.processes import is_alive, is_watched
from paretune.launchers.shared import attach, group_of
from paretune.models.register import overdue, register
from paretune.specification.container import Event
from paretune.specification.job import PROJECT, JobSpec
from paretune.tracking import RecordedJob, RecordedRun, Tracking, schema
from paretune.tracking.recorded_job import first_plan

_RECENT = 200
"""Jobs with budgets, the newest, whose files of budgets are looked at."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    """How one run was brought up to date: an outcome, and one sentence on what is missing or why there is none."""

    run_id: str
    outcome: JobResult | None = None
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Sync:
    """Follows every unfinished job and warm pool to its end. They are not owned: an interruption leaves them running.

    Attributes:
        workplace_of: the workplace a specification belongs to; the same one for jobs of one place.
        collect: copies what the command of a project has recorded in its job into the run of that id; sentences on
            what could not be copied.
    """

    workplace_of: Callable[[JobSpec], Workplace]
    tracking: Tracking
    interruption: Interruption
    on_events: Callable[[list[Event]], None]
    collect: Callable[[Job, str], list[str]] = collect_nothing
    _under_way: dict[str, RetryingJob] = field(default_factory=dict)
    _pools: dict[str, tuple[KeptPool, Workplace]] = field(default_factory=dict)

    def run(self) -> list[Collected]:
        """Take up all unfinished runs and warm pools and follow them; how each ended.

        Raises:
            Interrupted: Ctrl-C or SIGTERM; the jobs go on.
            TrackingUnavailable: MLflow does not answer; nothing was touched.
        """
        unregistered = overdue(self.tracking)  # what is collected below registers its model itself
        taken = [(run.run_id, self._take_up(run)) for run in self.tracking.unfinished()]
        collected = [Collected(run_id=run_id, remark=remark) for run_id, remark in taken if remark]
        try:
            while self._under_way or self._take_up_pools(collected):
                for run_id, job in list(self._under_way.items()):
                    found = _poll(job)
                    if found is not None:
                        collected.append(found)
                        del self._under_way[run_id]
                self._settle_pools(collected)
                self.interruption.check()
                clocks = [job.clock for job in self._under_way.values()]
                clocks += [workplace.clock for _, workplace in self._pools.values()]
                for clock in {id(clock): clock for clock in clocks}.values():
                    clock.sleep(WATCH_INTERVAL_S)
        finally:
            for job in self._under_way.values():
                job.writer.leave()
        registered = ((run.run_id, register(run.params["register"], run.run_id, self.tracking)) for run in unregistered)
        collected += [Collected(run_id=run_id, remark=remark) for run_id, remark in registered]
        return collected + self._book_budgets()

    def _book_budgets(self) -> list[Collected]:
        """Book what jobs that have ended still hold of the budgets that recent jobs have counted against."""
        recent = self.tracking.runs(f"tags.`{schema.BUDGET}` LIKE '%'", newest=_RECENT)
        said = []
        for run in {(run.tags[schema.BUDGET], run.tags.get(schema.LAUNCHER)): run for run in recent}.values():
            place = self._place(run)
            if isinstance(place, str):
                said.append(Collected(run_id=run.run_id, remark=f"its budgets: {place}"))
                continue
            try:
                budget = RecordedJob(run).budget
                ledger, origin = place[1].budget_ledger(budget), place[1].launcher.origin
                booked = {} if ledger is None else ledger.book_ended(self.tracking)
                unbegun = [] if ledger is None else ledger.release_abandoned(origin, place[1].clock.now())
            except (BadInput, LostContact) as error:
                said.append(Collected(run_id=run.run_id, remark=f"its budgets cannot be booked: {error}"))
                continue
            for run_id, usd in booked.items():
                cost = "its worst case" if usd is None else f"{usd:.4g} USD"
                said.append(Collected(run_id=run_id, remark=f"{cost} booked against the budgets of {budget}"))
            if unbegun:
                freed = f"{len(unbegun)} reservations of trials that were never begun are taken back from {budget}"
                said.append(Collected(run_id=run.run_id, remark=freed))
        return said

    def _take_up(self, run: RecordedRun) -> str:
        """Begin to follow the job of a run; or why it is not followed."""
        if is_watched(run.tags.get(schema.WATCHED_BY, "")):
            return "another process on this machine is watching it"
        place = self._place(run)
        if isinstance(place, str):
            return place
        spec, workplace = place
        try:
            recorded = run.tags.get(schema.JOB_NAME, "")
            name = recorded if group_of(recorded)[1] else job_name(run.run_id, 1)  # the next attempts follow from it
            begun = attach(workplace.launcher, name)
        except (BadInput, LaunchRefused, LostContact) as error:
            return f"its job cannot be looked at: {error}"
        if begun is None:
            return _close_never_created(run, spec, workplace)
        collects = spec.project is not None or run.tags.get(schema.LOGGING) == "collect"
        collect = self.collect if collects else collect_nothing
        writer = JobRunWriter(spec, workplace, run=workplace.tracking.run(run.run_id), collect=collect)
        writer.begin_project({}) if spec.entry_script == PROJECT else writer.begin(None)
        plan = first_plan(spec, run.tags)
        job = RetryingJob(writer, self.on_events, plan=plan, halves=not spec.runs_project, name=name)
        try:
            job.begin()
        except (LaunchRefused, LostContact) as error:
            writer.leave()
            return f"its job cannot be looked at: {error}"
        self._under_way[run.run_id] = job
        return ""

    def _place(self, run: RecordedRun) -> tuple[JobSpec, Workplace] | str:
        """What the job of a run was asked for, and where it runs; or why that cannot be told."""
        try:
            spec = RecordedJob(run).spec()
        except (BadInput, ValueError, KeyError) as error:
            return f"it cannot be read back: {error}"
        try:
            workplace = self.workplace_of(spec)
            return elsewhere(run.tags, workplace.launcher) or (spec, workplace)
        except (BadInput, LaunchRefused) as error:
            return f"its job cannot be looked at: {error}"

    def _take_up_pools(self, collected: list[Collected]) -> bool:
        """Begin to follow the warm pools that are not followed yet; whether any is followed."""
        done = {entry.run_id for entry in collected if entry.remark}
        for run in kept_runs(self.tracking):
            if run.run_id in self._pools or run.run_id in done:
                continue
            place = self._place(run)
            if isinstance(place, str):
                collected.append(Collected(run_id=run.run_id, remark=f"its warm pool: {place}"))
                continue
            workplace = place[1]
            try:
                pool = KeptPool(run, workplace)
            except (BadInput, LaunchRefused) as error:
                collected.append(Collected(run_id=run.run_id, remark=f"its warm pool cannot be looked at: {error}"))
                continue
            self._pools[run.run_id] = pool, workplace
            kept = f"the instances of {pool.name} are kept and billed: following them until they are given back"
            self.on_events([Event(time=workplace.clock.now(), step=0, message=kept)])
        return bool(self._pools)

    def _settle_pools(self, collected: list[Collected]) -> None:
        """Book the warm pools that are no longer kept."""
        for run_id, (pool, _) in list(self._pools.items()):
            try:
                settled = pool.settle()
            except LostContact as error:
                remark = str(error)
            else:
                if settled is None:
                    continue
                usd = pool.usd(settled)
                remark = settled.sentence(pool.name) + ("" if usd is None else f": {usd:.4g} USD, in cost_usd now")
            collected.append(Collected(run_id=run_id, remark=remark))
            del self._pools[run_id]


def _close_never_created(run: RecordedRun, spec: JobSpec, workplace: Workplace) -> str:
    """Close the run of a job that does not exist; left open while somebody may be about to create it."""
    again = f"to start it: {run.tags.get(schema.COMMAND, 'repeat its command')}"
    lives = is_alive(run.tags.get(schema.WATCHED_BY, ""))
    is_elsewhere = lives is None and schema.WATCHED_BY in run.tags
    if not workplace.launcher.outlives and is_elsewhere:
        return f"it was started on another machine, and its job cannot be seen from here; {again}"
    age = workplace.clock.now() - float(run.tags.get(schema.CLAIMED_AT, run.started))
    may_come = lives is not False or not workplace.launcher.creates_at_once
    if age < CREATED_WITHIN_S and may_come:
        minutes = (CREATED_WITHIN_S - age) / 60
        return f"its job is not created yet; `sync` closes the run if it is not in {minutes:.0f} minutes; {again}"
    was_seen = schema.SECONDARY_STATUS in run.tags
    gone = "its job is no longer known to AWS, and what it has cost is not known (its worst case counts in budgets)"
    reason = gone if was_seen else "its job was never created"
    writer = JobRunWriter(spec, workplace, run=workplace.tracking.run(run.run_id))
    if was_seen:
        writer.cost_usd = None
    writer.give_up(Interrupted(reason), None)
    return f"{reason}, so the run is closed; {again}"


def _poll(job: RetryingJob) -> Collected | None:
    writer = job.writer
    run_id = writer.run.run_id
    try:
        outcome = job.poll()
        if outcome is None:
            return None
        remarks = [*writer.remarks]
        if writer.spec.register is not None:
            remarks.append(register(writer.spec.register, run_id, writer.workplace.tracking))
        return Collected(run_id=run_id, outcome=outcome, remark="; ".join(remarks))
    except JobFailed as error:
        return Collected(run_id=run_id, remark="\n".join([str(error), *writer.remarks]))
    except (LostContact, LaunchRefused, BadInput) as error:  # the last two of the next attempt: sync gives up no job
        writer.leave()
        return Collected(run_id=run_id, remark=str(error))
