"""The ledger of a study: dollars reserved and booked for each trial, and the lock of the driver at work on it."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from typing import Any

import sqlalchemy as sa

from paretune.core.errors import BadInput, BudgetRefused, CallAgain
from paretune.ledger.ledger import STUDIES, TRIALS, Ledger
from paretune.ledger.lock import StudyLock
from paretune.ledger.trial_entry import TrialEnd, TrialEntry, TrialNote
from paretune.pricing.budget import Balance
from paretune.storage.database import exclude_others

_OPENING = 2  # what `exclude_others` keeps apart
_MOST_DIFFERENCES = 8
_LONGEST_VALUE = 200  # characters


class Reservation(Enum):
    """Result of `StudyLedger.reserve`."""

    GRANTED = "granted"
    DUPLICATE = "duplicate"  # the same job runs, or its outcome is known: nothing was written
    TRIAL_LIMIT = "trial limit"  # the study has begun as many trials as it may have: nothing was written


class StudyLedger(Ledger):
    """The ledger of one study, in the same database as Optuna's trials. Errors as for `Ledger`."""

    _table = TRIALS
    _has_ended = TRIALS.c.ended.is_not(None)
    _version_table = "paretune_schema"
    _try_again = "the same command continues the study"

    def __init__(self, storage: str, study: str) -> None:
        self._study = study
        self._is_study = STUDIES.c.name == study
        self._in_study = TRIALS.c.study == study
        super().__init__(storage)
        self._study_lock = StudyLock(self._engine, study)

    @contextmanager
    def locked(self, holder: str) -> Iterator[None]:
        """Work on the study alone inside the block; raises CallAgain if another driver works on it."""
        if other := self._study_lock.take(holder):
            raise CallAgain(f"{other} works on the study {self._study}: this command has done nothing; call again")
        try:
            yield
        finally:
            self._study_lock.release()

    def open(self, run_id: str, described: str) -> str:
        """Add the study unless it is there; returns its MLflow run id, empty if it has none yet (see `name_run`).

        `described` holds job, search and objectives as JSON.

        Raises:
            BadInput: the study was begun with another description.
        """
        query = sa.select(STUDIES).where(self._is_study)
        study = {"name": self._study, "run_id": run_id, "mark": uuid.uuid4().hex, "described": described}
        with self._transaction() as connection:
            exclude_others(connection, _OPENING)  # a row that is not there yet cannot be locked
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

    def name_run(self, run_id: str) -> None:
        """Record the study's MLflow run id."""
        self._write(STUDIES.update().where(self._is_study).values(run_id=run_id))

    def reserve(
        self,
        trial: int,
        parameters: Mapping[str, str],
        note: TrialNote,
        *,
        worst_usd: float | None,
        budget_usd: float | None,
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
            row: dict[str, Any] = {"study": self._study, "trial": trial, "identity": identity}
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

    def _is(self, trial: int) -> Any:
        return self._in_study & (TRIALS.c.trial == trial)

    def _entries(self, *conditions: Any, order: Any) -> list[TrialEntry]:
        rows = self._rows(sa.select(TRIALS).where(self._in_study, *conditions).order_by(order))
        return [TrialEntry.of_row(row) for row in rows]

    def _rows(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        with self._transaction() as connection:
            return connection.execute(query).all()

    def _lock(self, connection: sa.Connection) -> None:
        """Let in one transaction at a time, by a lock on the study's row where rows have locks."""
        connection.execute(sa.select(STUDIES.c.name).where(self._is_study).with_for_update())
        if self._study_lock is not None:
            self._study_lock.check()


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
