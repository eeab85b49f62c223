"""The lease of a study: at most one round works on it at a time, and one that was replaced can write nothing more.

A process may be paused for longer than its lease lasts, by its machine or its network, and not notice. So each lease
has a token that is larger than those of all leases before it, and every transaction of the ledger compares the token
of the round with that in the table. A round that another one has replaced is refused in the same transaction in which
it would have written, whatever its clock says ("fencing").
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import sqlalchemy as sa

from paretune.core.errors import CallAgain, LostContact
from paretune.launchers.processes import is_alive

LEASE_S = 120.0
"""Seconds for which a round holds a study, unless it renews its lease; well above the interval between renewals."""
_WRONG_BY_S = 300.0
"""Seconds by which the clock of a machine may be ahead; the end of a lease that lies further ahead is no evidence."""
_CLOCKS = {"postgresql": "select extract(epoch from clock_timestamp())"}
"""SQL dialect to the query of the database's own time, in seconds since the epoch; elsewhere the machine's counts."""


class LeaseLost(LostContact):
    """Another round has taken over the study: this one stops without writing; jobs go on."""

    exit_code = CallAgain.exit_code


def lease_table(metadata: sa.MetaData) -> sa.Table:
    """The table of leases, one row a study."""
    return sa.Table(
        "paretune_leases",
        metadata,
        sa.Column("study", sa.String(255), primary_key=True),
        sa.Column("holder", sa.String(255), nullable=False),  # as of `this_process`; empty when nobody holds it
        sa.Column("token", sa.Integer, nullable=False),  # grows by one each time that the lease is taken
        sa.Column("until", sa.Float, nullable=False),  # seconds since the epoch, by the database's clock
        sa.Column("ended", sa.Text),  # what of the study has ended, as its rounds have written it down
    )


class Lease:
    """The lease of one study.

    Args:
        table: see `lease_table`.
        transaction: of the ledger; one at a time for all processes at work on the study.

    Attributes:
        token: of the round that holds the lease through this object; None for everybody else, who is not fenced.
        now: time of this machine, which counts where the database has no clock of its own: seconds since the epoch.
    """

    def __init__(
        self, study: str, table: sa.Table, transaction: Callable[[], AbstractContextManager[sa.Connection]]
    ) -> None:
        self._study = study
        self._table = table
        self._own = table.c.study == study
        self._transaction = transaction
        self.token: int | None = None
        self.now: Callable[[], float] = time.time

    def take(self, holder: str) -> str:
        """Take the lease as `holder`; empty, or who holds it. A holder that is known to have died holds nothing."""
        try:
            return self._take(holder)
        except LostContact:  # the first two rounds of a study at the same moment
            if other := self.holder():
                return other
            raise

    def _take(self, holder: str) -> str:
        with self._transaction() as connection:
            now = self._time(connection)
            row = connection.execute(sa.select(self._table).where(self._own)).first()
            if row is not None and self._is_held(row, now):
                return str(row.holder)
            token = 1 if row is None else row.token + 1
            values = {"holder": holder, "token": token, "until": now + LEASE_S}
            if row is None:
                connection.execute(self._table.insert().values(study=self._study, **values))
            else:
                connection.execute(self._table.update().where(self._own).values(**values))
        self.token = token
        return ""

    def renew(self) -> None:
        """Hold it for LEASE_S seconds from now; LeaseLost where another round has it."""
        with self._transaction() as connection:
            until = self._time(connection) + LEASE_S
            connection.execute(self._table.update().where(self._own).values(until=until))

    def release(self) -> None:
        """Let the next round take it at once; without effect where another one has it."""
        with self._transaction() as connection:
            connection.execute(self._table.update().where(self._own).values(holder="", until=0.0))

    def holder(self) -> str:
        """Who holds it now; empty where nobody does."""
        with self._transaction() as connection:
            row = connection.execute(sa.select(self._table).where(self._own)).first()
            return str(row.holder) if row is not None and self._is_held(row, self._time(connection)) else ""

    def note(self, ended: str | None) -> None:
        """Write down what of the study has ended, for its later rounds."""
        with self._transaction() as connection:
            connection.execute(self._table.update().where(self._own).values(ended=ended))

    def noted(self) -> str | None:
        """What was written down last."""
        with self._transaction() as connection:
            found = connection.execute(sa.select(self._table.c.ended).where(self._own)).scalar()
            return None if found is None else str(found)

    def check(self, connection: sa.Connection) -> None:
        """Refuse the transaction of a round that another one has replaced.

        Raises:
            LeaseLost: nothing is written.
        """
        if self.token is None:
            return
        row = connection.execute(sa.select(self._table.c.token, self._table.c.holder).where(self._own)).first()
        if row is None or row.token != self.token:
            by = f" ({row.holder})" if row is not None and row.holder else ""
            raise LeaseLost(f"another round of the study has taken over{by}: this one has stopped, its jobs go on")

    def _is_held(self, row: sa.Row[tuple[object, ...]], now: float) -> bool:
        """Whether somebody holds it: no process that has died, and none of elsewhere whose clock was far ahead."""
        if not row.holder or row.until <= now:
            return False
        lives = is_alive(row.holder)
        return row.until <= now + LEASE_S + _WRONG_BY_S if lives is None else lives

    def _time(self, connection: sa.Connection) -> float:
        query = _CLOCKS.get(connection.dialect.name)
        return self.now() if query is None else float(connection.exec_driver_sql(query).scalar_one())
