"""The ledger of a study: dollars reserved and booked for each trial, and which drivers work on it.

Drivers on several machines share it, so that together they never exceed the budget and never start the same job twice.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from enum import Enum
from typing import Any

import sqlalchemy as sa

from paretune.core.errors import BadInput, BudgetRefused, CallAgain, LostContact
from paretune.launchers.processes import is_alive
from paretune.ledger.ledger import DRIVERS, LEASES, STUDIES, TRIALS, Ledger
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialNote
from paretune.pricing.budget import Balance

LEASE_S = 120.0  # seconds for which a round holds a study unless it renews; well above the interval of renewals
_MOST_CLOCK_ERROR_S = 300.0
"""Seconds by which a machine's clock may be ahead; a lease that ends later than this allows is not trusted."""
_CLOCKS = {"postgresql": "select extract(epoch from clock_timestamp())"}
"""SQL dialect to the query of the database's own time, in seconds since the epoch; others use the machine's."""
_MOST_DIFFERENCES = 8
_LONGEST_VALUE = 200  # characters


class LeaseLost(LostContact):
    """Another round has taken over the study: this one stops without writing; jobs go on."""

    exit_code = CallAgain.exit_code


class Lease:
    """The lease of one study.

    Args:
        transaction: opens a transaction of the ledger, one at a time for all processes at work on the study.
    """

    def __init__(self, study: str, transaction: Callable[[], AbstractContextManager[sa.Connection]]) -> None:
        self._study = study
        self._is_study = LEASES.c.study == study
        self._transaction = transaction
        # of the round that holds the lease through this object; None for other processes, which are not fenced.
        self.token: int | None = None
        # this machine's time in seconds since the epoch, used if the database has no clock of its own.
        self.now: Callable[[], float] = time.time

    def take(self, holder: str) -> str:
        """Take the lease as `holder`; returns the living process that holds it instead, or an empty text."""
        try:
            with self._transaction() as connection:
                now, row = self._time(connection), self._row(connection)
                if row is not None and self._is_held(row, now):
                    return str(row.holder)
                token = 1 if row is None else row.token + 1
                values = {"holder": holder, "token": token, "until": now + LEASE_S}
                if row is None:
                    connection.execute(LEASES.insert().values(study=self._study, **values))
                else:
                    self._update(connection, **values)
        except LostContact:  # the first two rounds of a study at the same moment
            if other := self.holder():
                return other
            raise
        self.token = token
        return ""

    def renew(self) -> None:
        """Hold it for LEASE_S seconds from now; raises LeaseLost if another round has it."""
        with self._transaction() as connection:
            self._update(connection, until=self._time(connection) + LEASE_S)

    def release(self) -> None:
        """Let the next round take it at once; raises LeaseLost if another round has it."""
        with self._transaction() as connection:
            self._update(connection, holder="", until=0.0)

    def holder(self) -> str:
        """The process that holds it now, or an empty text."""
        with self._transaction() as connection:
            row = self._row(connection)
            return str(row.holder) if row is not None and self._is_held(row, self._time(connection)) else ""

    def record_end(self, end: str | None) -> None:
        """Record which stage of the study has ended, for later rounds."""
        with self._transaction() as connection:
            self._update(connection, ended=end)

    def recorded_end(self) -> str | None:
        """The text that `record_end` wrote last, or None."""
        with self._transaction() as connection:
            row = self._row(connection)
            return None if row is None or row.ended is None else str(row.ended)

    def check(self, connection: sa.Connection) -> None:
        """Raise LeaseLost, so that nothing is written, if another round has replaced this one."""
        if self.token is None:
            return
        row = self._row(connection)
        if row is None or row.token != self.token:
            by = f" ({row.holder})" if row is not None and row.holder else ""
            raise LeaseLost(f"another round of the study has taken over{by}: this one has stopped, its jobs go on")

    def _row(self, connection: sa.Connection) -> Any:
        return connection.execute(sa.select(LEASES).where(self._is_study)).first()

    def _update(self, connection: sa.Connection, **values: object) -> None:
        connection.execute(LEASES.update().where(self._is_study).values(**values))

    def _is_held(self, row: Any, now: float) -> bool:
        """Whether a living process, or one of another machine whose clock is plausible, holds it."""
        if not row.holder or row.until <= now:
            return False
        lives = is_alive(row.holder)
        return row.until <= now + LEASE_S + _MOST_CLOCK_ERROR_S if lives is None else lives

    def _time(self, connection: sa.Connection) -> float:
        query = _CLOCKS.get(connection.dialect.name)
        return self.now() if query is None else float(connection.exec_driver_sql(query).scalar_one())


class Reservation(Enum):
    """Result of `StudyLedger.reserve`."""

    GRANTED = "granted"
    DUPLICATE = "duplicate"  # the same job runs, or its outcome is known: nothing was written
    TRIAL_LIMIT = "trial limit"  # the study has begun as many trials as it may have: nothing was written


class StudyLedger(Ledger):
    """The ledger of one study, in the same database as Optuna's trials. Errors as for `Ledger`."""

    _table = TRIALS
    _has_ended = TRIALS.c.ended.is_not(None)
    _try_again = "the same command continues the study"

    def __init__(self, storage: str, study: str) -> None:
        self._study = study
        self._is_study = STUDIES.c.name == study
        self._in_study = TRIALS.c.study == study
        self.lease = Lease(study, self._transaction)
        super().__init__(storage)

    def open(self, run_id: str, described: str) -> str:
        """Add the study unless it is there; returns its MLflow run id, empty if it has none yet (see `name_run`).

        `described` holds job, search and objectives as JSON.

        Raises:
            BadInput: the study was begun with another description.
        """
        query = sa.select(STUDIES).where(self._is_study)
        study = {"name": self._study, "run_id": run_id, "mark": uuid.uuid4().hex, "described": described}
        with suppress(LostContact), self._transaction() as connection:  # two may begin it at the same moment
            if connection.execute(query).first() is None:
                connection.execute(STUDIES.insert().values(**study))
        (row,) = self._rows(query)
        if row.described != described:
            text = f"study {self._study} was begun with another search space, job or objectives: give it another "
            text += f"name (name=...), or the same file ({_difference(row.described, described)})"
            raise BadInput([text])
        return str(row.run_id)

    def mark(self) -> str:
        """A random tag of this study; it finds the study's MLflow run if the driver dies before `name_run`."""
        return str(self._rows(sa.select(STUDIES.c.mark).where(self._is_study))[0].mark)

    def name_run(self, run_id: str) -> str:
        """Record the study's MLflow run id if none is recorded; returns the recorded id."""
        with self._transaction() as connection:
            connection.execute(STUDIES.update().where(self._is_study, STUDIES.c.run_id == "").values(run_id=run_id))
            return str(connection.execute(sa.select(STUDIES.c.run_id).where(self._is_study)).scalar_one())

    def reserve(
        self,
        trial: int,
        parameters: Mapping[str, str],
        note: TrialNote,
        *,
        worst_usd: float | None,
        budget_usd: float | None,
        owner: str,
        identity: str = "",
        most_trials: int | None = None,
        reserve_shared: Callable[[sa.Connection], None] = lambda _: None,
    ) -> Reservation:
        """Reserve a trial's worst case, before its job is created.

        `identity` is the hash of what the job computes, empty if it may run twice. `budget_usd` limits the study's
        dollars, `most_trials` the trials that count; None is no limit. `reserve_shared` reserves in budgets beyond the
        study, in the same transaction; it raises to refuse the trial.

        Raises:
            BudgetRefused: spent, reserved and its own worst case exceed the budget, or its price is unknown.
        """
        with self._transaction() as connection:
            is_active = TRIALS.c.ended.is_(None) | (TRIALS.c.settled == 1)  # it runs, or its outcome is known
            same = sa.select(TRIALS.c.trial).where(self._in_study, TRIALS.c.identity == identity, is_active).limit(1)
            if identity and connection.execute(same).first() is not None:
                return Reservation.DUPLICATE
            count = sa.select(sa.func.coalesce(sa.func.sum(TRIALS.c.counts), 0)).where(self._in_study)
            if note.counts and most_trials is not None and connection.execute(count).scalar_one() >= most_trials:
                return Reservation.TRIAL_LIMIT
            if budget_usd is not None:
                balance = self._balance(connection, self._in_study)
                _admit(worst_usd, budget_usd, balance, parameters.get("instance_type", ""))
            reserve_shared(connection)
            row: dict[str, Any] = {"study": self._study, "trial": trial, "identity": identity, "owner": owner}
            row |= {"parameters": json.dumps(dict(parameters)), "note": json.dumps(asdict(note)), "run_id": ""}
            row |= {"worst_usd": worst_usd, "counts": int(note.counts), "settled": 0}
            connection.execute(TRIALS.insert().values(**row))
        return Reservation.GRANTED

    def set_run_id(self, trial: int, run_id: str) -> None:
        """Record the MLflow run of a trial."""
        self._write(TRIALS.update().where(self._is(trial)).values(run_id=run_id))

    def book(self, trial: int, end: TrialEnd, *, settled: bool) -> None:
        """Record how a trial ended and what it cost, in place of its reservation. A second booking is ignored.

        A retryable trial no longer counts towards the most trials; the same job as a `settled` one is not run again.
        """
        order = sa.select(sa.func.max(TRIALS.c.booking_order)).where(self._in_study)
        with self._transaction() as connection:
            self._book(
                connection,
                self._is(trial),
                TRIALS.c.ended.is_(None),
                usd=end.cost_usd,
                kept_usd=end.kept_usd,
                spent_usd=self._balance(connection, self._in_study).spent_usd + (end.cost_usd or 0.0),
                booking_order=(connection.execute(order).scalar() or 0) + 1,
                ended=end.as_json(),
                settled=int(settled),
                **({"counts": 0} if end.retryable else {}),
            )

    def book_kept(self, trial: int, usd: float) -> None:
        """Add the cost of the warm pool kept after a trial's job, in place of its reservation; once only."""
        self._book_kept(self._is(trial), usd=usd)

    def balance(self) -> Balance:
        """Dollars of the study that are spent and reserved."""
        with self._transaction() as connection:
            return self._balance(connection, self._in_study)

    def entry(self, trial: int) -> TrialEntry:
        """The entry of a trial that is in the ledger."""
        (entry,) = self._entries(TRIALS.c.trial == trial, order=TRIALS.c.trial)
        return entry

    def running(self) -> list[TrialEntry]:
        """Trials that have not been booked, by number."""
        return self._entries(TRIALS.c.ended.is_(None), order=TRIALS.c.trial)

    def booked(self, after: int) -> list[TrialEntry]:
        """Trials booked after the `after`-th one, in the order of booking."""
        return self._entries(TRIALS.c.booking_order > after, order=TRIALS.c.booking_order)

    def with_warm_pools(self) -> list[TrialEntry]:
        """Ended trials whose jobs left a warm pool, booked or not, by number."""
        return self._entries(TRIALS.c.kept_usd.is_not(None), order=TRIALS.c.trial)

    def heartbeat(self, owner: str, now: float) -> None:
        """Record that the driver `owner` runs at `now`, seconds since the epoch."""
        with self._transaction() as connection:
            connection.execute(sa.delete(DRIVERS).where(DRIVERS.c.study == self._study, DRIVERS.c.owner == owner))
            connection.execute(DRIVERS.insert().values(study=self._study, owner=owner, seen=now))

    def deregister(self, owner: str) -> None:
        """Record that the driver `owner` no longer runs."""
        self._write(sa.delete(DRIVERS).where(DRIVERS.c.study == self._study, DRIVERS.c.owner == owner))

    def drivers(self) -> dict[str, float]:
        """Registered drivers, each with the time of its last heartbeat in seconds since the epoch."""
        rows = self._rows(sa.select(DRIVERS).where(DRIVERS.c.study == self._study))
        return {row.owner: row.seen for row in rows}

    def take_over(self, trial: int, dead_owner: str, owner: str) -> bool:
        """Make `owner` the owner of a running trial of a dead driver; False if another driver was faster."""
        is_left = self._is(trial) & (TRIALS.c.owner == dead_owner) & TRIALS.c.ended.is_(None)
        return self._write(TRIALS.update().where(is_left).values(owner=owner)) == 1

    def _is(self, trial: int) -> Any:
        return self._in_study & (TRIALS.c.trial == trial)

    def _entries(self, *conditions: Any, order: Any) -> list[TrialEntry]:
        rows = self._rows(sa.select(TRIALS).where(self._in_study, *conditions).order_by(order))
        return [TrialEntry.of_row(row) for row in rows]

    def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._transaction() as connection:
            return connection.execute(query).all()

    def _lock(self, connection: sa.Connection) -> None:
        """Let in one transaction at a time of all drivers of the study, by a lock on its row where rows have locks."""
        connection.execute(sa.select(STUDIES.c.name).where(self._is_study).with_for_update())
        self.lease.check(connection)


def _admit(worst_usd: float | None, budget_usd: float, balance: Balance, instance_type: str) -> None:
    if worst_usd is None:
        raise BudgetRefused(
            f"the price of {instance_type} is not known, so it fits no budget: "
            "leave it out of the search, or give its price (PARETUNE_PRICES)"
        )
    if not balance.covers(worst_usd, budget_usd):
        raise BudgetRefused(
            f"worst case {worst_usd:.4g} USD does not fit: of {budget_usd:g} USD {balance.spent_usd:.4g} "
            f"are spent and {balance.committed_usd:.4g} promised to running jobs and kept instances"
        )


def _difference(before: str, now: str) -> str:
    earlier, later = _flattened(before), _flattened(now)
    names = sorted(name for name in {*earlier, *later} if earlier.get(name) != later.get(name))
    texts = [
        f"{name}: {earlier.get(name, 'none')} then, {later.get(name, 'none')} now" for name in names[:_MOST_DIFFERENCES]
    ]
    return "; ".join(texts) + (f"; and {len(names) - len(texts)} more" if len(names) > len(texts) else "")


def _flattened(described: str) -> dict[str, str]:
    """Section and name, such as `job model`, to the value as a text of at most `_LONGEST_VALUE` characters."""
    sections = {section: json.loads(text) for section, text in json.loads(described).items()}
    texts = {f"{section} {name}": json.dumps(value) for section, it in sections.items() for name, value in it.items()}
    return {
        name: text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..." for name, text in texts.items()
    }
