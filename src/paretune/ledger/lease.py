"""The lease of a study: at most one round works on it at a time, and a round that was replaced can write nothing more.

A process may be paused for longer than its lease lasts, by its machine or its network, and not notice. So each lease
has a token that is larger than those of all leases before it, and every transaction of the ledger compares the token
of the round with that in the table. A round that another one has replaced is refused in the same transaction in which
it would have written, whatever its clock says ("fencing").
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa

from paretune.core.errors import CallAgain, LostContact
from paretune.launchers.processes import is_alive
from paretune.ledger.tables import LEASES

LEASE_S = 120.0
"""Seconds for which a round holds a study unless it renews its lease; well above the interval between renewals."""
_MOST_CLOCK_ERROR_S = 300.0
"""Seconds by which a machine's clock may be ahead; a lease that ends later than this allows is not trusted."""
_CLOCKS = {"postgresql": "select extract(epoch from clock_timestamp())"}
"""SQL dialect to the query of the database's own time, in seconds since the epoch; others use the machine's."""


class LeaseLost(LostContact):
    """Another round has taken over the study: this one stops without writing; jobs go on."""

    exit_code = CallAgain.exit_code


class Lease:
    """The lease of one study.

    Args:
        transaction: opens a transaction of the ledger, one at a time for all processes at work on the study.

    Attributes:
        token: of the round that holds the lease through this object; None for other processes, which are not fenced.
        now: this machine's time in seconds since the epoch, used if the database has no clock of its own.
    """

    def __init__(self, study: str, transaction: Callable[[], AbstractContextManager[sa.Connection]]) -> None:
        self._study = study
        self._is_study = LEASES.c.study == study
        self._transaction = transaction
        self.token: int | None = None
        self.now: Callable[[], float] = time.time

    def take(self, holder: str) -> str:
        """Take the lease as `holder`; returns the process that holds it instead, or an empty text.

        A holder that is known to have died holds nothing.
        """
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
        """Refuse the transaction of a round that another one has replaced.

        Raises:
            LeaseLost: nothing is written.
        """
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
