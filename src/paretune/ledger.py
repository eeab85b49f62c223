"""The books of a study: what was promised, what was paid, who is at work on it. One table beside Optuna's own.

A trial's dollars are promised before its job is created and booked when it has ended. Promise and check are one
transaction, so that drivers on several machines together never exceed the budget, and a driver that died has left
written down what it had begun.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    case,
    create_engine,
    event,
    func,
    select,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from paretune.errors import BadInput, BudgetRefused

_METADATA = MetaData()
_STUDIES = Table(
    "paretune_studies",
    _METADATA,
    Column("name", String(255), primary_key=True),
    Column("run_id", String(64), nullable=False),
    Column("described", Text, nullable=False),
)
_ENTRIES = Table(
    "paretune_ledger",
    _METADATA,
    Column("study", String(255), primary_key=True),
    Column("trial", Integer, primary_key=True),
    Column("parameters", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("worst_usd", Float),
    Column("booked_usd", Float),
    Column("ended", Text),
    Column("owner", String(255), nullable=False),
    Column("seen", Float, nullable=False),
)
_ROUNDING_USD = 1e-9


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the books.

    Attributes:
        trial: its number.
        parameters: of its job, as text.
        note: what the driver wants to know of it later.
        run_id: its MLflow run; empty until that has been opened.
        worst_usd: dollars promised; None where the price is unknown.
        booked_usd: dollars paid; None while it runs, or where the price is unknown.
        ended: how it ended; None while it runs.
        owner: the process that is at work on it.
        seen: when that process last said so, seconds since the epoch.
    """

    trial: int
    parameters: Mapping[str, str]
    note: Mapping[str, Any]
    run_id: str
    worst_usd: float | None
    booked_usd: float | None
    ended: Mapping[str, Any] | None
    owner: str
    seen: float


@dataclass(frozen=True, kw_only=True)
class Balance:
    """Dollars of a study: paid, and promised to what still runs."""

    spent_usd: float
    committed_usd: float


class Ledger:
    """The books of one study.

    Args:
        storage: a SQLAlchemy address, the same as Optuna's.
        study: its name.

    Raises:
        BadInput: the storage does not answer.
    """

    def __init__(self, storage: str, study: str) -> None:
        self._study = study
        try:
            self._engine = create_engine(storage, pool_pre_ping=True)
            if make_url(storage).get_backend_name() == "sqlite":
                # Of SQLite's transactions only an immediate one keeps others from reading what it is about to change.
                event.listen(self._engine, "connect", _by_hand)
                event.listen(self._engine, "begin", _immediately)
            _METADATA.create_all(self._engine)
        except (SQLAlchemyError, ImportError) as error:
            where = make_url(storage).render_as_string(hide_password=True)
            reason = str(error).strip().splitlines()[0]
            raise BadInput([f"storage {where} cannot be used ({reason}): check address, server and driver"]) from None

    def open(self, run_id: str, described: str) -> str:
        """The MLflow run of the study: `run_id`, unless another driver has opened the study before.

        Raises:
            BadInput: the study was begun with another description.
        """
        with self._transaction() as connection:
            row = connection.execute(select(_STUDIES).where(_STUDIES.c.name == self._study)).first()
            if row is None:
                connection.execute(_STUDIES.insert().values(name=self._study, run_id=run_id, described=described))
                return run_id
        if row.described != described:
            raise BadInput(
                [
                    f"study {self._study} was begun with another search space, job or objectives: give it another "
                    f"name, or the same file ({_difference(row.described, described)})"
                ]
            )
        return str(row.run_id)

    def known_run(self) -> str | None:
        """The MLflow run of the study; None where nobody has begun it."""
        with self._transaction() as connection:
            row = connection.execute(select(_STUDIES).where(_STUDIES.c.name == self._study)).first()
        return None if row is None else str(row.run_id)

    def promise(
        self,
        trial: int,
        parameters: Mapping[str, str],
        note: Mapping[str, Any],
        *,
        worst_usd: float | None,
        budget_usd: float | None,
        owner: str,
        now: float,
    ) -> None:
        """Write down that a trial's job is about to be created.

        Raises:
            BudgetRefused: spent, promised and its own worst case exceed the budget; or its price is not known.
        """
        with self._transaction() as connection:
            if budget_usd is not None:
                if worst_usd is None:
                    raise BudgetRefused(
                        f"the price of {parameters.get('instance_type')} is not known, so it fits no budget: "
                        "leave it out of the search, or give its price (PARETUNE_PRICES)"
                    )
                balance = self._balance(connection)
                left = budget_usd - balance.spent_usd - balance.committed_usd
                if worst_usd > left + _ROUNDING_USD:
                    raise BudgetRefused(
                        f"worst case {worst_usd:.4g} USD does not fit: of {budget_usd:g} USD {balance.spent_usd:.4g} "
                        f"are spent and {balance.committed_usd:.4g} promised to running jobs"
                    )
            connection.execute(
                _ENTRIES.insert().values(
                    study=self._study,
                    trial=trial,
                    parameters=json.dumps(dict(parameters)),
                    note=json.dumps(dict(note)),
                    run_id="",
                    worst_usd=worst_usd,
                    owner=owner,
                    seen=now,
                )
            )

    def opened(self, trial: int, run_id: str) -> None:
        """Write down the MLflow run of a trial."""
        self._update(trial, run_id=run_id)

    def book(self, trial: int, usd: float | None, ended: Mapping[str, Any]) -> None:
        """Write down how a trial ended and what it has cost; what was promised is free again."""
        self._update(trial, booked_usd=usd, ended=json.dumps(dict(ended)))

    def still_here(self, owner: str, now: float) -> None:
        """Say that the driver `owner` is alive."""
        with self._transaction() as connection:
            connection.execute(
                _ENTRIES.update()
                .where(_ENTRIES.c.study == self._study, _ENTRIES.c.owner == owner, _ENTRIES.c.ended.is_(None))
                .values(seen=now)
            )

    def take_over(self, trial: int, former: str, owner: str, now: float) -> bool:
        """Take a running trial from a driver that is gone; False when another one was faster."""
        with self._transaction() as connection:
            found = connection.execute(
                _ENTRIES.update()
                .where(
                    _ENTRIES.c.study == self._study,
                    _ENTRIES.c.trial == trial,
                    _ENTRIES.c.owner == former,
                    _ENTRIES.c.ended.is_(None),
                )
                .values(owner=owner, seen=now)
            )
            return bool(found.rowcount == 1)

    def entries(self) -> list[Entry]:
        """All lines, by number of the trial."""
        with self._transaction() as connection:
            return self._entries(connection)

    def balance(self) -> Balance:
        """What was spent and what is promised."""
        with self._transaction() as connection:
            return self._balance(connection)

    def _balance(self, connection: Connection) -> Balance:
        has_ended = _ENTRIES.c.ended.is_not(None)
        row = connection.execute(
            select(
                func.sum(case((has_ended, _ENTRIES.c.booked_usd), else_=0.0)),
                func.sum(case((has_ended, 0.0), else_=_ENTRIES.c.worst_usd)),
            ).where(_ENTRIES.c.study == self._study)
        ).one()
        return Balance(spent_usd=row[0] or 0.0, committed_usd=row[1] or 0.0)

    def _entries(self, connection: Connection) -> list[Entry]:
        rows = connection.execute(
            select(_ENTRIES).where(_ENTRIES.c.study == self._study).order_by(_ENTRIES.c.trial).with_for_update()
        )
        return [
            Entry(
                trial=row.trial,
                parameters=json.loads(row.parameters),
                note=json.loads(row.note),
                run_id=row.run_id,
                worst_usd=row.worst_usd,
                booked_usd=row.booked_usd,
                ended=None if row.ended is None else json.loads(row.ended),
                owner=row.owner,
                seen=row.seen,
            )
            for row in rows
        ]

    def _update(self, trial: int, **values: Any) -> None:
        with self._transaction() as connection:
            connection.execute(
                _ENTRIES.update().where(_ENTRIES.c.study == self._study, _ENTRIES.c.trial == trial).values(**values)
            )

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """One at a time for all drivers of the study: its own row is locked first, where rows can be."""
        with self._engine.begin() as connection:
            connection.execute(select(_STUDIES.c.name).where(_STUDIES.c.name == self._study).with_for_update())
            yield connection


def _difference(before: str, now: str) -> str:
    one, other = json.loads(before), json.loads(now)
    keys = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    return "; ".join(f"{name}: {one.get(name)} then, {other.get(name)} now" for name in keys)[:500]


def _by_hand(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # Python's driver would begin transactions itself, and later
    connection.execute("PRAGMA busy_timeout = 60000")


def _immediately(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
