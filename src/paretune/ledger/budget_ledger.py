"""The ledger of budgets that many jobs share: what the jobs have reserved and spent in each month.

Before a job is created, one transaction compares the job's worst case with every budget whose tags the job has, and
reserves the worst case. The job's cost replaces the reservation when the job and its warm pool have ended. If a
reservation has no recorded cost, then its job or the job's warm pool still runs, the process that launched the job was
killed, or the ledger was unavailable when the job ended. A job counts, with all of its attempts, in the calendar month
(UTC) of its first reservation. Simulated jobs are counted separately, with the same limits.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.errors import BudgetRefused, LaunchRefused, LostContact, ParetuneError, first_line
from paretune.core.reading import at_home, parse_json
from paretune.core.shell import command_line
from paretune.ledger.budget_file import Budget, BudgetFile
from paretune.ledger.lock import unusable
from paretune.presentation.text import limit_usd, usd
from paretune.pricing import ROUNDING_USD, Balance, unknown_price
from paretune.specification.container import write_json_once
from paretune.storage.database import exclude_others, open_engine, redacted

_ROWS = sa.Table(
    "paretune_reservations",
    sa.MetaData(),
    sa.Column("run_id", sa.String(64), primary_key=True),  # the job's MLflow run
    sa.Column("month", sa.String(7), nullable=False),  # such as 2026-11, UTC
    sa.Column("origin", sa.String(16), nullable=False),  # measured or simulated
    sa.Column("tags", sa.Text, nullable=False),  # JSON, by name
    sa.Column("worst_usd", sa.Float, nullable=False),
    sa.Column("recorded_usd", sa.Float),  # NULL while the job or its warm pool runs
    sa.Column("reserved_at", sa.Float, nullable=False),  # seconds since the epoch, by the launcher's clock
    sa.Column("job", sa.Text),  # JSON of `ReservedJob`
)
_ROW = _ROWS.c


@dataclass(frozen=True, kw_only=True)
class ReservedJob:
    """The job of a reservation, as far as needed to find and to bill it if its MLflow run is removed for good."""

    name: str  # the name of the first attempt
    given: Mapping[str, Any]  # the given parameters of the job
    store: str  # identifies the MLflow store of the run
    region: str  # AWS region of the job; empty if it has none
    user: str  # login name of the user who launched it
    host: str  # the machine on which it was launched


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Dollars reserved for a job whose cost is not recorded; `job` is None if the row cannot be read."""

    run_id: str
    worst_usd: float
    job: ReservedJob | None


@dataclass(frozen=True, kw_only=True)
class BudgetRequest:
    """A job's request to reserve dollars in the shared budgets, or to check them."""

    run_id: str  # the job's MLflow run; empty if the budgets are only checked, and nothing is reserved
    worst_usd: float | None  # the most that it should be billed; None if its price is unknown
    tags: Mapping[str, str]  # study, user, team, and its own tags; see `Attribution.of_budgets`
    origin: str  # measured or simulated
    now: float  # seconds since the epoch, to find the month
    instance_type: str  # of the price that is unknown, if one is
    region: str  # region of the price
    job: ReservedJob | None = None  # kept with the reservation


@dataclass(frozen=True, kw_only=True)
class BudgetStatus:
    """The dollars of one budget in one month: spent, reserved for running jobs, and left."""

    budget: Budget
    month: str
    balance: Balance
    origin: str = "measured"

    @property
    def left_usd(self) -> float:
        """The budget minus spent and reserved dollars; negative if these are more than the budget."""
        return self.balance.left_usd(self.budget.usd_per_month)

    @property
    def _name(self) -> str:
        return self.budget.name if self.origin == "measured" else f"{self.budget.name} of {self.origin} jobs"

    def sentence(self, worst_usd: float | None = None) -> str:
        """Describe the dollars left, and the worst case of a job if one is given."""
        left = f"{usd(self.left_usd)} of {usd(self.budget.usd_per_month)} left in {self.month} (UTC)"
        return f"budget {self._name}: {left}" + ("" if worst_usd is None else f", worst case {limit_usd(worst_usd)}")

    def refusal(self, request: BudgetRequest, path: str) -> str:
        """Return why a job does not fit the budget in the file `path`, and what helps; empty if it fits."""
        name, limit = self.budget.name, f"{usd(self.budget.usd_per_month)} a month"
        if request.worst_usd is None:
            consequence = f"it cannot be charged to a budget, such as {name} ({limit}, {path})"
            return unknown_price(request.instance_type, request.region, consequence)
        if self.balance.covers(request.worst_usd, self.budget.usd_per_month):
            return ""
        return (
            f"budget {self._name} ({limit}, {path}): worst case {limit_usd(request.worst_usd)} does not fit: in "
            f"{self.month} {usd(self.balance.spent_usd)} are spent and {usd(self.balance.committed_usd)} reserved for "
            f"running jobs and kept instances, so {usd(max(0.0, self.left_usd))} are left: lower max_runtime_minutes, "
            f"which bounds a job, raise usd_per_month of {name}, or wait for the next month (UTC); "
            f"`{command_line('sync')}` records the cost of jobs whose launching process was killed"
        )


class BudgetLedger:
    """The ledger of the budgets of a file, in the database that the file names, or else in `storage`.

    `storage` is an SQLAlchemy address. The first reservation of a measured job in a month records in the folder
    `marks`, if it is given, which database has the accounts of that month. From then on, any other database is refused.

    Raises BadInput if the database cannot be used. If the database fails later, `reserve` and `check` raise
    LaunchRefused, and the other methods raise LostContact; running jobs continue.
    """

    def __init__(self, file: BudgetFile, storage: str, marks: Path | None = None) -> None:
        self.file = file
        self._marks = marks
        address = file.storage or storage
        self.shown_address = redacted(address)  # the address without user and password
        try:
            self._engine = open_engine(address)
            self.is_local = self._engine.dialect.name == "sqlite"
            if self.is_local:
                Path(self._engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)
            with self._engine.begin() as connection:
                exclude_others(connection)
                _ROWS.create(connection, checkfirst=True)
        except (SQLAlchemyError, ImportError, OSError) as error:
            raise unusable(address, error, f" of {file.path}") from None

    def reserve(self, request: BudgetRequest) -> None:
        """Reserve a job's worst case in all budgets that the job counts against, unless that much is reserved already.

        A job whose worst case has grown is checked again. A finished job that is started again needs its worst case
        in addition to its recorded cost. Raises BudgetRefused, and writes nothing, if a budget does not cover the
        amount, if the job counts against a budget and its price is unknown, or if another database has the accounts.
        """
        with self._transaction(LaunchRefused) as connection:
            row = connection.execute(sa.select(_ROWS).where(_ROW.run_id == request.run_id)).first()
            if row is not None:
                worst_usd = None if request.worst_usd is None else request.worst_usd + (row.recorded_usd or 0.0)
                if worst_usd is not None and row.recorded_usd is None and worst_usd <= row.worst_usd + ROUNDING_USD:
                    return
                request = replace(request, worst_usd=worst_usd)
            month = month_of(request.now) if row is None else row.month
            self._admit(connection, request, month)
            if request.worst_usd is None:  # it counts against no budget
                return
            self.check_storage(request.now, request.origin, claims=True)
            job = None if request.job is None else json.dumps(asdict(request.job), sort_keys=True)
            values: dict[str, Any] = {"worst_usd": request.worst_usd, "reserved_at": request.now, "job": job}
            values["origin"] = request.origin
            if row is None:
                tags = json.dumps(dict(request.tags), sort_keys=True)
                values |= {"run_id": request.run_id, "month": month, "tags": tags}
                connection.execute(_ROWS.insert().values(**values))
            else:
                values |= {"recorded_usd": None}
                connection.execute(_ROWS.update().where(_ROW.run_id == row.run_id).values(**values))

    def check(self, request: BudgetRequest) -> list[BudgetStatus]:
        """Return the status of each budget that a job counts against. Raises BudgetRefused like `reserve`."""
        with self._transaction(LaunchRefused) as connection:
            return self._admit(connection, request, month_of(request.now))

    def statuses(self, now: float, origin: str) -> list[BudgetStatus]:
        """Return the status of every budget in the file, in the month of `now`, for jobs of this origin."""
        with self._transaction() as connection:
            return self._statuses(connection, month_of(now), origin, None)

    def record_cost(self, run_id: str, usd: float | None, kept_usd: float | None = None) -> bool:
        """Replace the reservation of a run's job with the job's cost; return False if the job has no reservation here.

        `usd` is the job's cost since its first start; if it is None, the worst case is recorded as the cost. While a
        warm pool that is kept after the job can still cost `kept_usd`, the cost plus `kept_usd` stays reserved.
        """
        with self._transaction() as connection:
            row = connection.execute(sa.select(_ROWS).where(_ROW.run_id == run_id)).first()
            if row is None:
                return False
            # The recorded cost of a job never decreases.
            usd = max(row.worst_usd if usd is None else usd, row.recorded_usd or 0.0)
            values = {"worst_usd": usd + kept_usd} if kept_usd else {"recorded_usd": usd}
            connection.execute(_ROWS.update().where(_ROW.run_id == row.run_id).values(**values))
        return True

    def reservations(self) -> list[Reservation]:
        """Return the reservations of measured jobs whose cost is not recorded, oldest first.

        Such a job or its warm pool still runs, its launching process was killed, or its cost could not be recorded.
        """
        query = sa.select(_ROW.run_id, _ROW.worst_usd, _ROW.job)
        query = query.where(_ROW.recorded_usd.is_(None)).order_by(_ROW.reserved_at)
        with self._transaction() as connection:
            rows = connection.execute(query).all()
        return [Reservation(run_id=run_id, worst_usd=usd, job=_job_in(text)) for run_id, usd, text in rows]

    def check_storage(self, now: float, origin: str, *, claims: bool = False) -> None:
        """Raise BudgetRefused if a measured job is checked and another database has this month's accounts.

        With `claims`, this database is recorded as the one with the accounts, if no database is recorded yet.
        """
        if self._marks is None or origin != "measured":
            return
        mark = self._marks / f"{at_home(self.file.path).resolve().name}.{month_of(now)}.json"
        here = self.shown_address
        if self.is_local:
            here = f"sqlite:///{Path(self._engine.url.database or '').resolve()}"
        if claims:
            with suppress(OSError):  # the folder is not writable
                write_json_once(mark, here)
        address = parse_json(mark.read_text(encoding="utf-8")) if mark.exists() else here
        if address != here:
            raise BudgetRefused(
                f"the accounts of {self.file.path} for {month_of(now)} are in {address}, got {here}: restore "
                f"`storage` in the file or PARETUNE_STORAGE; to move them, copy the database and delete {mark}"
            )

    def _admit(self, connection: sa.Connection, request: BudgetRequest, month: str) -> list[BudgetStatus]:
        self.check_storage(request.now, request.origin)
        statuses = self._statuses(connection, month, request.origin, request.tags, without=request.run_id)
        refusals = (status.refusal(request, self.file.path) for status in statuses)
        if faults := list(filter(None, refusals)):
            raise BudgetRefused("\n".join(faults))
        return statuses

    def _statuses(
        self,
        connection: sa.Connection,
        month: str,
        origin: str,
        tags: Mapping[str, str] | None,
        without: str = "",
    ) -> list[BudgetStatus]:
        spent = sa.func.sum(sa.func.coalesce(_ROW.recorded_usd, 0.0))
        committed = sa.func.sum(sa.case((_ROW.recorded_usd.is_(None), _ROW.worst_usd), else_=0.0))
        query = sa.select(_ROW.tags, spent, committed).where(
            _ROW.month == month, _ROW.origin == origin, _ROW.run_id != without
        )
        sums = [(json.loads(text), *usd) for text, *usd in connection.execute(query.group_by(_ROW.tags))]
        statuses = []
        for budget in self.file.budgets:
            if tags is None or budget.covers(tags):
                counted = [usd for job_tags, *usd in sums if budget.covers(job_tags)]
                balance = Balance(
                    spent_usd=sum(usd[0] for usd in counted), committed_usd=sum(usd[1] for usd in counted)
                )
                statuses.append(BudgetStatus(budget=budget, month=month, origin=origin, balance=balance))
        return statuses

    @contextmanager
    def _transaction(self, lost: type[ParetuneError] = LostContact) -> Iterator[sa.Connection]:
        """Open a transaction that excludes all others. Raises `lost` if the database does not answer."""
        try:
            with self._engine.begin() as connection:
                exclude_others(connection)
                yield connection
        except SQLAlchemyError as error:
            text = f"storage {self.shown_address} of {self.file.path} does not answer ({first_line(error)})"
            raise lost(f"{text}: try again when it does") from error


def _job_in(text: str | None) -> ReservedJob | None:
    """Return the job of a reservation, or None if another version of paretune wrote something else."""
    with suppress(TypeError, ValueError):
        return ReservedJob(**parse_json(text)) if text else None
    return None


def month_of(now: float) -> str:
    """Return the calendar month in UTC, such as 2026-11, of a time in seconds since the epoch."""
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m}"
