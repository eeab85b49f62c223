"""The ledger of budgets that many jobs share: what they have reserved and booked in each month.

A job's worst case is compared with every budget whose tags the job has. A job counts in the calendar month (UTC) in
which it was reserved, however long it runs. One reservation covers all attempts of a job: its maximum runtime is for
all of them together. A job that was booked and is started again in a later month gets a second entry: each month keeps
the dollars that were promised in it.

Simulated jobs are counted apart, with the same limits: they never use up a budget of real dollars.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from paretune.core.commands import command_line
from paretune.core.errors import BudgetRefused
from paretune.core.untrusted import at_home, parse_json
from paretune.ledger.budget_file import Budget, BudgetFile
from paretune.ledger.ledger import BUDGET_ENTRIES, BUDGET_TAGS, Ledger
from paretune.pricing.budget import Balance
from paretune.specification.container import write_json_once
from paretune.storage.database import exclude_others, is_same_database

ABANDONED_AFTER_S = 3600.0
"""Age in seconds at which a reservation without an MLflow run counts as that of a killed process.

A run is opened within seconds. A driver that slept for so long in between reserves again before it creates a job.
"""
_ADMISSION = 1  # what `exclude_others` keeps apart
_MONTH_MARK = "@"  # stands between the name of a job and the month in entries of later months


@dataclass(frozen=True, kw_only=True)
class BudgetRequest:
    """A job's request to the shared budgets."""

    job: str  # name of the reservation: the job's MLflow run, or any other name while it has none
    worst_usd: float | None  # the most that it can be billed; None if its price is unknown
    tags: Mapping[str, str]  # study, user, team, and tags of its own; see `Attribution.of_budgets`
    origin: str  # measured or simulated
    now: float  # seconds since the epoch, which give the month
    instance_type: str
    run_id: str = ""  # its MLflow run; empty while it has none


@dataclass(frozen=True, kw_only=True)
class BudgetStatus:
    """Dollars of one budget in one month that are spent, promised and left."""

    budget: Budget
    month: str
    balance: Balance
    origin: str = "measured"

    @property
    def left_usd(self) -> float:
        """Dollars that are neither spent nor promised; negative if the budget was lowered below them."""
        return self.balance.left_usd(self.budget.usd_per_month)

    @property
    def _name(self) -> str:
        return self.budget.name if self.origin == "measured" else f"{self.budget.name} of {self.origin} jobs"

    def sentence(self, worst_usd: float | None = None) -> str:
        """The dollars left in words, and the worst case of a job if one is given."""
        left = f"{self.left_usd:.2f} of {self.budget.usd_per_month:g} USD left in {self.month} (UTC)"
        return f"budget {self._name}: {left}" + ("" if worst_usd is None else f", worst case {worst_usd:.4g}")

    def refusal(self, request: BudgetRequest, path: str) -> str:
        """The reason why a job does not fit the budget of the file `path`, and what helps; empty if it fits."""
        name, limit = self.budget.name, f"{self.budget.usd_per_month:g} USD a month"
        if request.worst_usd is None:
            return (
                f"the price of {request.instance_type} is not known, so it fits no budget, such as {name} ({limit}, "
                f"{path}): take another instance type, or give its price (PARETUNE_PRICES)"
            )
        if self.balance.covers(request.worst_usd, self.budget.usd_per_month):
            return ""
        return (
            f"budget {self._name} ({limit}, {path}): worst case {request.worst_usd:.4g} USD does not fit, for in "
            f"{self.month} {self.balance.spent_usd:.4g} are spent and {self.balance.committed_usd:.4g} promised to "
            f"running jobs and kept instances, so {max(0.0, self.left_usd):.4g} are left: lower max_runtime_minutes, "
            f"which bounds a job, raise usd_per_month of {name}, or wait for the next month (UTC); "
            f"`{command_line('sync')}` books jobs whose launcher was killed"
        )


class BudgetLedger(Ledger):
    """The ledger of the budgets of one file. A transaction opens a connection and closes it. Errors as for `Ledger`.

    Args:
        file: the budgets.
        storage: address of the database if the file names none.
        beside: folder beside the file, in which the first reservation of a month records the database that has the
            accounts of the month; another database is refused then. None records nothing.
    """

    _table = BUDGET_ENTRIES
    _has_ended = BUDGET_ENTRIES.c.booked_usd.is_not(None)
    _version_table = "paretune_budget_schema"
    _try_again = "try again when it does"

    def __init__(self, file: BudgetFile, storage: str, beside: Path | None = None) -> None:
        self.file = file
        self._beside = beside
        super().__init__(file.storage or storage, f" of {file.path}", keeps_connections=False)

    @property
    def is_local(self) -> bool:
        """Whether it is a file of this machine, which no other machine sees."""
        return self._engine.dialect.name == "sqlite"

    def _prepare(self) -> None:
        if self.is_local:
            Path(self._engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)

    def reserve(self, request: BudgetRequest, within: sa.Connection | None = None) -> None:
        """Reserve a job's worst case in all budgets that it counts against, unless it is reserved already.

        A job that was booked and is started again needs its worst case once more. `within` is a connection in a
        transaction; it is used if it leads to the same database.

        Raises:
            BudgetRefused: some budget does not cover it, or its price is unknown; nothing was written.
        """
        with self._transaction_or(within) as connection:
            exclude_others(connection, _ADMISSION)  # one at a time, whatever its tags
            entry = self._newest(connection, request)
            if entry is not None and entry.booked_usd is None:
                return
            month = month_of(request.now)
            if entry is not None and month < entry.month:
                raise BudgetRefused(
                    f"the clock of this machine shows {month}, but the job was reserved in {entry.month}: it has gone "
                    "back; set it (`timedatectl` shows whether it is synchronised) and repeat the command"
                )
            self._admit(connection, request)
            if request.worst_usd is None:  # no budget is concerned
                return
            self.check_storage(request.now, request.origin, claims=True)
            if entry is None:
                _insert(connection, request, request.job, request.run_id)
                return
            spent_usd = entry.booked_usd + (entry.kept_usd or 0.0)
            is_entry = BUDGET_ENTRIES.c.job == entry.job
            if entry.month == month:
                again = {"worst_usd": spent_usd + request.worst_usd, "reserved_at": request.now}
                self._book(connection, is_entry, usd=None, kept_usd=None, origin=request.origin, **again)
                return
            self._book(connection, is_entry, usd=spent_usd, kept_usd=0.0)
            name = entry.job.partition(_MONTH_MARK)[0]
            _insert(connection, request, f"{name}{_MONTH_MARK}{month}", request.run_id or entry.run_id)

    def check(self, request: BudgetRequest) -> list[BudgetStatus]:
        """The budgets that a job counts against; nothing is reserved. Raises BudgetRefused as `reserve`."""
        with self._transaction() as connection:
            return self._admit(connection, request)

    def statuses(self, now: float, origin: str) -> list[BudgetStatus]:
        """All budgets of the file."""
        with self._transaction() as connection:
            return self._statuses(connection, now, origin, None)

    def name_run(self, job: str, run_id: str) -> None:
        """Record the MLflow run of a job that had none when it was reserved."""
        self._write(BUDGET_ENTRIES.update().where(BUDGET_ENTRIES.c.job == job).values(run_id=run_id))

    def book(self, run_id: str, usd: float | None, kept_usd: float | None = None) -> bool:
        """Replace the reservation of a run's job by its cost; returns False if the job has no reservation here.

        `usd` is its cost since it was first started; None books its worst case. `kept_usd` is the most that a warm pool
        kept after it can cost; it stays reserved until `book_kept`.
        """
        entries = sa.select(BUDGET_ENTRIES).where(BUDGET_ENTRIES.c.run_id == run_id)
        with self._transaction() as connection:
            rows = connection.execute(entries.order_by(BUDGET_ENTRIES.c.month.desc())).all()
            if not rows:
                return False
            newest, *earlier = rows
            rest = newest.worst_usd if usd is None else max(0.0, usd - sum(row.booked_usd or 0.0 for row in earlier))
            rest = max(rest, newest.booked_usd or 0.0)  # a second booking never lowers the first
            self._book(connection, BUDGET_ENTRIES.c.job == newest.job, usd=rest, kept_usd=kept_usd)
        return True

    def book_kept(self, run_id: str, usd: float) -> None:
        """Add the cost of the warm pool kept after the job of a run, in place of its reservation; once only."""
        self._book_kept(BUDGET_ENTRIES.c.run_id == run_id, usd=usd)

    def unbooked(self) -> list[str]:
        """MLflow runs of jobs that are reserved and not booked: they run, or their launcher was killed."""
        query = sa.select(BUDGET_ENTRIES.c.run_id)
        with self._transaction() as connection:
            rows = connection.execute(query.where(~self._has_ended, BUDGET_ENTRIES.c.run_id != ""))
            return list(rows.scalars())

    def release(self, job: str) -> None:
        """Take back the reservation of a job that was never begun: one without a run."""
        self._release(BUDGET_ENTRIES.c.job == job)

    def release_abandoned(self, origin: str, now: float) -> list[str]:
        """Take back reservations without a run that are older than ABANDONED_AFTER_S; returns their names.

        `now` is the launcher's time, in seconds since the epoch.
        """
        is_old = BUDGET_ENTRIES.c.reserved_at < now - ABANDONED_AFTER_S
        return self._release(BUDGET_ENTRIES.c.origin == origin, is_old)

    def _release(self, *rows: Any) -> list[str]:
        jobs = sa.select(BUDGET_ENTRIES.c.job).where(BUDGET_ENTRIES.c.run_id == "", *rows).with_for_update()
        with self._transaction() as connection:
            names = list(connection.execute(jobs).scalars())
            for table in (BUDGET_ENTRIES, BUDGET_TAGS):
                connection.execute(table.delete().where(table.c.job.in_(names)))
        return names

    def unmatched(self) -> tuple[list[Budget], list[str]]:
        """Budgets whose tags no job had although some jobs had others, and the names of all tags that jobs had."""
        jobs = sa.select(BUDGET_ENTRIES.c.job).limit(1)
        with self._transaction() as connection:
            unused = [
                budget
                for budget in self.file.budgets
                if not connection.execute(jobs.where(*_has_tags_of(budget))).first()
            ]
            tags = sa.select(BUDGET_TAGS.c.name).distinct().order_by(BUDGET_TAGS.c.name)
            names = list(connection.execute(tags).scalars())
        return ([budget for budget in unused if budget.tags], names) if names else ([], [])

    def _newest(self, connection: sa.Connection, request: BudgetRequest) -> Any:
        name = BUDGET_ENTRIES.c.job
        same = (name == request.job) | name.startswith(f"{request.job}{_MONTH_MARK}", autoescape=True)
        if request.run_id:  # a trial is reserved before it has a run
            same |= BUDGET_ENTRIES.c.run_id == request.run_id
        query = sa.select(BUDGET_ENTRIES).where(same).order_by(BUDGET_ENTRIES.c.month.desc())
        return connection.execute(query).first()

    def check_storage(self, now: float, origin: str, *, claims: bool = False) -> None:
        """Raise BudgetRefused if another database has the accounts of this month; simulated jobs are not concerned.

        `claims` records this database if none is recorded.
        """
        if self._beside is None or origin != "measured":
            return
        mark = self._beside / f"{at_home(self.file.path).resolve().name}.{month_of(now)}.json"
        here = self.shown_address
        if self.is_local:
            here = f"sqlite:///{Path(self._engine.url.database or '').resolve()}"
        if claims:
            with suppress(OSError):  # a folder that nobody here may change
                write_json_once(mark, here)
        address = parse_json(mark.read_text(encoding="utf-8")) if mark.exists() else here
        if address != here:
            raise BudgetRefused(
                f"the accounts of {self.file.path} for {month_of(now)} are in {address}, got {here}: set "
                f"`storage` in the file or PARETUNE_STORAGE back; to move them, copy the database and delete {mark}"
            )

    def _admit(self, connection: sa.Connection, request: BudgetRequest) -> list[BudgetStatus]:
        self.check_storage(request.now, request.origin)
        statuses = self._statuses(connection, request.now, request.origin, request.tags)
        refusals = (status.refusal(request, self.file.path) for status in statuses)
        if faults := list(filter(None, refusals)):
            raise BudgetRefused("\n".join(faults))
        return statuses

    def _statuses(
        self, connection: sa.Connection, now: float, origin: str, tags: Mapping[str, str] | None
    ) -> list[BudgetStatus]:
        month, columns = month_of(now), BUDGET_ENTRIES.c
        statuses = []
        for budget in self.file.budgets:
            if tags is None or budget.covers(tags):
                rows = (columns.month == month, columns.origin == origin, *_has_tags_of(budget))
                balance = self._balance(connection, *rows)
                statuses.append(BudgetStatus(budget=budget, month=month, origin=origin, balance=balance))
        return statuses

    @contextmanager
    def _transaction_or(self, within: sa.Connection | None) -> Iterator[sa.Connection]:
        if within is not None and is_same_database(within.engine, self._engine):
            yield within  # its owner translates errors
        else:
            with self._transaction() as connection:
                yield connection


def month_of(now: float) -> str:
    """The calendar month of a moment in seconds since the epoch, in UTC, such as 2026-11."""
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m}"


def _has_tags_of(budget: Budget) -> list[sa.ColumnElement[bool]]:
    """Conditions that the job of an entry has all tags of a budget."""
    tags = BUDGET_TAGS.c
    return [
        sa.select(tags.job).where(tags.job == BUDGET_ENTRIES.c.job, tags.name == name, tags.value == value).exists()
        for name, value in budget.tags.items()
    ]


def _insert(connection: sa.Connection, request: BudgetRequest, job: str, run_id: str) -> None:
    row = {"job": job, "run_id": run_id, "month": month_of(request.now), "origin": request.origin}
    connection.execute(BUDGET_ENTRIES.insert().values(**row, worst_usd=request.worst_usd, reserved_at=request.now))
    if request.tags:
        tags = [{"job": job, "name": name, "value": value} for name, value in request.tags.items()]
        connection.execute(BUDGET_TAGS.insert(), tags)
