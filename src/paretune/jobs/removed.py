"""Jobs whose runs were removed from MLflow for good, such as by `mlflow gc`, while the jobs ran.

A deleted run can be restored, and `JobRecord.adopt` does so. A removed run cannot. If its job has a budget, the
reservation in the ledger still says which job it is, so that the job can be found, followed, stopped and billed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from paretune.jobs.record import of_one_run, opening_tags
from paretune.jobs.run_names import run_name
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job
from paretune.ledger.budget_ledger import BudgetLedger, Reservation
from paretune.specification.job import JobSpec
from paretune.tracking import schema
from paretune.tracking.recorded_run import RecordedRun
from paretune.tracking.store import Tracking

_RECENT = 200  # number of the newest jobs with budgets; only the budget files that they name are checked


@dataclass(frozen=True, kw_only=True)
class SharedLedger:
    """A ledger that recent jobs of an MLflow store use, or the reason why it cannot be opened."""

    budget: str  # the budget file
    runs: Sequence[RecordedRun]  # the recent jobs that count against it, newest first
    ledger: BudgetLedger | None
    fault: str = ""


def shared_ledgers(
    tracking: Tracking, workplace_of: Callable[[JobSpec], Workplace], budgeted: Sequence[JobSpec] = ()
) -> Iterator[SharedLedger]:
    """Yield the ledgers of the budget files that recent jobs name, deleted ones too, and of those that `budgeted` name.

    Raises TrackingUnavailable.
    """
    groups = defaultdict[tuple[str, str | None], list[RecordedRun]](list)
    for run in tracking.runs(f"tags.`{schema.BUDGET}` LIKE '%'", newest=_RECENT, deleted=True):
        groups[run.tags[schema.BUDGET], run.tags.get(schema.LAUNCHER)].append(run)
    for (budget, _), runs in groups.items():
        ledger, faults, is_open = None, list[str](), False
        for run in runs:
            with of_one_run(faults.append):  # any run will do, even one whose job is in another AWS account
                ledger, is_open = workplace_of(run.spec()).budget_ledger(run.budget), True
                break
        yield SharedLedger(budget=budget, runs=runs, ledger=ledger, fault="" if is_open else faults[0])
    named = {run.budget for runs in groups.values() for run in runs}
    for spec in {spec.budget: spec for spec in budgeted if spec.budget not in named}.values():
        with of_one_run(lambda _: None):  # no recorded job counts against it
            ledger = workplace_of(spec).budget_ledger(spec.budget)
            yield SharedLedger(budget=spec.budget or "", runs=(), ledger=ledger)


@dataclass(frozen=True, kw_only=True)
class RemovedJob:
    """A job with a reservation whose run was removed from MLflow for good."""

    budget: str
    reservation: Reservation
    spec: JobSpec
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
        tags = opening_tags(self.spec, self.workplace) | {schema.JOB_NAME: self.name, schema.CONTINUES: removed}
        created = tracking.create(run_name(self.spec), tags | {schema.WATCHED_BY: ""}).run_id
        run = tracking.recorded(created)
        assert run is not None  # it was created just now
        return run


def removed_jobs(
    shared: SharedLedger, tracking: Tracking, workplace_of: Callable[[JobSpec], Workplace]
) -> tuple[list[RemovedJob], list[str]]:
    """Return the jobs of a ledger whose runs this MLflow store has lost, and sentences on all others without a run.

    A reservation of an older version of paretune does not say which store its run is in, so such a reservation may
    belong to another store. Reservations that name another store are left out. Raises LostContact if the ledger cannot
    be read, and TrackingUnavailable.
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
            spec = JobSpec.read(dict(reserved.given)).replace(budget=shared.budget)
            spec = spec.replace(region=reserved.region) if reserved.region else spec
            workplace = workplace_of(spec)
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
        jobs.append(RemovedJob(budget=shared.budget, reservation=reservation, spec=spec, workplace=workplace, job=job))
    if unknown:
        ids = ", ".join(each.run_id for each in unknown[:5])
        where = "their runs were removed from this MLflow store, or are in another one"
        sentences.append(f"{_reserved(shared, unknown)} by an older version of paretune for the runs {ids}: {where}")
    return jobs, sentences


def _reserved(shared: SharedLedger, reservations: Sequence[Reservation]) -> str:
    return f"{sum(each.worst_usd for each in reservations):.4g} USD are reserved in the budgets of {shared.budget}"
