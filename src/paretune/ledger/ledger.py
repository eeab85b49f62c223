"""Reserved and booked dollars in a database: the part that the ledgers of studies and of shared budgets have in common.

    reserve    the job's worst case is committed before the job is created
    book       its cost replaces the reservation when it has ended; `kept_usd` stays committed for a warm pool
    book_kept  the cost of the warm pool replaces `kept_usd`

The comparison with a budget and the reservation are one transaction. A reservation that was never booked belongs to a
job that still runs, or whose launcher was killed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from paretune.core.errors import BadInput, LostContact, first_line
from paretune.pricing.budget import Balance
from paretune.storage.address import redacted
from paretune.storage.database import create_tables, open_engine

STUDY_METADATA, BUDGET_METADATA = sa.MetaData(), sa.MetaData()

STUDIES = sa.Table(
    "paretune_studies",
    STUDY_METADATA,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("run_id", sa.String(64), nullable=False),  # its MLflow run; empty until that is created
    sa.Column("mark", sa.String(64), nullable=False),  # a tag of that run, which finds it while run_id is empty
    sa.Column("described", sa.Text, nullable=False),  # job, search and objectives as JSON
)
TRIALS = sa.Table(
    "paretune_ledger",
    STUDY_METADATA,
    sa.Column("study", sa.String(255), primary_key=True),
    sa.Column("trial", sa.Integer, primary_key=True),
    sa.Column("identity", sa.String(255), nullable=False),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("worst_usd", sa.Float),
    sa.Column("booked_usd", sa.Float),
    sa.Column("spent_usd", sa.Float),
    sa.Column("booking_order", sa.Integer),
    sa.Column("counts", sa.Integer, nullable=False),  # 1: one of the study's n_trials
    sa.Column("settled", sa.Integer, nullable=False),  # 1: the outcome is known, the same job is not run again
    sa.Column("parameters", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False),  # TrialNote as JSON
    sa.Column("ended", sa.Text),  # TrialEnd as JSON; empty while it runs
    sa.Column("kept_usd", sa.Float),  # 0 once it is booked
    sa.Index("paretune_ledger_identity", "study", "identity"),
    sa.Index("paretune_ledger_booking_order", "study", "booking_order"),
)
BUDGET_ENTRIES = sa.Table(
    "paretune_budget_entries",
    BUDGET_METADATA,
    sa.Column("job", sa.String(255), primary_key=True),  # a random name of the reservation, or the job's MLflow run
    sa.Column("run_id", sa.String(64), nullable=False),  # its MLflow run; empty until that is created
    sa.Column("month", sa.String(7), nullable=False),  # such as 2026-11, UTC
    sa.Column("origin", sa.String(16), nullable=False),  # measured or simulated
    sa.Column("worst_usd", sa.Float, nullable=False),
    sa.Column("booked_usd", sa.Float),  # empty while it runs
    sa.Column("kept_usd", sa.Float),  # the most that instances kept after it can still cost; 0 once that is booked
    sa.Column("reserved_at", sa.Float, nullable=False),  # seconds since the epoch, of the launcher's clock
    sa.Index("paretune_budget_entries_month", "month", "origin"),
    sa.Index("paretune_budget_entries_run", "run_id"),
)
BUDGET_TAGS = sa.Table(
    "paretune_budget_tags",
    BUDGET_METADATA,
    sa.Column("job", sa.String(255), primary_key=True),
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("value", sa.String(256), nullable=False),
)


class Ledger:
    """One table with the columns worst_usd, booked_usd and kept_usd.

    Args:
        address: of the database, as SQLAlchemy takes it.
        holder: what the database belongs to, for messages, such as ` of team.yaml`.
        keeps_connections: False opens and closes a connection for each transaction.

    Raises:
        BadInput: the database does not answer, or another version of paretune has made its tables.
        LostContact: from any method, if the database no longer answers; jobs go on.
    """

    _table: ClassVar[sa.Table]
    _has_ended: ClassVar[sa.ColumnElement[bool]]
    _version_table: ClassVar[str]
    _try_again: ClassVar[str]

    def __init__(self, address: str, holder: str = "", *, keeps_connections: bool = True) -> None:
        self.shown_address = redacted(address)  # the address without user and password
        self._storage = f"storage {self.shown_address}{holder}"
        try:
            self._engine = open_engine(address, keeps_connections=keeps_connections)
            self._prepare()
            with self._engine.begin() as connection:
                create_tables(connection, self.shown_address, self._table.metadata, self._version_table)
        except BadInput:
            self.close()
            raise
        except (SQLAlchemyError, ImportError, OSError) as error:
            text = f"{self._storage} cannot be used ({first_line(error)}): check address, server and driver"
            raise BadInput([text]) from None

    def close(self) -> None:
        """Close the connections to the database; the next call opens new ones."""
        self._engine.dispose()

    def _prepare(self) -> None:
        """Called once, before the database is opened."""

    def _lock(self, connection: sa.Connection) -> None:
        """Called at the beginning of each transaction."""

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                self._lock(connection)
                yield connection
        except sa.exc.IntegrityError as error:
            text = f"another process has written the same ({first_line(error)})"
            raise LostContact(f"{self._storage}: {text}: {self._try_again}") from error
        except SQLAlchemyError as error:
            raise LostContact(f"{self._storage} does not answer ({first_line(error)}): {self._try_again}") from error

    def _write(self, statement: Any) -> int:
        with self._transaction() as connection:
            return int(connection.execute(statement).rowcount)

    def _balance(self, connection: sa.Connection, *rows: Any) -> Balance:
        columns = self._table.c
        spent = sa.func.sum(sa.case((self._has_ended, columns.booked_usd), else_=0.0))
        committed = sa.func.sum(sa.case((self._has_ended, columns.kept_usd), else_=columns.worst_usd))
        row = connection.execute(sa.select(spent, committed).where(*rows)).one()
        return Balance(spent_usd=row[0] or 0.0, committed_usd=row[1] or 0.0)

    def _book(
        self, connection: sa.Connection, *rows: Any, usd: float | None, kept_usd: float | None, **others: Any
    ) -> None:
        """Replace the reservations of these rows by their cost; `others` are further columns to set."""
        values = {"booked_usd": usd, "kept_usd": kept_usd, **others}
        connection.execute(self._table.update().where(*rows).values(**values))

    def _book_kept(self, *rows: Any, usd: float) -> None:
        """Add the cost of a warm pool to the rows whose `kept_usd` is still reserved."""
        columns = self._table.c
        values = {"booked_usd": sa.func.coalesce(columns.booked_usd, 0.0) + usd, "kept_usd": 0.0}
        self._write(self._table.update().where(*rows, columns.kept_usd > 0).values(**values))
