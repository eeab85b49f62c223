"""What jobs have reserved and booked against the budgets of a file, in a database that all of them share.

A job's worst case is reserved before it is created, in the transaction that compares it with every budget whose tags it
has; its cost is booked in place of it when it has ended. What was reserved by a process that was killed stays reserved
until whoever collects the job books it. A job counts in the calendar month (UTC) in which it was reserved, however long
it runs. One reservation covers all attempts of a job: its maximum runtime is for all of them together. A job that was
booked and is started again in a later month gets a second entry: each month keeps the dollars that were promised in it.

Simulated jobs have accounts of their own, with the same limits: they never use up a budget of real dollars.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.commands import command_line
from paretune.core.errors import BadInput, BudgetRefused, LostContact, first_line
from paretune.core.tags import Attribution
from paretune.ledger.file import Budget, BudgetFile
from paretune.ledger.migrations.budgets import migrate
from paretune.pricing.budget import Balance
from paretune.specification.job import JobSpec
from paretune.storage.address import shown
from paretune.storage.engine import is_same_database, open_engine

METADATA = sa.MetaData()
ENTRIES = sa.Table(
    "paretune_budget_entries",
    METADATA,
    sa.Column("job", sa.String(255), primary_key=True),  # a random name of the reservation, or the job's MLflow run
    sa.Column("run_id", sa.String(64), nullable=False),  # its MLflow run; empty until that is created
    sa.Column("month", sa.String(7), nullable=False),  # such as 2026-11, UTC
    sa.Column("origin", sa.String(16), nullable=False),  # measured or simulated
    sa.Column("worst_usd", sa.Float, nullable=False),
    sa.Column("booked_usd", sa.Float),  # empty while it runs
    sa.Column("kept_usd", sa.Float),  # the most that instances kept after it can still cost; 0 once that is booked
    sa.Column("reserved_at", sa.Float),  # seconds since the epoch, of the launcher's clock; empty up to version 1
    sa.Index("paretune_budget_entries_month", "month", "origin"),
    sa.Index("paretune_budget_entries_run", "run_id"),
)
TAGS = sa.Table(
    "paretune_budget_tags",
    METADATA,
    sa.Column("job", sa.String(255), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("value", sa.String(256), nullable=False),
)
BEGUN_WITHIN_S = 3600.0
"""Seconds after which a reservation without an MLflow run counts as that of a killed process.

A run is opened within seconds. A driver that slept for so long between the two reserves anew before it creates a job.
"""
_LATER = "@"
"""What follows the name of a job in its entries of later months, before the month."""
LOCK = sa.Table("paretune_budget_lock", METADATA, sa.Column("number", sa.Integer, primary_key=True))


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a job asks of the budgets.

    Attributes:
        job: what the reservation is found by: its MLflow run, or any other name where it has none yet.
        worst_usd: the most that it can be billed; None where its price is not known.
        tags: study, user, team, and tags of its own.
        origin: measured or simulated.
        now: seconds since the epoch, which give the month.
        what: the job, for messages, such as its instance type.
        run_id: its MLflow run; empty where it has none yet.
    """

    job: str
    worst_usd: float | None
    tags: Mapping[str, str]
    origin: str
    now: float
    what: str
    run_id: str = ""

    @classmethod
    def of(
        cls, spec: JobSpec, whose: Attribution, worst_usd: float | None, *, job: str, origin: str, now: float
    ) -> "Claim":
        """That of a job; `whose` it is gives tags beside its own."""
        tags = whose.of_budgets(spec.tags)
        return cls(job=job, worst_usd=worst_usd, tags=tags, origin=origin, now=now, what=spec.instance_type)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One budget in one month: what of it is spent and promised."""

    budget: Budget
    month: str
    balance: Balance
    origin: str = "measured"

    @property
    def left_usd(self) -> float:
        """Dollars that are neither spent nor promised; negative where the budget was lowered below them."""
        return self.balance.left_usd(self.budget.usd_per_month)

    @property
    def _named(self) -> str:
        """Its name, and for which jobs where those are not real ones."""
        return self.budget.name if self.origin == "measured" else f"{self.budget.name} of {self.origin} jobs"

    def sentence(self, worst_usd: float | None = None) -> str:
        """What is left, and the worst case of a job where one is given."""
        told = f"budget {self._named}: {self.left_usd:.2f} of {self.budget.usd_per_month:g} USD left in "
        return f"{told}{self.month} (UTC)" + ("" if worst_usd is None else f", worst case {worst_usd:.4g}")

    def refusal(self, worst_usd: float | None, what: str, path: str) -> str:
        """Why a job with this worst case does not fit, and what helps; empty where it does."""
        name, limit = self.budget.name, f"{self.budget.usd_per_month:g} USD a month"
        if worst_usd is None:
            return (
                f"the price of {what} is not known, so it fits no budget, such as {name} ({limit}, {path}): take "
                "another instance type, or give its price (PARETUNE_PRICES)"
            )
        if self.balance.covers(worst_usd, self.budget.usd_per_month):
            return ""
        return (
            f"budget {self._named} ({limit}, {path}): worst case {worst_usd:.4g} USD does not fit, for in {self.month} "
            f"{self.balance.spent_usd:.4g} are spent and {self.balance.committed_usd:.4g} promised to running jobs and "
            f"kept instances, so {max(0.0, self.left_usd):.4g} are left: lower max_runtime_minutes, which bounds a "
            f"job, raise usd_per_month of {name}, or wait for the next month (UTC); `{command_line('sync')}` books "
            "jobs whose launcher was killed"
        )


class Accounts:
    """The accounts of the budgets of one file. A transaction opens a connection and closes it.

    Args:
        file: the budgets.
        storage: address of the database where the file names none.

    Raises:
        BadInput: the storage does not answer, or a newer version of paretune has written its tables.
        LostContact: from any method, when the storage no longer answers.
    """

    def __init__(self, file: BudgetFile, storage: str) -> None:
        self.file = file
        address = file.storage or storage
        self.where = shown(address)
        """Their storage, without user and password."""
        try:
            self._engine = open_engine(address, keeps_connections=False)
            if self._engine.dialect.name == "sqlite":
                Path(self._engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)
            with self._engine.begin() as connection:
                migrate(connection, self.where)
        except (SQLAlchemyError, ImportError, OSError) as error:
            text = f"storage {self.where} of {file.path} cannot be used ({first_line(error)})"
            raise BadInput([f"{text}: check address, server and driver"]) from None

    @property
    def is_a_file(self) -> bool:
        """Whether they are in a file of this machine, which no other one sees."""
        return self._engine.dialect.name == "sqlite"

    def take_over(self, address: str) -> None:
        """Copy the accounts of another SQLite file, unless there are entries here already.

        Raises:
            BadInput: a newer version of paretune has written them.
        """
        there = open_engine(address, keeps_connections=False)
        with self._transaction() as connection, there.begin() as former:
            if connection.execute(sa.select(ENTRIES.c.job).limit(1)).first() or not _has_accounts(former):
                return
            migrate(former, shown(address))
            for table in (ENTRIES, TAGS):
                if rows := [dict(row) for row in former.execute(sa.select(table)).mappings()]:
                    connection.execute(table.insert(), rows)

    def reserve(self, claim: Claim, within: sa.Connection | None = None) -> None:
        """Reserve a job's worst case, unless that is done; of all budgets that it counts against, or of none.

        Where `within`, a connection in a transaction, leads to the same database, that transaction is used. A job that
        was booked and is started again needs its worst case once more.

        Raises:
            BudgetRefused: some budget does not cover it, or its price is not known; nothing was written.
        """
        with self._transaction(within) as connection:
            connection.execute(sa.select(LOCK).with_for_update())  # one admission at a time, whatever its tags
            former = self._find(connection, claim)
            if former is not None and former.booked_usd is None:
                return
            self._admit(connection, claim)
            if claim.worst_usd is None:  # no budget is concerned
                return
            if former is None:
                _insert(connection, claim, claim.job, claim.run_id)
                return
            spent, same = former.booked_usd + (former.kept_usd or 0.0), ENTRIES.c.job == former.job
            if former.month == month_of(claim.now):
                again = {"booked_usd": None, "kept_usd": None, "reserved_at": claim.now, "origin": claim.origin}
                connection.execute(ENTRIES.update().where(same).values(worst_usd=spent + claim.worst_usd, **again))
                return
            connection.execute(ENTRIES.update().where(same).values(booked_usd=spent, kept_usd=0.0))
            first = former.job.partition(_LATER)[0]
            _insert(connection, claim, f"{first}{_LATER}{month_of(claim.now)}", claim.run_id or former.run_id)

    def check(self, claim: Claim) -> list[Standing]:
        """The budgets that a job counts against; nothing is reserved.

        Raises:
            BudgetRefused: as `reserve`.
        """
        with self._transaction() as connection:
            return self._admit(connection, claim)

    def standings(self, now: float, origin: str, tags: Mapping[str, str] | None = None) -> list[Standing]:
        """The budgets that a job with these tags counts against, all of the file where no tags are given."""
        with self._transaction() as connection:
            return self._standings(connection, now, origin, tags)

    def name_run(self, job: str, run_id: str) -> None:
        """Write down the MLflow run of a job that had none when it was reserved."""
        with self._transaction() as connection:
            connection.execute(ENTRIES.update().where(ENTRIES.c.job == job).values(run_id=run_id))

    def book(self, run_id: str, usd: float | None, kept_usd: float | None = None) -> bool:
        """Replace the reservation of the job of a run by what it has cost; all of it where that is not known.

        `usd` is what the job has cost since it was first started. `kept_usd`, the most that instances kept after it can
        cost, stays reserved until `book_kept`. False where the job has no reservation here.
        """
        entries = sa.select(ENTRIES).where(ENTRIES.c.run_id == run_id).order_by(ENTRIES.c.month.desc())
        with self._transaction() as connection:
            found = connection.execute(entries).all()
            if not found:
                return False
            newest, *earlier = found
            here = newest.worst_usd if usd is None else max(0.0, usd - sum(row.booked_usd or 0.0 for row in earlier))
            values = {"booked_usd": here, "kept_usd": kept_usd}
            connection.execute(ENTRIES.update().where(ENTRIES.c.job == newest.job).values(**values))
        return True

    def book_kept(self, run_id: str, usd: float) -> None:
        """Add what instances kept after the job of a run have cost, in place of what is reserved for them; once."""
        values = {"booked_usd": ENTRIES.c.booked_usd + usd, "kept_usd": 0.0}
        self._change(ENTRIES.update().where(ENTRIES.c.run_id == run_id, ENTRIES.c.kept_usd > 0).values(**values))

    def release(self, job: str) -> None:
        """Take back a reservation whose job was never begun: one that has no run."""
        never = (ENTRIES.c.job == job) & (ENTRIES.c.run_id == "")
        with self._transaction() as connection:
            if connection.execute(ENTRIES.delete().where(never)).rowcount:
                connection.execute(TAGS.delete().where(TAGS.c.job == job))

    def release_unbegun(self, origin: str, now: float) -> list[str]:
        """Take back reservations of jobs that were never begun, for their process was killed; their names.

        Those that have no run BEGUN_WITHIN_S after they were made; `now` is that of the launcher's clock.
        """
        is_old = ENTRIES.c.reserved_at < now - BEGUN_WITHIN_S
        query = sa.select(ENTRIES.c.job).where(ENTRIES.c.run_id == "", ENTRIES.c.origin == origin, is_old)
        with self._transaction() as connection:
            jobs = list(connection.execute(query).scalars())
        for job in jobs:
            self.release(job)
        return jobs

    def unmatched(self) -> tuple[list[Budget], list[str]]:
        """Budgets whose tags no job has had yet although some had others, and the names of all tags that jobs had."""
        with self._transaction() as connection:
            jobs = sa.select(ENTRIES.c.job)
            never = [one for one in self.file.budgets if not connection.execute(_of(jobs, one).limit(1)).first()]
            known = list(connection.execute(sa.select(TAGS.c.name).distinct().order_by(TAGS.c.name)).scalars())
        return ([one for one in never if one.tags], known) if known else ([], [])

    def unbooked(self) -> list[str]:
        """MLflow runs of jobs that are reserved and not booked: they run, or their launcher was killed."""
        query = sa.select(ENTRIES.c.run_id).where(ENTRIES.c.booked_usd.is_(None), ENTRIES.c.run_id != "")
        with self._transaction() as connection:
            return list(connection.execute(query).scalars())

    def _find(self, connection: sa.Connection, claim: Claim) -> Any:
        """The newest entry of a job; None where there is none."""
        same = (ENTRIES.c.job == claim.job) | ENTRIES.c.job.startswith(f"{claim.job}{_LATER}", autoescape=True)
        if claim.run_id:  # that of a trial was made before it had a run
            same |= ENTRIES.c.run_id == claim.run_id
        return connection.execute(sa.select(ENTRIES).where(same).order_by(ENTRIES.c.month.desc())).first()

    def _admit(self, connection: sa.Connection, claim: Claim) -> list[Standing]:
        standings = self._standings(connection, claim.now, claim.origin, claim.tags)
        refusals = (standing.refusal(claim.worst_usd, claim.what, self.file.path) for standing in standings)
        if refused := list(filter(None, refusals)):
            raise BudgetRefused("\n".join(refused))
        return standings

    def _standings(
        self, connection: sa.Connection, now: float, origin: str, tags: Mapping[str, str] | None
    ) -> list[Standing]:
        month = month_of(now)
        return [
            Standing(budget=budget, month=month, origin=origin, balance=_balance(connection, budget, month, origin))
            for budget in self.file.budgets
            if tags is None or budget.covers(tags)
        ]

    def _change(self, statement: Any) -> int:
        """Execute a statement in a transaction of its own; the number of rows that it has changed."""
        with self._transaction() as connection:
            return int(connection.execute(statement).rowcount)

    @contextmanager
    def _transaction(self, within: sa.Connection | None = None) -> Iterator[sa.Connection]:
        if within is not None and is_same_database(within.engine, self._engine):
            yield within  # whose owner tells what goes wrong
            return
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            text = f"storage {self.where} of {self.file.path} does not answer ({first_line(error)})"
            raise LostContact(f"{text}: try again when it does") from error


def month_of(now: float) -> str:
    """The calendar month of a moment, seconds since the epoch, in UTC: such as 2026-11."""
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m}"


def least_left(standings: Sequence[Standing]) -> Standing | None:
    """The one with the fewest dollars left; None of none."""
    return min(standings, key=lambda standing: standing.left_usd, default=None)


def _of(query: sa.Select[Any], budget: Budget) -> sa.Select[Any]:
    """Of what a query of the entries finds, the jobs that have the tags of a budget."""
    for name, text in budget.tags.items():
        own = sa.select(TAGS.c.job).where(TAGS.c.job == ENTRIES.c.job, TAGS.c.name == name, TAGS.c.value == text)
        query = query.where(own.exists())
    return query


def _insert(connection: sa.Connection, claim: Claim, job: str, run_id: str) -> None:
    new = {"month": month_of(claim.now), "worst_usd": claim.worst_usd, "origin": claim.origin}
    connection.execute(ENTRIES.insert().values(job=job, run_id=run_id, reserved_at=claim.now, **new))
    if claim.tags:
        connection.execute(TAGS.insert(), [{"job": job, "name": name, "value": it} for name, it in claim.tags.items()])


def _has_accounts(connection: sa.Connection) -> bool:
    return sa.inspect(connection).has_table(ENTRIES.name)


def _balance(connection: sa.Connection, budget: Budget, month: str, origin: str) -> Balance:
    has_ended = ENTRIES.c.booked_usd.is_not(None)
    spent = sa.func.sum(sa.case((has_ended, ENTRIES.c.booked_usd), else_=0.0))
    committed = sa.func.sum(sa.case((has_ended, ENTRIES.c.kept_usd), else_=ENTRIES.c.worst_usd))
    query = sa.select(spent, committed).where(ENTRIES.c.month == month, ENTRIES.c.origin == origin)
    row = connection.execute(_of(query, budget)).one()
    return Balance(spent_usd=row[0] or 0.0, committed_usd=row[1] or 0.0)
