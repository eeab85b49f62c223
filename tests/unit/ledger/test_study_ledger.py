"""The books of a study: what is promised and booked, by one driver and by several at once."""

import contextlib
import json
import multiprocessing
import random
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.exc import OperationalError

from paretune.core.errors import BadInput, BudgetRefused, LostContact
from paretune.ledger.study_ledger import Reservation, StudyLedger
from paretune.ledger.trial_entry import TrialEnd, TrialNote, TrialStatus
from paretune.pricing.budget import Balance
from paretune.storage.database import with_driver
from tests.stand_ins import postgresql
from tests.study_tables import entries_of


@pytest.fixture
def storage(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'study.db'}"


@pytest.fixture
def ledger(storage: str) -> Iterator[StudyLedger]:
    opened = StudyLedger(storage, "one")
    yield opened
    opened.close()


def reserve(
    ledger: StudyLedger, trial: int, worst_usd: float | None = 1.0, note: TrialNote | None = None, **terms: Any
) -> Reservation:
    terms = {"budget_usd": None, **terms}
    return ledger.reserve(trial, {"instance_type": "ml.g5.xlarge"}, note or TrialNote(), worst_usd=worst_usd, **terms)


def book(ledger: StudyLedger, trial: int, usd: float | None, *, settled: bool = True, **fields: Any) -> None:
    ledger.book(trial, TrialEnd(**{"status": TrialStatus.COMPLETED, "cost_usd": usd, **fields}), settled=settled)


def test_a_promise_is_committed_until_it_is_booked(ledger: StudyLedger) -> None:
    reserve(ledger, 0, 3.0)
    reserve(ledger, 1, 2.0)
    assert ledger.balance() == Balance(spent_usd=0.0, committed_usd=5.0)

    book(ledger, 0, 1.25)
    assert ledger.balance() == Balance(spent_usd=1.25, committed_usd=2.0)


def test_spent_and_committed_and_the_worst_case_must_fit_the_budget(ledger: StudyLedger) -> None:
    reserve(ledger, 0, 3.0, budget_usd=10.0)
    book(ledger, 0, 2.0)
    reserve(ledger, 1, 5.0, budget_usd=10.0)

    with pytest.raises(BudgetRefused, match=r"worst case 3\.5 USD does not fit: of 10 USD 2 are spent and 5 promised"):
        reserve(ledger, 2, 3.5, budget_usd=10.0)
    reserve(ledger, 2, 3.0, budget_usd=10.0)  # to the last cent


def test_a_billionth_of_a_dollar_is_taken_for_rounding(ledger: StudyLedger) -> None:
    assert reserve(ledger, 0, 1e-9, budget_usd=0.0) is Reservation.GRANTED
    with pytest.raises(BudgetRefused):
        reserve(ledger, 1, 1e-9, budget_usd=0.0)


def test_an_unknown_price_fits_no_budget_and_any_study_without_one(ledger: StudyLedger) -> None:
    with pytest.raises(BudgetRefused, match=r"price of ml\.g5\.xlarge is not known"):
        reserve(ledger, 0, None, budget_usd=10.0)
    assert reserve(ledger, 0, None) is Reservation.GRANTED


def test_a_job_that_runs_or_is_known_is_not_promised_again(ledger: StudyLedger) -> None:
    assert reserve(ledger, 0, identity="a") is Reservation.GRANTED
    assert reserve(ledger, 1, identity="a") is Reservation.DUPLICATE
    book(ledger, 0, 1.0)
    assert reserve(ledger, 1, identity="a") is Reservation.DUPLICATE
    assert reserve(ledger, 1, identity="b") is Reservation.GRANTED


def test_a_job_that_met_trouble_may_be_promised_again(ledger: StudyLedger) -> None:
    reserve(ledger, 0, identity="a")
    book(ledger, 0, 0.0, settled=False)
    assert reserve(ledger, 1, identity="a") is Reservation.GRANTED


def test_no_more_trials_are_begun_than_the_study_may_have(ledger: StudyLedger) -> None:
    assert reserve(ledger, 0, most_trials=1) is Reservation.GRANTED
    assert reserve(ledger, 1, most_trials=1) is Reservation.TRIAL_LIMIT
    assert reserve(ledger, 1, note=TrialNote(repeats=0), most_trials=1) is Reservation.GRANTED
    book(ledger, 0, 0.0, retryable=True)  # it met trouble: that was no trial
    assert reserve(ledger, 2, most_trials=1) is Reservation.GRANTED
    book(ledger, 2, 1.0)
    assert reserve(ledger, 3, most_trials=1) is Reservation.TRIAL_LIMIT


def test_the_first_booking_stands(ledger: StudyLedger) -> None:
    reserve(ledger, 0)
    book(ledger, 0, 1.0)
    book(ledger, 0, 7.0, status=TrialStatus.FAILED)

    (entry,) = ledger.booked(0)
    assert (entry.booked_usd, entry.end) == (1.0, TrialEnd(status=TrialStatus.COMPLETED, cost_usd=1.0))


def test_what_is_written_down_of_a_trial_is_read_again(ledger: StudyLedger) -> None:
    note = TrialNote(point={"seed": 1}, seed=7, repeats=3, changes={"spot": True})
    end = TrialEnd(
        status=TrialStatus.STOPPED,
        metrics={"f1": 0.5},
        cost_usd=1.5,
        reason="hopeless",
        retryable=True,
        transient=True,
    )
    ledger.reserve(4, {"model": "tiny"}, note, worst_usd=2.0, budget_usd=None, identity="a")
    ledger.set_run_id(4, "run")
    ledger.book(4, end, settled=True)

    (entry,) = ledger.booked(0)
    assert (entry.note, entry.end, entry.given) == (note, end, {"model": "tiny"})
    assert entry.parameters["model"] == "tiny"
    assert (entry.trial, entry.identity, entry.run_id) == (4, "a", "run")
    assert (entry.worst_usd, entry.booked_usd, entry.booking_order, entry.spent_usd) == (2.0, 1.5, 1, 1.5)


def test_bookings_are_read_in_their_order_with_what_was_spent_by_then(ledger: StudyLedger) -> None:
    for trial in range(3):
        reserve(ledger, trial)
    for trial, usd in ((2, 1.0), (0, None), (1, 0.5)):
        book(ledger, trial, usd)

    assert [(entry.trial, entry.spent_usd) for entry in ledger.booked(0)] == [(2, 1.0), (0, 1.0), (1, 1.5)]
    assert [entry.trial for entry in ledger.booked(2)] == [1]
    assert ledger.running() == []


def test_another_search_under_the_same_name_is_refused_with_the_difference(ledger: StudyLedger) -> None:
    ledger.open("", described(job={"model": "a"}, search={"learning_rate": {"low": 1, "high": 2}}))
    expected = (
        r"study one was begun with another search space.*"
        r"\(search learning_rate: \{\"low\": 1, \"high\": 2\} then, \{\"low\": 1, \"high\": 3\} now\)"
    )
    with pytest.raises(BadInput, match=expected):
        ledger.open("", described(job={"model": "a"}, search={"learning_rate": {"low": 1, "high": 3}}))


def test_the_difference_is_said_however_long_the_rest_of_the_description_is(ledger: StudyLedger) -> None:
    job = {f"parameter_{number:02d}": "x" * 600 for number in range(12)}
    ledger.open("", described(job={**job, "seed": 1}))
    with pytest.raises(BadInput) as caught:
        ledger.open("", described(job={**job, "tags": {"team": "search"}}))
    assert str(caught.value).endswith('(job seed: 1 then, none now; job tags: none then, {"team": "search"} now)')

    with pytest.raises(BadInput) as caught:
        ledger.open("", described(job=dict.fromkeys(job, "y")))
    assert len(str(caught.value)) < 4000
    assert str(caught.value).endswith("; and 5 more)")


def described(**parts: dict[str, object]) -> str:
    return json.dumps({part: json.dumps(entries) for part, entries in parts.items()})


def test_studies_in_one_storage_have_books_of_their_own(ledger: StudyLedger, storage: str) -> None:
    other = StudyLedger(storage, "another study")
    reserve(ledger, 0, 5.0)
    assert other.balance() == Balance(spent_usd=0.0, committed_usd=0.0)
    assert reserve(other, 0, 1.0, budget_usd=1.0) is Reservation.GRANTED
    assert len(entries_of(ledger)) == len(entries_of(other)) == 1
    other.close()


@pytest.mark.parametrize("storage", ["sqlite:////nowhere/at/all.db", "postgresql://me:secret@127.0.0.1:1/none"])
def test_a_storage_that_does_not_answer_is_named_without_its_password(storage: str) -> None:
    with pytest.raises(BadInput, match=r"cannot be used \(\S+.*\): check address") as caught:
        StudyLedger(storage, "one")
    assert "secret" not in str(caught.value)


def test_the_first_line_of_what_a_storage_says_is_repeated_or_else_the_kind_of_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BadInput, match=r"cannot be used \(.*unable to open database file\): check address"):
        StudyLedger("sqlite:////nowhere/at/all.db", "one")

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionResetError

    monkeypatch.setattr("paretune.ledger.ledger.sa.create_engine", refuse)
    with pytest.raises(BadInput, match=r"cannot be used \(ConnectionResetError\): check address"):
        StudyLedger("sqlite:////nowhere/at/all.db", "one")


def test_a_storage_that_is_lost_later_or_has_the_same_trial_already_is_lost_contact(
    ledger: StudyLedger, storage: str
) -> None:
    reserve(ledger, 0)
    with pytest.raises(LostContact, match=r"another process has written the same \(.*\): the same command continues"):
        reserve(ledger, 0)

    ledger.close()
    Path(storage.removeprefix("sqlite:///")).write_bytes(b"no database" * 100)
    with pytest.raises(LostContact, match=r"does not answer \(.*file is not a database\): the same command"):
        ledger.balance()


def test_from_the_first_statement_of_a_transaction_others_cannot_write_and_wait_up_to_a_minute(
    ledger: StudyLedger, storage: str
) -> None:
    answers = []

    def try_to_write(connection: Connection, *_: object) -> None:
        answers.append(connection.connection.cursor().execute("PRAGMA busy_timeout").fetchone()[0])
        with contextlib.closing(sqlite3.connect(storage.removeprefix("sqlite:///"), timeout=0)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                answers.append(str(error))

    event.listen(ledger._engine, "after_cursor_execute", try_to_write)
    try:
        ledger.balance()
    finally:
        event.remove(ledger._engine, "after_cursor_execute", try_to_write)

    assert len(answers) >= 4
    assert set(answers) == {60_000, "database is locked"}
    assert answers.count(60_000) == answers.count("database is locked")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    missing = postgresql.what_is_missing()
    if missing:
        pytest.skip(missing)
    with postgresql.server() as address:
        yield address


def test_on_postgresql_the_study_s_row_is_locked_from_the_first_statement_of_a_transaction(server: str) -> None:
    ledger, other, answers = StudyLedger(server, "locked"), create_engine(with_driver(server)), []
    ledger.open("", "{}")

    def try_to_lock(*_: object) -> None:
        with other.connect() as second:
            try:
                second.execute(text("SELECT name FROM paretune_studies WHERE name = 'locked' FOR UPDATE NOWAIT"))
                answers.append("granted")
            except OperationalError as error:
                answers.append(type(error.orig).__name__)

    event.listen(ledger._engine, "after_cursor_execute", try_to_lock)
    try:
        ledger.balance()
    finally:
        event.remove(ledger._engine, "after_cursor_execute", try_to_lock)
        ledger.close()
        other.dispose()
    assert answers == ["LockNotAvailable"] * 2


def test_a_connection_that_the_server_has_closed_is_opened_again(server: str) -> None:
    ledger, other = StudyLedger(server, "closed"), create_engine(with_driver(server))
    ledger.balance()
    with other.connect() as connection:
        mine = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        connection.execute(text(mine + " AND backend_type = 'client backend'")).all()
    assert ledger.balance() == Balance(spent_usd=0.0, committed_usd=0.0)
    ledger.close()
    other.dispose()


def test_a_closed_ledger_keeps_no_file_open_and_one_that_was_refused_neither(ledger: StudyLedger, storage: str) -> None:
    path = storage.removeprefix("sqlite:///")
    assert path in {file.path for file in psutil.Process().open_files()}
    ledger.close()
    assert path not in {file.path for file in psutil.Process().open_files()}

    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE paretune_schema SET version_num = '99'")
    with pytest.raises(BadInput, match="written by another version of paretune"):
        StudyLedger(storage, "one")
    assert path not in {file.path for file in psutil.Process().open_files()}


Deed = tuple[int, str, float]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    deeds=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["promise", "book"]), st.floats(0.0, 4.0)), min_size=5, max_size=40
    )
)
@pytest.mark.slow
def test_no_order_of_promises_and_bookings_exceeds_the_budget(tmp_path: Path, deeds: list[Deed]) -> None:
    storage = f"sqlite:///{tempfile.mkdtemp(dir=tmp_path)}/study.db"  # hypothesis repeats what `random` draws
    drivers = [StudyLedger(storage, "one") for _ in range(3)]
    running: dict[int, float] = {}
    spent, budget = 0.0, 10.0
    for number, (driver, deed, usd) in enumerate(deeds):
        ledger = drivers[driver]
        if deed == "promise":
            fits = spent + sum(running.values()) + usd <= budget + 1e-9
            try:
                reserve(ledger, number, usd, budget_usd=budget)
            except BudgetRefused:
                assert not fits
            else:
                assert fits
                running[number] = usd
        elif running:
            trial = min(running)
            paid = running.pop(trial) * (usd / 4.0)  # never more than its worst case
            book(ledger, trial, paid)
            spent += paid
        balance = drivers[0].balance()
        assert balance.spent_usd == pytest.approx(spent)
        assert balance.committed_usd == pytest.approx(sum(running.values()))
        assert balance.spent_usd + balance.committed_usd <= budget + 1e-6
    for ledger in drivers:
        ledger.close()


def _promise_and_book(storage: str, first: int, seed: int, budget: float, together: Any) -> None:
    source = random.Random(seed)
    ledger, running = StudyLedger(storage, "one"), {}
    together.wait(60)
    for trial in range(first, first + 25):
        worst = source.uniform(0.1, 2.0)
        try:
            reserve(ledger, trial, worst, budget_usd=budget)
            running[trial] = worst
        except BudgetRefused:
            pass
        balance = ledger.balance()
        assert balance.spent_usd + balance.committed_usd <= budget + 1e-6
        if running and source.random() < 0.6:
            booked = source.choice(sorted(running))
            book(ledger, booked, running.pop(booked) * source.random())
    for trial, worst in running.items():
        book(ledger, trial, worst)
    ledger.close()


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_drivers_at_the_same_time_together_keep_to_one_budget(storage: str, ledger: StudyLedger, kind: str) -> None:
    context: Any = multiprocessing.get_context("spawn")
    make = threading.Thread if kind == "threads" else context.Process
    together = threading.Barrier(3) if kind == "threads" else context.Barrier(3)
    drivers = [make(target=_promise_and_book, args=(storage, 100 * n, n, 30.0, together)) for n in range(3)]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join(120)

    entries, balance = entries_of(ledger), ledger.balance()
    assert balance.committed_usd == 0.0
    assert 0 < balance.spent_usd <= 30.0
    assert balance.spent_usd == pytest.approx(sum(entry.booked_usd or 0.0 for entry in entries))


def test_what_kept_instances_may_cost_stays_promised_until_it_is_booked_once(ledger: StudyLedger) -> None:
    reserve(ledger, 0, 3.0, budget_usd=4.0)
    book(ledger, 0, 0.5, kept_usd=2.0)
    assert ledger.balance() == Balance(spent_usd=0.5, committed_usd=2.0)
    with pytest.raises(BudgetRefused, match=r"0\.5 are spent and 2 promised"):
        reserve(ledger, 1, 2.0, budget_usd=4.0)

    ledger.book_kept(0, 0.25)
    ledger.book_kept(0, 0.25)

    assert ledger.balance() == Balance(spent_usd=0.75, committed_usd=0.0)
    assert [(entry.trial, entry.booked_usd) for entry in ledger.with_warm_pools()] == [(0, 0.75)]
    assert reserve(ledger, 1, 2.0, budget_usd=4.0) is Reservation.GRANTED
