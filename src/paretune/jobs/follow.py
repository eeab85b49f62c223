"""The one way to a job that exists: find it, list it, show what it prints, stop it, and bring MLflow up to date.

A job is followed by what its run and its launcher say of it: its plan, which the run keeps, and its state, which only
the launcher knows. A deleted run is restored, because its job is paid for. A run may even be removed for good, such as
by `mlflow gc`, while its job runs. If the job has a budget, the reservation in the ledger still says which job it is,
so that the job can be found, followed, stopped and billed.

`Sync` follows running jobs whose launching process has ended, records jobs that have ended, and closes the runs of jobs
that were never created. It records a finished job again if its record has gaps, registers models that are still to be
registered, and records the cost of instances kept after a job once they are released.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from paretune.core.errors import BadInput, Interrupted
from paretune.core.interruption import Interruption
from paretune.core.reading import absolute
from paretune.core.shell import command_line
from paretune.jobs.attempts import WATCH_INTERVAL_S, Attempts
from paretune.jobs.bill import Bill, record_pools
from paretune.jobs.model import overdue, register
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.plan import launcher_in, recalled, recorded_plan
from paretune.jobs.record import ENDED, RESTORED, JobRecord, find_job, first_job_of, of_one_run, opening_tags, owner_of
from paretune.jobs.remaining import Remaining, course_of, remaining
from paretune.jobs.run_names import run_name, unknown_run
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import CREATED_WITHIN_S, GONE_AFTER_S, SHOWN_WITHIN_S, Job
from paretune.launchers.processes import is_alive, process_text
from paretune.ledger.budget_ledger import BudgetLedger, Reservation, ReservedJob
from paretune.presentation.text import limit_usd, usd
from paretune.specification import catalog, metrics
from paretune.specification.ending import JobState
from paretune.specification.order import job_name, job_of
from paretune.specification.plan import Plan
from paretune.tracking import schema
from paretune.tracking.recorded_run import NO_PRICE, RecordedRun, number_in, recorded_price
from paretune.tracking.store import Tracking

WorkplaceAt = Callable[[str, str | None], Workplace]
"""Returns the workplace of a launcher, named by its name, in a region or None; see `Workplaces.at`."""
_RECENT = 200  # number of the newest jobs with budgets; only the budget files that they name are checked
_RUN_ID = re.compile(r"[0-9a-f]{1,32}")
_SHORTEST_ID = 6  # minimum number of characters of a run's id that may select it
_SHOWN = 5  # maximum number of runs that an error message lists
_FOLLOW_EVERY_S = 2.0  # seconds between two reads; AWS allows an account five reads of logs a second


def workplace_of(run: RecordedRun, workplace_at: WorkplaceAt) -> Workplace:
    """Return the workplace of a run's job.

    Raises BadInput if the job is in another AWS account or region, and LaunchRefused if AWS does not say which account
    this is.
    """
    region = run.tags.get(schema.REGION) or (schema.given_by(run.tags) or {}).get("region")
    workplace = workplace_at(run.launcher, region)
    if elsewhere := workplace.elsewhere(run.tags):
        raise BadInput([elsewhere])
    return workplace


def plan_of(run: RecordedRun, workplace: Workplace) -> Plan:
    """Return the plan of a run's job. Raises BadInput if the record cannot be read."""
    try:
        return recorded_plan(run, workplace)
    except BadInput as error:
        raise BadInput([f"it cannot be read back: {error}"]) from error


@dataclass(frozen=True, kw_only=True)
class SharedLedger:
    """A ledger that recent jobs of an MLflow store use, or the reason why it cannot be opened."""

    budget: str  # the budget file
    runs: Sequence[RecordedRun]  # the recent jobs that count against it, newest first
    ledger: BudgetLedger | None
    fault: str = ""


def shared_ledgers(
    tracking: Tracking, workplace_at: WorkplaceAt, budgets: Sequence[str] = ()
) -> Iterator[SharedLedger]:
    """Yield the ledgers of the budget files that recent jobs name, deleted ones too, and of `budgets`.

    Raises TrackingUnavailable.
    """
    groups = defaultdict[str, list[RecordedRun]](list)
    for run in tracking.runs(f"tags.`{schema.BUDGET}` LIKE '%'", newest=_RECENT, deleted=True):
        groups[run.tags[schema.BUDGET]].append(run)
    for budget, runs in groups.items():
        ledger, faults, is_open = None, list[str](), False
        for run in runs:
            with of_one_run(faults.append):  # any run will do, even one whose job is in another AWS account
                ledger, is_open = workplace_of(run, workplace_at).budget_ledger(run.budget), True
            if ledger is not None:  # jobs that are not billed have no ledger
                break
        yield SharedLedger(budget=budget, runs=runs, ledger=ledger, fault="" if is_open else faults[0])
    named = {absolute(run.budget) for runs in groups.values() for run in runs if run.budget}
    for budget in [each for each in dict.fromkeys(budgets) if absolute(each) not in named]:
        with of_one_run(lambda _: None):  # no recorded job counts against it
            billed = catalog.owner(next(iter(catalog.instances()))).name
            yield SharedLedger(budget=budget, runs=(), ledger=workplace_at(billed, None).budget_ledger(budget))


@dataclass(frozen=True, kw_only=True)
class RemovedJob:
    """A job with a reservation whose run was removed from MLflow for good."""

    budget: str
    reservation: Reservation
    plan: Plan
    workplace: Workplace
    job: Job  # its first attempt

    @property
    def name(self) -> str:
        """The name of the job's first attempt."""
        return "" if self.reservation.job is None else self.reservation.job.name

    def record_anew(self, tracking: Tracking) -> RecordedRun:
        """Create a run that records the job from now on, unless another process has just done so, and return it."""
        removed = self.reservation.run_id
        if (run := tracking.recorder_of(removed)) is not None:
            return run
        tags = opening_tags(self.plan.identity, self.plan.card.command_line, self.workplace)
        tags |= {schema.JOB_NAME: self.name, schema.CONTINUES: removed}
        name = run_name(self.plan.card, self.plan.offer.instance_type)
        created = tracking.create(name, tags | {schema.WATCHED_BY: ""}).run_id
        run = tracking.recorded(created)
        assert run is not None  # it was created just now
        return run


def removed_jobs(
    shared: SharedLedger, tracking: Tracking, workplace_at: WorkplaceAt, asked: str = ""
) -> tuple[list[RemovedJob], list[str]]:
    """Return the jobs of a ledger whose runs this MLflow store has lost, and sentences on all others without a run.

    A run may also be missing because this store is a copy of the one that has it. So a job that another user or another
    machine has launched is returned only if its run, or the beginning of its id, is `asked` for.

    A reservation whose job cannot be read may belong to another store. Reservations that name another store are left
    out. Raises LostContact if the ledger cannot be read, and TrackingUnavailable.
    """
    jobs, unknown, sentences = list[RemovedJob](), list[Reservation](), list[str]()
    for reservation in [] if shared.ledger is None else shared.ledger.reservations():
        reserved = reservation.job
        if reserved is not None and reserved.store != tracking.store_id:
            continue
        if tracking.recorder_of(reservation.run_id) is not None:
            continue
        if reserved is None:
            unknown.append(reservation)
            continue
        faults, job = list[str](), None
        with of_one_run(faults.append):
            workplace = workplace_at(launcher_in(reserved.given), reserved.region or reserved.given.get("region"))
            plan = recalled(reserved.given, workplace, budget=shared.budget)
            if not workplace.has_launched(reserved) and not (asked and reservation.run_id.startswith(asked)):
                sentences.append(_of_somebody_else(shared, reservation, reserved))
                continue
            job = workplace.launcher.attach(reserved.name)
        if faults:
            sentences.append(
                f"{_reserved(shared, [reservation])} for job {reserved.name}, which is unreadable: {faults[0]}"
            )
            continue
        if job is None or job.run_id != reservation.run_id:
            never = "its run was removed from MLflow, and its job does not exist"
            sentences.append(f"{_reserved(shared, [reservation])} for job {reserved.name}: {never}")
            continue
        jobs.append(RemovedJob(budget=shared.budget, reservation=reservation, plan=plan, workplace=workplace, job=job))
    if unknown:
        ids = ", ".join(each.run_id for each in unknown[:5])
        where = "their runs were removed from this MLflow store, or are in another one"
        sentences.append(f"{_reserved(shared, unknown)} by another version of paretune for the runs {ids}: {where}")
    return jobs, sentences


def _of_somebody_else(shared: SharedLedger, reservation: Reservation, job: ReservedJob) -> str:
    whose = f"{job.user or 'somebody'} on {job.host or 'another machine'}"
    adopt = command_line("sync", {"adopt": reservation.run_id})
    return (
        f"{_reserved(shared, [reservation])} for job {job.name} of {whose}: this MLflow store does not have its run, "
        f"and is perhaps a copy of the one that has it; if the run was removed, `{adopt}` records the job here"
    )


def _reserved(shared: SharedLedger, reservations: Sequence[Reservation]) -> str:
    reserved_usd = sum(each.worst_usd for each in reservations)
    return f"{limit_usd(reserved_usd)} are reserved in the budgets of {shared.budget}"


def running_jobs(tracking: Tracking, workplace_at: WorkplaceAt, budgets: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the jobs of a store that have not ended, oldest first, a row each. Raises TrackingUnavailable.

    `state` is the launcher's own word for the phase, such as Training. `since_s` is the number of seconds since the run
    was opened. `progress` is `Remaining.row`, None if no counter of the training was read. `cost_usd` is the cost so
    far and `worst_usd` the worst case, in dollars, None if unknown. If the job cannot be read, `remark` is the reason.
    Jobs whose runs were deleted are among them, and jobs with a budget whose runs were removed for good; `budgets` are
    budget files of the user.
    """
    rows = [_row(run, workplace_at) for run in reversed(tracking.running())]
    return [*(row for row in rows if row is not None), *_removed_rows(tracking, workplace_at, budgets)]


def _row(run: RecordedRun, workplace_at: WorkplaceAt) -> dict[str, Any] | None:
    """Return the row of a job, or None if its run is deleted and the job does not exist or cannot be read."""
    tags, job = run.tags, None
    names = [tags.get(schema.USER), tags.get(schema.STUDY) and f"study {tags[schema.STUDY]}"]
    names.append(f"trial {tags[schema.TRIAL]}" if schema.TRIAL in tags else None)
    where = f"{run.instance_count} x {run.instance_type}" if run.instance_type != "local" else "local"
    row: dict[str, Any] = {
        "run_id": run.run_id,
        "job": tags.get(schema.JOB_NAME, ""),
        "title": run.name,
        "where": where,
        "state": tags.get(schema.SECONDARY_STATUS, "not created yet"),
        "since_s": 0.0,
        "progress": None,
        "cost_usd": run.cost_usd,
        "worst_usd": None,
        "owner": ", ".join(filter(None, names)),
        "remark": "",
    }
    with of_one_run(lambda why: row.update(remark=why)):
        workplace = workplace_of(run, workplace_at)
        plan = plan_of(run, workplace)
        title = run_name(plan.card, run.instance_type)
        row |= {"title": title, "since_s": max(0.0, workplace.clock.now() - run.started)}
        row["worst_usd"] = plan.limits.worst_usd
        if (job := _job(run, workplace)) is not None:
            row["state"] = job.detail() or job.state().value
            bill = _bill_of(run, plan)
            usd = [each for each in (bill.so_far_usd(job), run.cost_usd) if each is not None]
            row["cost_usd"] = max(usd, default=None)
            left = _remaining(job, bill, workplace)
            row["progress"] = None if left is None else left.row()
    if run.is_deleted:
        row["remark"] = (
            row["remark"] or f"its run is deleted in MLflow: `{command_line('sync')}` restores and follows it"
        )
        return None if job is None else row
    return row


def _bill_of(run: RecordedRun, plan: Plan) -> Bill:
    offer = plan.offer_on(run.instance_type)
    return Bill(plan, replace(offer, price=recorded_price(run.tags, offer.price) or offer.price))


def _remaining(job: Job, bill: Bill, workplace: Workplace) -> Remaining | None:
    """Return what is left of a job that this process has not followed before; None if nothing says so."""
    if job.state().is_terminal:
        return None
    return remaining(course_of(job, bill.plan), bill, workplace.launcher.traits, workplace.clock.now())


def _removed_rows(tracking: Tracking, workplace_at: WorkplaceAt, budgets: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a row for each job that has a reservation and whose run was removed from MLflow for good."""
    for each in _removed(tracking, workplace_at, budgets):
        job, offer = each.job, each.plan.offer
        bill = Bill(each.plan)
        left = _remaining(job, bill, each.workplace)
        yield {
            "run_id": each.reservation.run_id,
            "job": each.name,
            "title": run_name(each.plan.card, offer.instance_type),
            "where": f"{offer.instance_count} x {offer.instance_type}",
            "state": job.detail() or job.state().value,
            "since_s": job.status().seconds,
            "progress": None if left is None else left.row(),
            "cost_usd": bill.so_far_usd(job),
            "worst_usd": each.reservation.worst_usd,
            "owner": "",
            "remark": f"its run was removed from MLflow: `{command_line('sync')}` follows it in a new run",
        }


def _removed(tracking: Tracking, workplace_at: WorkplaceAt, budgets: Sequence[str]) -> Iterator[RemovedJob]:
    for shared in shared_ledgers(tracking, workplace_at, budgets):
        with of_one_run(lambda _: None):  # `sync` reports what is wrong with the ledger
            yield from removed_jobs(shared, tracking, workplace_at)[0]


def find_run(
    tracking: Tracking, name: str, workplace_at: WorkplaceAt | None = None, budgets: Sequence[str] = ()
) -> RecordedRun:
    """Find a run by its id, the beginning of its id, or its job's name. Raises BadInput unless exactly one matches.

    Deleted runs are found, too. If the run of a job with a budget was removed from MLflow for good, a new run is
    created for the job, and returned. If several runs name the job and `workplace_at` is given, the job itself is read
    to learn which run it belongs to.
    """
    if _RUN_ID.fullmatch(name):
        if len(name) < _SHORTEST_ID:
            raise BadInput([f"give at least {_SHORTEST_ID} characters of the id of a run, got {name!r}"])
        found = tracking.runs(f"tags.`{schema.STATE}` != ''", deleted=True)
        runs = [run for run in found if any(each.startswith(name) for each in run.ids)]
    else:
        attempts = job_name(job_of(re.sub(r"[^\w-]", "", name)), 1)[:-1]
        runs = tracking.runs(f"tags.`{schema.JOB_NAME}` LIKE '{attempts}%'", deleted=True)
        if len(runs) > 1:
            runs = [run for run in runs if run.has_job] or runs
        if len(runs) > 1 and workplace_at is not None:
            runs = [run for run in runs if _is_seen(run, workplace_at)] or runs
    if len(runs) == 1:
        return runs[0]
    if not runs and workplace_at is not None:
        for removed in _removed(tracking, workplace_at, budgets):
            if removed.reservation.run_id.startswith(name) or job_of(removed.name) == job_of(name):
                return removed.record_anew(tracking)
    if runs:
        ids = ", ".join(run.run_id[:8] for run in runs[:_SHOWN])
        raise BadInput([f"{name} selects {len(runs)} runs ({ids}): give the id of one"])
    raise BadInput([unknown_run(name)])


def lines_of(run: RecordedRun, workplace_at: WorkplaceAt, lines: int) -> tuple[list[str], str]:
    """Return the last lines that a run's job printed, and where its whole log is. Raises BadInput, LaunchRefused."""
    workplace = workplace_of(run, workplace_at)
    job = _existing(run, _job(run, workplace), workplace)
    return job.log_tail(lines), job.log_location()


def remaining_of(run: RecordedRun, workplace_at: WorkplaceAt) -> Remaining | None:
    """Return what is left of a run's job; None if it has ended or cannot be read, or if no counter says so."""
    with of_one_run(lambda _: None):
        workplace = workplace_of(run, workplace_at)
        if (job := _job(run, workplace)) is not None:
            return _remaining(job, _bill_of(run, plan_of(run, workplace)), workplace)
    return None


def followed(run: RecordedRun, workplace_at: WorkplaceAt, interruption: Interruption, lines: int) -> Iterator[str]:
    """Yield the last `lines` lines of a run's job, then new ones until it has ended. Ctrl-C does not stop the job."""
    workplace = workplace_of(run, workplace_at)
    job = _existing(run, _job(run, workplace), workplace)
    is_last = job.state().is_terminal
    yield from job.new_lines()[-lines:]
    while not is_last:
        interruption.check()
        workplace.clock.sleep(_FOLLOW_EVERY_S)
        is_last = job.state().is_terminal
        yield from job.new_lines()


def stop(run: RecordedRun, workplace_at: WorkplaceAt) -> JobOutcome:
    """Stop the job of a run, wait until its launcher confirms that, record its cost and close the run.

    No further attempt is created. Another process that watches the job sees it stop, and records the same outcome.

    Raises BadInput if the job has ended or does not exist. Raises LostContact if the launcher does not confirm the
    stop; then the run stays open.
    """
    workplace = workplace_of(run, workplace_at)
    first = find_job(run.run_id, run.tags, workplace)  # a later attempt may not exist yet
    _existing(run, first, workplace)
    if run.tags.get(schema.STATE) != JobState.RUNNING.value:
        state = run.tags.get(schema.STATE) or "its run records no state"
        raise BadInput([f"the job of run {run.run_id} has ended: {state}"])
    record = JobRecord(plan_of(run, workplace), workplace, run=workplace.tracking.run(run.run_id))
    record.adopt()
    job = Attempts(record, creates=False)
    while job.poll() is None and (job.current is None or job.current.state().is_terminal):
        pass  # go through the attempts that have ended to the one that is running
    outcome = job.end(Interrupted(f"it was stopped by `{command_line('stop')}`"))
    record.run.delete_tags(schema.UNSEEN)
    return outcome


def _is_seen(run: RecordedRun, workplace_at: WorkplaceAt) -> bool:
    """Return whether the job that a run names belongs to this run, according to the job itself."""
    with of_one_run(lambda _: None):
        return _job(run, workplace_of(run, workplace_at)) is not None
    return False


def _job(run: RecordedRun, workplace: Workplace) -> Job | None:
    name = run.tags.get(schema.JOB_NAME) or first_job_of(run.run_id, run.tags)
    job = workplace.launcher.attach(name)
    return job if job is not None and job.run_id == owner_of(run.run_id, run.tags, workplace) else None


def _existing(run: RecordedRun, job: Job | None, workplace: Workplace) -> Job:
    if job is None:
        text = f"the job of run {run.run_id} does not exist: it has not been created yet, or it has been removed"
        closes = f"{text}; `{command_line('sync')}` closes the run if the job was never created"
        raise BadInput([workplace.other_machine(run.tags) or closes])
    return job


@dataclass(frozen=True, kw_only=True)
class Collected:
    """The result of updating one run: the job if it has completed, and a remark, such as why there is no result."""

    run_id: str  # empty if the remark is about several runs
    result: JobOutcome | None = None
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Sync:
    """Follows every unfinished job to its end and records warm pools; an interruption leaves the jobs running."""

    workplace_at: WorkplaceAt
    tracking: Tracking
    interruption: Interruption
    budgets: Sequence[str] = ()
    """Budget files of the user, which are checked even if no run names them."""
    adopt: str = ""
    """The removed run, or the beginning of its id, of a job that another user or machine has launched."""
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
        for run_id, sentence in record_pools(self.tracking, lambda run: workplace_of(run, self.workplace_at)):
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
        workplace = workplace_of(run, self.workplace_at)
        if not _is_there(run, workplace):
            if run.is_deleted and not workplace.launcher.jobs_outlive_submitter:
                return  # the job died with its process, and the user has removed its record
            if other := workplace.other_machine(run.tags):
                self._say(run.run_id, other)
            elif run.tags.get(schema.STATE) == JobState.COMPLETED.value:
                self._say(run.run_id, _leave_gaps(run, workplace))
            else:
                self._say(run.run_id, _end_never_created(run, workplace))
                if run.is_deleted and self.tracking.recorded(run.run_id) is not None:
                    self.tracking.run(run.run_id).delete()  # nothing was paid for, so the record stays deleted
            return
        if run.is_deleted:
            self._say(run.run_id, f"it was deleted in MLflow: {RESTORED}")
        record = JobRecord(plan_of(run, workplace), workplace, run=workplace.tracking.run(run.run_id))
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
        for shared in shared_ledgers(self.tracking, self.workplace_at, self.budgets):
            if shared.fault:
                reserved = (run.run_id for run in shared.runs if run.tags.get(schema.RESERVED))
                if run_id := next(reserved, ""):
                    self._say(run_id, f"its cost cannot be recorded in its budgets: {shared.fault}")
                continue
            if shared.ledger is None:
                continue
            with self._saying_why("", f"the budgets of {shared.budget} cannot be updated: "):
                for run_id, cost_usd in _record_ended(shared.ledger, self.tracking).items():
                    cost = "its worst case" if cost_usd is None else usd(cost_usd)
                    self._say(run_id, f"{cost} recorded against the budgets of {shared.budget}")
                for sentence in removed_jobs(shared, self.tracking, self.workplace_at)[1]:
                    self._say("", sentence)

    def _recorded_anew(self) -> Iterator[RecordedRun]:
        """Yield a new run for each job with a reservation whose run was removed from MLflow for good."""
        for shared in shared_ledgers(self.tracking, self.workplace_at, self.budgets):
            with of_one_run(lambda _: None):  # `_record_in_budgets` reports what is wrong with the ledger
                for removed in removed_jobs(shared, self.tracking, self.workplace_at, self.adopt)[0]:
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


def _end_never_created(run: RecordedRun, workplace: Workplace) -> str:
    """Close the run of a job that does not exist, unless another process may still create it; return a remark."""
    plan = plan_of(run, workplace)
    again = f"to start it: {plan.card.command_line}"
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
    record = JobRecord(plan, workplace, run=workplace.tracking.run(run.run_id))
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
    run_id, name, faults, end = job.record.run.run_id, job.record.plan.card.register, list[str](), None
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
    if name is not None:
        remarks.append(register(name, run_id, job.record.workplace.tracking))
    return Collected(run_id=run_id, result=end, remark="; ".join(remarks))
