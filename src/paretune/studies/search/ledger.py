"""The books of a study: what was promised, what was paid, who is at work on it. Tables beside Optuna's own.

A trial's dollars are promised before its job is created and booked when it has ended. Reservation and check are one
transaction, so that drivers on several machines together never exceed the budget and never begin the same job twice,
and a driver that died has left written down what it had begun.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    Row,
    Select,
    String,
    Table,
    Text,
    case,
    create_engine,
    delete,
    event,
    func,
    select,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from paretune.core.errors import BadInput, BudgetRefused, LostContact
from paretune.pricing.budget import Balance

METADATA = MetaData()
STUDIES = Table(
    "paretune_studies",
    METADATA,
    Column("name", String(255), primary_key=True),
    Column("run_id", String(64), nullable=False),  # of MLflow; empty until it is open
    Column("mark", String(64), nullable=False),  # by which that run is found when its driver died in between
    Column("described", Text, nullable=False),
)
ENTRIES = Table(
    "paretune_ledger",
    METADATA,
    Column("study", String(255), primary_key=True),
    Column("trial", Integer, primary_key=True),
    Column("identity", String(255), nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("worst_usd", Float),
    Column("booked_usd", Float),
    Column("spent_usd", Float),
    Column("place", Integer),
    Column("counts", Integer, nullable=False),  # towards the most trials: 0 or 1
    Column("settled", Integer, nullable=False),  # its outcome is known, the same job need not run again: 0 or 1
    Column("owner", String(255), nullable=False),
    Column("parameters", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("ended", Text),
    Index("paretune_ledger_identity", "study", "identity"),
    Index("paretune_ledger_place", "study", "place"),
)
DRIVERS = Table(
    "paretune_drivers",
    METADATA,
    Column("study", String(255), primary_key=True),
    Column("owner", String(255), primary_key=True),
    Column("seen", Float, nullable=False),  # seconds since the epoch
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the books.

    Attributes:
        trial: its number.
        identity: of what its job computes.
        parameters: of its job, as text.
        note: what the driver wants to know of it later.
        run_id: its MLflow run; empty until that has been opened.
        worst_usd: dollars promised; None where the price is unknown.
        booked_usd: dollars paid; None while it runs, or where the price is unknown.
        ended: how it ended; None while it runs.
        place: from 1, in the order of booking; None while it runs.
        spent_usd: dollars that the study had paid when it was booked, its own among them; None while it runs.
        owner: the process that is at work on it.
    """

    trial: int
    identity: str
    parameters: Mapping[str, str]
    note: Mapping[str, Any]
    run_id: str
    worst_usd: float | None
    booked_usd: float | None
    ended: Mapping[str, Any] | None
    place: int | None
    spent_usd: float | None
    owner: str


def entry_of(row: Row[Any]) -> Entry:
    """A line, from its row."""
    texts = {"parameters": json.loads(row.parameters), "note": json.loads(row.note)}
    names = ("trial", "identity", "run_id", "worst_usd", "booked_usd", "place", "spent_usd", "owner")
    plain = {name: getattr(row, name) for name in names}
    return Entry(**plain, **texts, ended=None if row.ended is None else json.loads(row.ended))


_ROUNDING_USD = 1e-9
_TRIES = 5  # to make the tables: another driver may be making them at this moment


class Reservation(Enum):
    """What became of a promise."""

    GRANTED = "made"
    DUPLICATE = "double"
    """The same job runs, or its outcome is known: nothing was written."""
    TRIAL_LIMIT = "full"
    """All trials that the study may have are begun: nothing was written."""


class Ledger:
    """The books of one study.

    Args:
        storage: a SQLAlchemy address, the same as Optuna's.
        study: its name.

    Raises:
        BadInput: the storage does not answer.
        LostContact: from any method, when the storage no longer answers; jobs go on.
    """

    def __init__(self, storage: str, study: str) -> None:
        self._study = study
        self._where = "the study's storage"
        try:
            self._where = make_url(storage).render_as_string(hide_password=True)
            self._engine = create_engine(storage, pool_pre_ping=True)
            if self._engine.dialect.name == "sqlite":
                # Of SQLite's transactions only an immediate one keeps others from reading what it is about to change.
                event.listen(self._engine, "connect", _by_hand)
                event.listen(self._engine, "begin", _immediately)
            self._make_tables()
        except (SQLAlchemyError, ImportError, OSError) as error:
            text = f"storage {self._where} cannot be used ({_first_line(error)}): check address, server and driver"
            raise BadInput([text]) from None

    def open(self, run_id: str, described: str) -> str:
        """Begin the study, unless that was done before; its MLflow run, empty as long as nobody has named one.

        Args:
            run_id: its run, should it be new; may be empty, see `mark` and `name_run`.
            described: what makes two studies of one name the same.

        Raises:
            BadInput: the study was begun with another description.
        """
        query = select(STUDIES).where(STUDIES.c.name == self._study)
        new = {"name": self._study, "run_id": run_id, "mark": uuid.uuid4().hex, "described": described}
        with suppress(LostContact), self._transaction() as connection:  # two may begin it at the same moment
            if connection.execute(query).first() is None:
                connection.execute(STUDIES.insert().values(**new))
        with self._transaction() as connection:
            row = connection.execute(query).one()
        if row.described != described:
            raise BadInput(
                [
                    f"study {self._study} was begun with another search space, job or objectives: give it another "
                    f"name (-P name=...), or the same file ({_difference(row.described, described)})"
                ]
            )
        return str(row.run_id)

    def mark(self) -> str:
        """A word of this study alone, by which its MLflow run is found if its driver dies before naming it."""
        with self._transaction() as connection:
            return str(connection.execute(select(STUDIES.c.mark).where(STUDIES.c.name == self._study)).scalar_one())

    def name_run(self, run_id: str) -> str:
        """Write down the study's MLflow run, unless another driver was faster; the one that stands."""
        with self._transaction() as connection:
            mine = STUDIES.c.name == self._study
            connection.execute(STUDIES.update().where(mine, STUDIES.c.run_id == "").values(run_id=run_id))
            return str(connection.execute(select(STUDIES.c.run_id).where(mine)).scalar_one())

    def reserve(
        self,
        trial: int,
        parameters: Mapping[str, str],
        note: Mapping[str, Any],
        *,
        worst_usd: float | None,
        budget_usd: float | None,
        owner: str,
        identity: str = "",
        most_trials: int | None = None,
        counts: bool = True,
    ) -> Reservation:
        """Write down that a trial's job is about to be created.

        Args:
            trial: its number.
            parameters: of its job, as text.
            note: what the driver wants to know of it later.
            worst_usd: the most it can cost.
            budget_usd: the most the study may cost; None for no limit.
            owner: who is at work on it.
            identity: of what the job computes; empty where it may run twice.
            most_trials: trials at most, of those that count.
            counts: whether this one does.

        Raises:
            BudgetRefused: spent, promised and its own worst case exceed the budget; or its price is not known.
        """
        with self._transaction() as connection:
            if identity and connection.execute(self._same(identity)).first() is not None:
                return Reservation.DUPLICATE
            if counts and most_trials is not None and self._begun(connection) >= most_trials:
                return Reservation.TRIAL_LIMIT
            if budget_usd is not None:
                _admit(worst_usd, budget_usd, self._balance(connection), parameters.get("instance_type", ""))
            connection.execute(
                ENTRIES.insert().values(
                    study=self._study,
                    trial=trial,
                    identity=identity,
                    parameters=json.dumps(dict(parameters)),
                    note=json.dumps(dict(note)),
                    run_id="",
                    worst_usd=worst_usd,
                    counts=int(counts),
                    settled=0,
                    owner=owner,
                )
            )
        return Reservation.GRANTED

    def set_run_id(self, trial: int, run_id: str) -> None:
        """Write down the MLflow run of a trial."""
        with self._transaction() as connection:
            connection.execute(ENTRIES.update().where(self._is(trial)).values(run_id=run_id))

    def book(
        self,
        trial: int,
        usd: float | None,
        ended: Mapping[str, Any],
        *,
        settled: bool = True,
        counts: bool | None = None,
    ) -> None:
        """Write down how a trial ended and what it has cost; what was promised is free again. The first word stands.

        Args:
            trial: its number.
            usd: what it has cost; None where the price is unknown.
            ended: how it ended.
            settled: whether its outcome is known now, so that the same job need not run again.
            counts: whether it counts towards the most trials; None leaves that as it is.
        """
        with self._transaction() as connection:
            spent = self._balance(connection).spent_usd + (usd or 0.0)
            place = connection.execute(select(func.max(ENTRIES.c.place)).where(self._mine())).scalar() or 0
            values = {"booked_usd": usd, "ended": json.dumps(dict(ended)), "place": place + 1, "spent_usd": spent}
            values |= {"settled": int(settled)} | ({} if counts is None else {"counts": int(counts)})
            connection.execute(ENTRIES.update().where(self._is(trial), ENTRIES.c.ended.is_(None)).values(**values))

    def heartbeat(self, owner: str, now: float) -> None:
        """Say that the driver `owner` is alive, at `now` seconds since the epoch."""
        with self._transaction() as connection:
            connection.execute(delete(DRIVERS).where(DRIVERS.c.study == self._study, DRIVERS.c.owner == owner))
            connection.execute(DRIVERS.insert().values(study=self._study, owner=owner, seen=now))

    def deregister(self, owner: str) -> None:
        """Say that the driver `owner` is not at work any more."""
        with self._transaction() as connection:
            connection.execute(delete(DRIVERS).where(DRIVERS.c.study == self._study, DRIVERS.c.owner == owner))

    def drivers(self) -> dict[str, float]:
        """Who is at work, as far as they have said so, and when each last has: seconds since the epoch."""
        with self._transaction() as connection:
            rows = connection.execute(select(DRIVERS).where(DRIVERS.c.study == self._study)).all()
        return {row.owner: row.seen for row in rows}

    def take_over(self, trial: int, former: str, owner: str) -> bool:
        """Take a running trial from a driver that is gone; False when another one was faster."""
        with self._transaction() as connection:
            found = connection.execute(
                ENTRIES.update()
                .where(self._is(trial), ENTRIES.c.owner == former, ENTRIES.c.ended.is_(None))
                .values(owner=owner)
            )
            return bool(found.rowcount == 1)

    def entries(self) -> list[Entry]:
        """All lines, by number of the trial."""
        return self._read(select(ENTRIES).where(self._mine()).order_by(ENTRIES.c.trial))

    def running(self) -> list[Entry]:
        """Lines of trials that have not been booked, by number."""
        return self._read(select(ENTRIES).where(self._mine(), ENTRIES.c.ended.is_(None)).order_by(ENTRIES.c.trial))

    def booked(self, after: int) -> list[Entry]:
        """Lines booked after the `after`-th one, in the order of booking."""
        return self._read(select(ENTRIES).where(self._mine(), ENTRIES.c.place > after).order_by(ENTRIES.c.place))

    def balance(self) -> Balance:
        """What was spent and what is promised."""
        with self._transaction() as connection:
            return self._balance(connection)

    def close(self) -> None:
        """Close the connections to the storage; the next call opens new ones."""
        self._engine.dispose()

    def _make_tables(self) -> None:
        for left in reversed(range(_TRIES)):
            try:
                METADATA.create_all(self._engine)
            except SQLAlchemyError:
                if not left:
                    raise
            else:
                return

    def _mine(self) -> Any:
        return ENTRIES.c.study == self._study

    def _is(self, trial: int) -> Any:
        return self._mine() & (ENTRIES.c.trial == trial)

    def _same(self, identity: str) -> Select[Any]:
        """Lines of the same job that run, or whose outcome is known."""
        alive = ENTRIES.c.ended.is_(None) | (ENTRIES.c.settled == 1)
        return select(ENTRIES.c.trial).where(self._mine(), ENTRIES.c.identity == identity, alive).limit(1)

    def _begun(self, connection: Connection) -> int:
        return int(connection.execute(select(func.sum(ENTRIES.c.counts)).where(self._mine())).scalar() or 0)

    def _balance(self, connection: Connection) -> Balance:
        has_ended = ENTRIES.c.ended.is_not(None)
        row = connection.execute(
            select(
                func.sum(case((has_ended, ENTRIES.c.booked_usd), else_=0.0)),
                func.sum(case((has_ended, 0.0), else_=ENTRIES.c.worst_usd)),
            ).where(self._mine())
        ).one()
        return Balance(spent_usd=row[0] or 0.0, committed_usd=row[1] or 0.0)

    def _read(self, query: Select[Any]) -> list[Entry]:
        with self._transaction() as connection:
            return [entry_of(row) for row in connection.execute(query)]

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """One at a time for all drivers of the study: its own row is locked first, where rows can be."""
        try:
            with self._engine.begin() as connection:
                connection.execute(select(STUDIES.c.name).where(STUDIES.c.name == self._study).with_for_update())
                yield connection
        except SQLAlchemyError as error:
            again = "another driver has written the same" if isinstance(error, IntegrityError) else "it does not answer"
            text = f"{again} ({_first_line(error)}): the same command goes on with the study"
            raise LostContact(f"storage {self._where}: {text}") from error


def _admit(worst_usd: float | None, budget_usd: float, balance: Balance, instance_type: str) -> None:
    if worst_usd is None:
        raise BudgetRefused(
            f"the price of {instance_type} is not known, so it fits no budget: "
            "leave it out of the search, or give its price (PARETUNE_PRICES)"
        )
    if worst_usd > balance.left_usd(budget_usd) + _ROUNDING_USD:
        raise BudgetRefused(
            f"worst case {worst_usd:.4g} USD does not fit: of {budget_usd:g} USD {balance.spent_usd:.4g} "
            f"are spent and {balance.committed_usd:.4g} promised to running jobs"
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _difference(before: str, now: str) -> str:
    one, other = json.loads(before), json.loads(now)
    keys = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    return "; ".join(f"{name}: {one.get(name)} then, {other.get(name)} now" for name in keys)[:500]


def _by_hand(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # Python's driver would begin transactions itself, and later
    connection.execute("PRAGMA busy_timeout = 60000")


def _immediately(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


__all__ = ["Entry", "Ledger", "Reservation"]
