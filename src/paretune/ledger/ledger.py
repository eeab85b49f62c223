"""The ledger of a study: dollars reserved and booked for each trial, and which drivers run. Tables beside Optuna's own.

A trial's worst case is reserved before its job is created, and what it has cost is booked when it has ended. The check
against the budget and the reservation are one transaction, so that drivers on several machines together never exceed
the budget and never start the same job twice. A trial that is reserved and not booked is running, or its driver died.
"""

import json
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from paretune.core.errors import BadInput, BudgetRefused, LostContact, first_line
from paretune.ledger.lease import Lease, lease_table
from paretune.ledger.migrations.studies import migrate
from paretune.ledger.status import TrialStatus
from paretune.pricing.budget import Balance
from paretune.specification.parameters import Value
from paretune.storage.engine import open_engine

_MOST_DIFFERENCES = 8
_LONGEST_ENTRY = 200  # characters
METADATA = sa.MetaData()
STUDIES = sa.Table(
    "paretune_studies",
    METADATA,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("run_id", sa.String(64), nullable=False),  # its MLflow run; empty until that is created
    sa.Column("mark", sa.String(64), nullable=False),  # a tag of that run, which finds it as long as run_id is empty
    sa.Column("described", sa.Text, nullable=False),  # job, search and objectives as JSON
)
ENTRIES = sa.Table(
    "paretune_ledger",
    METADATA,
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
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("parameters", sa.Text, nullable=False),
    sa.Column("note", sa.Text, nullable=False),  # TrialNote as JSON
    sa.Column("ended", sa.Text),  # TrialEnd as JSON
    sa.Column("kept_usd", sa.Float),  # 0 once it is booked
    sa.Index("paretune_ledger_identity", "study", "identity"),
    sa.Index("paretune_ledger_booking_order", "study", "booking_order"),
)
DRIVERS = sa.Table(
    "paretune_drivers",
    METADATA,
    sa.Column("study", sa.String(255), primary_key=True),
    sa.Column("owner", sa.String(255), primary_key=True),
    sa.Column("seen", sa.Float, nullable=False),  # seconds since the epoch
)
LEASES = lease_table(METADATA)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialNote:
    """What is written down of a trial when its dollars are reserved.

    Attributes:
        repeats: number of the trial that it repeats with another seed; None for a first one.
        changes: parameters of its job that are not those of its point.
        kind: what the trial is made for; `trial`: a point that the sampler has suggested, or a kind of `method: split`.
        predicted: metric to the value that the trial is to verify; empty where it verifies nothing.
        expected_usd: dollars that it was expected to cost, with whatever else finding out takes; 0 where unknown.
    """

    point: Mapping[str, Value] = field(default_factory=dict)
    seed: int = 42
    repeats: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "trial"
    predicted: Mapping[str, float] = field(default_factory=dict)
    expected_usd: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether it is one of the study's n_trials, as repeats are not."""
        return self.repeats is None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialEnd:
    """How a trial's job ended.

    Attributes:
        metrics: of its run; empty unless it completed.
        cost_usd: billed, however it ended; None where the price is unknown.
        kept_usd: the most that instances kept after its job can still be billed; None where none are kept.
        curve: share of the training, 0 to 1, and F1 measured then.
        retryable: the job says nothing about its point: no capacity, a quota, an interruption, a driver that died.
        transient: retryable, and the cause may last a while, such as no capacity: wait before the next try.
        alone: retryable, and not in a job that it shares with other trials.
        conclusive: it has failed, and the same job would fail again: it is not run a second time.
        expected: of a job that was stopped early, the metrics it would have had at its end.
        verdicts: what is to be said of its training, in sentences; see jobs/notes/verdicts.
        at: when it ended, by the launcher's clock: seconds since the epoch; 0 in what versions before 4 wrote.
        off_plan: its training plan was dropped: it would have run on demand, as the next job would.
        refused_beside: of a job that the launcher refused to create, how many jobs of its driver ran then; else None.
    """

    status: TrialStatus
    metrics: Mapping[str, float] = field(default_factory=dict)
    cost_usd: float | None = None
    kept_usd: float | None = None
    reason: str = ""
    curve: tuple[tuple[float, float], ...] = ()
    retryable: bool = False
    transient: bool = False
    alone: bool = False
    conclusive: bool = False
    expected: Mapping[str, float] = field(default_factory=dict)
    verdicts: tuple[str, ...] = ()
    at: float = 0.0
    off_plan: bool = False
    refused_beside: int | None = None

    def as_json(self) -> str:
        """One JSON object with everything but the dollars, which have a column of their own."""
        values = asdict(self) | {"status": self.status.value}
        del values["cost_usd"], values["kept_usd"]
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str, cost_usd: float | None) -> "TrialEnd":
        """The end that `as_json` has written, in this version or an earlier one, which wrote "again" and "later"."""
        earlier = {"again": "retryable", "later": "transient"}
        values = {earlier.get(name, name): value for name, value in _read(text).items()}
        values["status"] = TrialStatus(values["status"])
        values["curve"] = tuple((share, f1) for share, f1 in values["curve"])
        values["verdicts"] = tuple(values.get("verdicts", ()))
        return cls(**values, cost_usd=cost_usd)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One trial in the ledger.

    Attributes:
        identity: hash of what its job computes.
        parameters: of its job, as `JobSpec.from_text` reads them; without the half that is empty.
        run_id: its MLflow run; empty until that is created.
        worst_usd: dollars reserved; None where the price is unknown.
        booked_usd: dollars paid; None while it runs, or where the price is unknown.
        kept_usd: dollars reserved for instances kept after its job, 0 once they are booked; None where none were.
        ended: how it ended; None while it runs.
        booking_order: from 1, in the order of booking; None while it runs.
        spent_usd: dollars that the study had paid when it was booked, its own included; None while it runs.
    """

    trial: int
    identity: str
    parameters: Mapping[str, str]
    note: TrialNote
    run_id: str
    worst_usd: float | None
    booked_usd: float | None
    kept_usd: float | None
    ended: TrialEnd | None
    booking_order: int | None
    spent_usd: float | None
    owner: str


def entry_of(row: sa.Row[Any]) -> Entry:
    """The entry of a row of the table."""
    names = (
        "trial",
        "identity",
        "run_id",
        "worst_usd",
        "booked_usd",
        "kept_usd",
        "booking_order",
        "spent_usd",
        "owner",
    )
    return Entry(
        **{name: getattr(row, name) for name in names},
        parameters={name: text for name, text in _read(row.parameters).items() if text},
        note=TrialNote(**_read(row.note)),
        ended=None if row.ended is None else TrialEnd.from_json(row.ended, row.booked_usd),
    )


def _read(text: str) -> dict[str, Any]:
    """A JSON object of the table. Its texts are shared with those of all other trials, which are nearly the same."""
    found: dict[str, Any] = json.loads(text, object_pairs_hook=_shared)
    return found


def _shared(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {sys.intern(name): sys.intern(value) if isinstance(value, str) else value for name, value in pairs}


class Reservation(Enum):
    """What `Ledger.reserve` answers."""

    GRANTED = "granted"
    DUPLICATE = "duplicate"
    """The same job runs, or its outcome is known: nothing was written."""
    TRIAL_LIMIT = "trial limit"
    """As many trials as the study may have are begun: nothing was written."""


class Ledger:
    """The ledger of one study. Tables that an earlier version has written are migrated when it is opened.

    Args:
        storage: a SQLAlchemy address, the same as Optuna's.

    Raises:
        BadInput: the storage does not answer, or a newer version of paretune has written its tables.
        LostContact: from any method, when the storage no longer answers; jobs go on.
    """

    def __init__(self, storage: str, study: str) -> None:
        self._study = study
        self._own = STUDIES.c.name == study
        self._mine = ENTRIES.c.study == study
        self._where = "the study's storage"
        self.lease = Lease(study, LEASES, self._transaction)
        try:
            self._where = make_url(storage).render_as_string(hide_password=True)
            self._engine = open_engine(storage)
            with self._engine.begin() as connection:
                migrate(connection, self._where)
        except BadInput:
            self.close()
            raise
        except (SQLAlchemyError, ImportError, OSError) as error:
            text = f"storage {self._where} cannot be used ({first_line(error)}): check address, server and driver"
            raise BadInput([text]) from None

    def open(self, run_id: str, described: str) -> str:
        """Add the study, unless it is there already; its MLflow run, empty as long as there is none, see `name_run`.

        Every driver must agree on what is `described`: job, search and objectives as JSON; else BadInput is raised.
        """
        query = sa.select(STUDIES).where(self._own)
        new = {"name": self._study, "run_id": run_id, "mark": uuid.uuid4().hex, "described": described}
        with suppress(LostContact), self._transaction() as connection:  # two may begin it at the same moment
            if connection.execute(query).first() is None:
                connection.execute(STUDIES.insert().values(**new))
        (row,) = self._rows(query)
        if row.described != described:
            text = f"study {self._study} was begun with another search space, job or objectives: give it another "
            text += f"name (name=...), or the same file ({_difference(row.described, described)})"
            raise BadInput([text])
        return str(row.run_id)

    def mark(self) -> str:
        """A random tag of this study, which finds its MLflow run if the driver dies before `name_run`."""
        return str(self._rows(sa.select(STUDIES.c.mark).where(self._own))[0].mark)

    def name_run(self, run_id: str) -> str:
        """Write down the study's MLflow run, unless another driver has; the run that is written down."""
        with self._transaction() as connection:
            connection.execute(STUDIES.update().where(self._own, STUDIES.c.run_id == "").values(run_id=run_id))
            return str(connection.execute(sa.select(STUDIES.c.run_id).where(self._own)).scalar_one())

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
        also: Callable[[sa.Connection], None] = lambda _: None,
    ) -> Reservation:
        """Reserve a trial's worst case, before its job is created.

        `identity` is the hash of what the job computes, empty where it may run twice. `budget_usd` limits the study's
        dollars and `most_trials` the trials that count; None for no limit. `also` is called in the transaction that
        reserves, with what budgets beyond the study have to say; what it raises refuses the trial.

        Raises:
            BudgetRefused: spent, reserved and its own worst case exceed the budget; or its price is not known.
        """
        with self._transaction() as connection:
            alive = ENTRIES.c.ended.is_(None) | (ENTRIES.c.settled == 1)  # it runs, or its outcome is known
            same = sa.select(ENTRIES.c.trial).where(self._mine, ENTRIES.c.identity == identity, alive).limit(1)
            if identity and connection.execute(same).first() is not None:
                return Reservation.DUPLICATE
            begun = sa.select(sa.func.coalesce(sa.func.sum(ENTRIES.c.counts), 0)).where(self._mine)
            if note.counts and most_trials is not None and connection.execute(begun).scalar_one() >= most_trials:
                return Reservation.TRIAL_LIMIT
            if budget_usd is not None:
                _admit(worst_usd, budget_usd, self._balance(connection), parameters.get("instance_type", ""))
            also(connection)
            row: dict[str, Any] = {"study": self._study, "trial": trial, "identity": identity, "owner": owner}
            row |= {"parameters": json.dumps(dict(parameters)), "note": json.dumps(asdict(note)), "run_id": ""}
            row |= {"worst_usd": worst_usd, "counts": int(note.counts), "settled": 0}
            connection.execute(ENTRIES.insert().values(**row))
        return Reservation.GRANTED

    def set_run_id(self, trial: int, run_id: str) -> None:
        """Write down the MLflow run of a trial."""
        self._write(ENTRIES.update().where(self._is(trial)).values(run_id=run_id))

    def book(self, trial: int, ended: TrialEnd, *, settled: bool) -> None:
        """Write down how a trial ended and what it has cost, and release its reservation. A second booking is ignored.

        Of the reservation as much is kept as the instances that are kept after its job can cost, until `book_kept`.
        A retryable trial no longer counts towards the most trials; the same job as a `settled` one is not run again.
        """
        with self._transaction() as connection:
            spent = self._balance(connection).spent_usd + (ended.cost_usd or 0.0)
            last = connection.execute(sa.select(sa.func.max(ENTRIES.c.booking_order)).where(self._mine)).scalar() or 0
            values = {"booked_usd": ended.cost_usd, "spent_usd": spent, "booking_order": last + 1}
            values |= {"kept_usd": ended.kept_usd, "ended": ended.as_json(), "settled": int(settled)} | (
                {"counts": 0} if ended.retryable else {}
            )
            connection.execute(ENTRIES.update().where(self._is(trial), ENTRIES.c.ended.is_(None)).values(**values))

    def book_kept(self, trial: int, usd: float) -> None:
        """Add what instances kept after a trial's job have cost, and release their reservation; once only."""
        values = {"booked_usd": sa.func.coalesce(ENTRIES.c.booked_usd, 0.0) + usd, "kept_usd": 0.0}
        self._write(ENTRIES.update().where(self._is(trial), ENTRIES.c.kept_usd > 0).values(**values))

    def with_kept_instances(self) -> list[Entry]:
        """Ended trials after whose jobs instances were kept, booked or not, by number."""
        query = sa.select(ENTRIES).where(self._mine, ENTRIES.c.kept_usd.is_not(None)).order_by(ENTRIES.c.trial)
        return [entry_of(row) for row in self._rows(query)]

    def heartbeat(self, owner: str, now: float) -> None:
        """Record that the driver `owner` runs, at `now` seconds since the epoch."""
        with self._transaction() as connection:
            connection.execute(sa.delete(DRIVERS).where(DRIVERS.c.study == self._study, DRIVERS.c.owner == owner))
            connection.execute(DRIVERS.insert().values(study=self._study, owner=owner, seen=now))

    def deregister(self, owner: str) -> None:
        """Record that the driver `owner` no longer runs."""
        self._write(sa.delete(DRIVERS).where(DRIVERS.c.study == self._study, DRIVERS.c.owner == owner))

    def drivers(self) -> dict[str, float]:
        """Registered drivers to the time of their last heartbeat, seconds since the epoch."""
        rows = self._rows(sa.select(DRIVERS).where(DRIVERS.c.study == self._study))
        return {row.owner: row.seen for row in rows}

    def take_over(self, trial: int, former: str, owner: str) -> bool:
        """Make `owner` the owner of a running trial of a dead driver; False when another driver was faster."""
        running = self._is(trial) & (ENTRIES.c.owner == former) & ENTRIES.c.ended.is_(None)
        return self._write(ENTRIES.update().where(running).values(owner=owner)) == 1

    def entry(self, trial: int) -> Entry:
        """The entry of a trial, which there is."""
        (row,) = self._rows(sa.select(ENTRIES).where(self._is(trial)))
        return entry_of(row)

    def running(self) -> list[Entry]:
        """Trials that have not been booked, by number."""
        query = sa.select(ENTRIES).where(self._mine, ENTRIES.c.ended.is_(None)).order_by(ENTRIES.c.trial)
        return [entry_of(row) for row in self._rows(query)]

    def booked(self, after: int) -> list[Entry]:
        """Trials booked after the `after`-th one, in the order of booking."""
        order = ENTRIES.c.booking_order
        query = sa.select(ENTRIES).where(self._mine, order > after).order_by(order)
        return [entry_of(row) for row in self._rows(query)]

    def balance(self) -> Balance:
        """Dollars spent and reserved."""
        with self._transaction() as connection:
            return self._balance(connection)

    def close(self) -> None:
        """Close the connections to the storage; the next call opens new ones."""
        self._engine.dispose()

    def _is(self, trial: int) -> Any:
        return self._mine & (ENTRIES.c.trial == trial)

    def _balance(self, connection: sa.Connection) -> Balance:
        has_ended = ENTRIES.c.ended.is_not(None)
        spent = sa.func.sum(sa.case((has_ended, ENTRIES.c.booked_usd), else_=0.0))
        committed = sa.func.sum(sa.case((has_ended, ENTRIES.c.kept_usd), else_=ENTRIES.c.worst_usd))
        row = connection.execute(sa.select(spent, committed).where(self._mine)).one()
        return Balance(spent_usd=row[0] or 0.0, committed_usd=row[1] or 0.0)

    def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._transaction() as connection:
            return connection.execute(query).all()

    def _write(self, statement: Any) -> int:
        """Execute a statement in a transaction of its own; the number of rows that it has changed."""
        with self._transaction() as connection:
            return int(connection.execute(statement).rowcount)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """One at a time for all drivers of the study: its own row is locked first, where rows can be."""
        try:
            with self._engine.begin() as connection:
                connection.execute(sa.select(STUDIES.c.name).where(self._own).with_for_update())
                self.lease.check(connection)
                yield connection
        except SQLAlchemyError as error:
            again = "another driver has written the same" if isinstance(error, IntegrityError) else "it does not answer"
            text = f"{again} ({first_line(error)}): the same command goes on with the study"
            raise LostContact(f"storage {self._where}: {text}") from error


class Heartbeat:
    """Calls `beat` every `interval_s` seconds in a thread of its own, whatever the main thread is busy with.

    So it records that a driver runs; the interval is well below the age at which a driver counts as dead.
    """

    def __init__(self, beat: Callable[[], None], interval_s: float) -> None:
        self._beat, self._interval_s = beat, interval_s
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun. The first record is written before this returns."""
        self._beat()
        if self._thread is None:
            self._thread = threading.Thread(target=self._go_on, name="heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for a record that is being written."""
        self._has_ended.set()
        if self._thread is not None:
            self._thread.join()

    def _go_on(self) -> None:
        while not self._has_ended.wait(self._interval_s):
            with suppress(LostContact):  # the main thread says so at its next call; the storage may answer by then
                self._beat()


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
    """What is not the same in two descriptions, each entry of job, search and objectives by itself."""
    one, other = _entries(before), _entries(now)
    keys = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    said = [f"{name}: {one.get(name, 'none')} then, {other.get(name, 'none')} now" for name in keys[:_MOST_DIFFERENCES]]
    return "; ".join(said) + (f"; and {len(keys) - len(said)} more" if len(keys) > len(said) else "")


def _entries(described: str) -> dict[str, str]:
    """Part and entry, such as `job model`, to a text of at most `_LONGEST_ENTRY` characters."""
    parts = {part: json.loads(text) for part, text in json.loads(described).items()}
    found = {f"{part} {name}": json.dumps(value) for part, names in parts.items() for name, value in names.items()}
    return {
        name: text if len(text) <= _LONGEST_ENTRY else f"{text[:_LONGEST_ENTRY]}..." for name, text in found.items()
    }
