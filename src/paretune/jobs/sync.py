"""Brings MLflow up to date with jobs whose launching process has ended.

It follows running jobs, even if their runs were deleted in MLflow, records jobs that have ended, and closes the runs of
jobs that were never created. It records a finished job again if its record has gaps, and registers models that are
still to be registered. It records the cost of instances kept after a job once they are released. Jobs of MLflow
projects are treated the same way.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from paretune.core.errors import Interrupted
from paretune.core.interruption import Interruption
from paretune.core.shell import command_line
from paretune.jobs.attempts import WATCH_INTERVAL_S, Attempts
from paretune.jobs.bill import NO_PRICE, record_pools
from paretune.jobs.model import overdue, register
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.record import ENDED, RESTORED, JobRecord, find_job, of_one_run
from paretune.jobs.removed import removed_jobs, shared_ledgers
from paretune.jobs.running import place_of
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import CREATED_WITHIN_S, GONE_AFTER_S, SHOWN_WITHIN_S
from paretune.launchers.processes import is_alive, process_text
from paretune.ledger.budget_ledger import BudgetLedger
from paretune.specification import metrics
from paretune.specification.ending import JobState
from paretune.specification.job import JobSpec
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun, number_in
from paretune.tracking.store import Tracking


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The result of updating one run: the job if it has completed, and a remark, such as why there is no result."""

    run_id: str  # empty if the remark is about several runs
    result: JobOutcome | None = None
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Sync:
    """Follows every unfinished job to its end and records warm pools; an interruption leaves the jobs running."""

    workplace_of: Callable[[JobSpec], Workplace]
    """Returns the workplace of a specification; jobs of one launcher and region share one."""
    tracking: Tracking
    interruption: Interruption
    budgeted: Sequence[JobSpec] = ()
    """Jobs that name the user's budget files, which are checked even if no run names them."""
    _under_way: dict[str, Attempts] = field(default_factory=dict)
    _collected: list[Collected] = field(default_factory=list)

    def run(self) -> list[Collected]:
        """Follow all unfinished jobs to their end, and return the results.

        On Ctrl-C, raises Interrupted, and the jobs continue.
        """
        unregistered = overdue(self.tracking)  # read first: a job that ends below registers its model itself
        for run in [*self.tracking.unfinished(), *self._recorded_anew()]:
            with self._saying_why(run.run_id, "its job cannot be followed: "):
                self._adopt(run)
        try:
            while self._under_way:
                for run_id, job in list(self._under_way.items()):
                    if (entry := _poll(job)) is not None:
                        self._collected.append(entry)
                        del self._under_way[run_id]
                self.interruption.check()
                clocks = [job.record.workplace.clock for job in self._under_way.values()]
                for clock in {id(clock): clock for clock in clocks}.values():
                    clock.sleep(WATCH_INTERVAL_S)
        finally:
            for job in self._under_way.values():
                job.record.leave()
        for run in unregistered:
            self._say(run.run_id, register(run.params["register"], run.run_id, self.tracking))
        for run_id, sentence in record_pools(self.tracking, lambda run: place_of(run, self.workplace_of)[1]):
            self._say(run_id, sentence)
        self._record_in_budgets()
        return self._collected

    def _say(self, run_id: str, remark: str) -> None:
        self._collected.append(Collected(run_id=run_id, remark=remark))

    @contextmanager
    def _saying_why(self, run_id: str, what: str) -> Iterator[None]:
        """Turn an error about one run into a remark that starts with `what`, so that the other runs are updated."""
        with of_one_run(lambda why: self._say(run_id, f"{what}{why}")):
            yield

    def _adopt(self, run: RecordedRun) -> None:
        """Begin to follow the job of a run, or add a remark on why it is not followed. Raises errors about this run."""
        watched_by = run.tags.get(schema.WATCHED_BY, "")
        if watched_by != process_text() and is_alive(watched_by):
            self._say(run.run_id, "another process on this machine is watching it")
            return
        spec, workplace = place_of(run, self.workplace_of)
        if not _is_there(run, workplace):
            if run.is_deleted and not workplace.launcher.jobs_outlive_submitter:
                return  # the job died with its process, and the user has removed its record
            if other := workplace.other_machine(run.tags):
                self._say(run.run_id, other)
            elif run.tags.get(schema.STATE) == JobState.COMPLETED.value:
                self._say(run.run_id, _leave_gaps(run, workplace))
            else:
                self._say(run.run_id, _end_never_created(run, spec, workplace))
                if run.is_deleted and self.tracking.recorded(run.run_id) is not None:
                    self.tracking.run(run.run_id).delete()  # nothing was paid for, so the record stays deleted
            return
        if run.is_deleted:
            self._say(run.run_id, f"it was deleted in MLflow: {RESTORED}")
        record = JobRecord(spec, workplace, run=workplace.tracking.run(run.run_id))
        record.adopt()
        # The process that watched the job has ended, or runs on another machine and does not need the tag.
        record.is_watched_elsewhere = False
        record.watch()
        job = Attempts(record)
        try:
            job.begin()
        except Exception:
            record.leave()
            raise
        self._under_way[run.run_id] = job

    def _record_in_budgets(self) -> None:
        """Record the cost of ended jobs that still have a reservation in the budget files of recent jobs.

        A budget file that cannot be opened is reported only if an ended job has a reservation in it.
        """
        for shared in shared_ledgers(self.tracking, self.workplace_of, self.budgeted):
            if shared.fault:
                reserved = (run.run_id for run in shared.runs if run.tags.get(schema.RESERVED))
                if run_id := next(reserved, ""):
                    self._say(run_id, f"its cost cannot be recorded in its budgets: {shared.fault}")
                continue
            if shared.ledger is None:
                continue
            with self._saying_why("", f"the budgets of {shared.budget} cannot be updated: "):
                for run_id, usd in _record_ended(shared.ledger, self.tracking).items():
                    cost = "its worst case" if usd is None else f"{usd:.4g} USD"
                    self._say(run_id, f"{cost} recorded against the budgets of {shared.budget}")
                for sentence in removed_jobs(shared, self.tracking, self.workplace_of)[1]:
                    self._say("", sentence)

    def _recorded_anew(self) -> Iterator[RecordedRun]:
        """Yield a new run for each job with a reservation whose run was removed from MLflow for good."""
        for shared in shared_ledgers(self.tracking, self.workplace_of, self.budgeted):
            with of_one_run(lambda _: None):  # `_record_in_budgets` reports what is wrong with the ledger
                for removed in removed_jobs(shared, self.tracking, self.workplace_of)[0]:
                    run = removed.record_anew(self.tracking)
                    gone = f"run {removed.reservation.run_id} of job {removed.name} was removed from MLflow"
                    self._say(run.run_id, f"{gone}: this new run records the job")
                    yield run


def _is_there(run: RecordedRun, workplace: Workplace) -> bool:
    """Return whether the job of a run exists.

    If the process that created the job was killed, AWS may show the job only after a few seconds. If the job has run
    before, a single negative answer does not prove that it is gone. In both cases, the launcher is asked repeatedly.
    """
    has_run, was_killed = _has_run(run), is_alive(run.tags.get(schema.WATCHED_BY, "")) is False
    patience_s = GONE_AFTER_S if has_run else SHOWN_WITHIN_S if was_killed else 0.0
    return find_job(run.run_id, run.tags, workplace, patience_s) is not None


def _has_run(run: RecordedRun) -> bool:
    """Return whether the record of a run shows that its job has run: by its phase or by its cost so far."""
    return schema.SECONDARY_STATUS in run.tags or run.metrics.get(metrics.COST_USD, 0.0) > 0


def _leave_gaps(run: RecordedRun, workplace: Workplace) -> str:
    """Return a remark on a finished job that was not found, so that the gaps in its record cannot be filled.

    Later calls of `sync` try again only if it is a local or simulated job, whose files may be in another folder.
    """
    if not workplace.launcher.jobs_outlive_submitter or workplace.launcher.traits.is_simulated:
        there = f"run `{command_line('sync')}` in the folder in which it was started"
        deleted = f"if its files are deleted, delete the tag {schema.GAP} of the run in MLflow"
        why = f"{workplace.home} does not contain its job"
        return f"the gaps in its record cannot be filled, because {why}: {there}, or, {deleted}"
    workplace.tracking.run(run.run_id).set_tags({schema.GAP: ""})
    return "the gaps in its record cannot be filled, because its job no longer exists"


def _end_never_created(run: RecordedRun, spec: JobSpec, workplace: Workplace) -> str:
    """Close the run of a job that does not exist, unless another process may still create it; return a remark."""
    again = f"to start it: {run.tags.get(schema.COMMAND, 'repeat its command')}"
    lives = is_alive(run.tags.get(schema.WATCHED_BY, ""))
    is_on_another_machine = lives is None and schema.WATCHED_BY in run.tags
    if not workplace.launcher.jobs_outlive_submitter and is_on_another_machine:
        return f"it was started on another machine, and its job cannot be seen from here; {again}"
    claimed_at = number_in(run.tags.get(schema.CLAIMED_AT, ""))
    age_s = workplace.clock.now() - (run.started if claimed_at is None else claimed_at)
    if age_s < CREATED_WITHIN_S and lives is not False:
        minutes = math.ceil((CREATED_WITHIN_S - age_s) / 60)
        return (
            f"its job does not exist yet; `sync` closes the run if the job is still missing in {minutes} minutes; "
            f"{again}"
        )
    record = JobRecord(spec, workplace, run=workplace.tracking.run(run.run_id))
    job = Attempts(record)
    reason = "its job was never created"
    if _has_run(run):
        job.bill.attempts_usd = None  # its seconds are unknown
        record.run.set_tags(NO_PRICE)  # so that its cost so far does not count as its cost
        reason = "its job no longer exists, and its cost is unknown (budgets count its worst case)"
    job.end(Interrupted(reason), stops=False)
    return f"{reason}, so the run is closed; {again}"


def _record_ended(ledger: BudgetLedger, tracking: Tracking) -> dict[str, float | None]:
    """Record the cost of jobs that ended while the ledger was unavailable, and remove the tag that says so.

    Returns dollars by run id; None means that the cost is unknown and the worst case was recorded. Jobs whose warm pool
    is still kept are left to `Bill.record_pool`.
    """
    recorded = {}
    for reserved in (reservation.run_id for reservation in ledger.reservations()):
        run = tracking.recorder_of(reserved)
        if run is None or run.tags.get(schema.STATE) not in ENDED:
            continue
        if run.tags.get(schema.WARM_POOL) != schema.WARM_POOL_KEPT:
            recorded[run.run_id] = run.cost_usd
            ledger.record_cost(reserved, run.cost_usd)
            if run.tags.get(schema.RESERVED) and not run.is_deleted:
                tracking.run(run.run_id).set_tags({schema.RESERVED: ""})
    return recorded


def _poll(job: Attempts) -> Collected | None:
    run_id, spec, faults, end = job.record.run.run_id, job.record.spec, list[str](), None
    with of_one_run(faults.append):  # for example if the next attempt is refused; the job's run stays open
        end = job.poll()
    if faults:
        job.record.leave()
        return Collected(run_id=run_id, remark=faults[0])
    if end is None:
        return None
    if not end.has_completed:
        return Collected(run_id=run_id, remark="\n".join([str(end.error()), *end.remarks]))
    remarks = [*end.remarks]
    job.record.run.delete_tags(schema.UNSEEN)
    if spec.register is not None:
        remarks.append(register(spec.register, run_id, job.record.workplace.tracking))
    return Collected(run_id=run_id, result=end, remark="; ".join(remarks))
