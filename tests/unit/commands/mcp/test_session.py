"""Sessions: what is launched never costs more than their dollars."""

import contextlib
import random
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from paretune.commands.mcp.quotes import Quote, Quotes
from paretune.commands.mcp.session import Session
from paretune.core.errors import BadInput, BudgetRefused, ParetuneError


@dataclass
class Job:
    """A running job that is told how it ends."""

    document: Mapping[str, Any] | None = None

    def outcome(self) -> Mapping[str, Any] | None:
        return self.document

    def stop(self) -> None:
        self.document = {"error": {"message": "interrupted"}}

    def last_lines(self) -> list[str]:
        return []


def quote_of(usd: float, command: str = "main") -> Quote:
    return Quote(command=command, parameters={}, identity="", worst_case_usd=usd, priced_as_of="2026-09", expires=1e12)


def test_worst_cases_are_booked_until_a_job_says_what_it_has_cost() -> None:
    job = Job()
    session = Session(1.0, lambda *_: job)
    session.launch(quote_of(0.7))

    assert session.booked_usd() == 0.7
    with pytest.raises(BudgetRefused, match=r"may cost 0\.4 USD, and 0\.3 of the session's 1 USD"):
        session.launch(quote_of(0.4))
    job.document = {"metrics": {"cost_usd": 0.2}}
    assert session.booked_usd() == 0.2
    session.launch(quote_of(0.4))


def test_a_session_without_dollars_launches_nothing_that_is_free_either() -> None:
    with pytest.raises(BudgetRefused, match="this server launches nothing"):
        Session(0.0, lambda *_: Job()).launch(quote_of(0.0))


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"message": "failed"}},
        {"metrics": {}},
        {"metrics": None},
        {"metrics": {"cost_usd": float("nan")}},
        {"metrics": {"cost_usd": -5.0}},
        {"metrics": {"cost_usd": "0"}},
    ],
)
def test_a_job_that_does_not_say_what_it_has_cost_stays_booked_at_its_worst_case(document: Mapping[str, Any]) -> None:
    session = Session(1.0, lambda *_: Job(document))
    session.launch(quote_of(0.7))

    assert session.booked_usd() == 0.7


def test_what_a_study_has_promised_counts() -> None:
    session = Session(9.0, lambda *_: Job({"spent_usd": 2.0, "committed_usd": 1.5}))
    session.launch(quote_of(8.0, "study"))

    assert session.booked_usd() == 3.5


def test_a_quote_is_launched_once() -> None:
    started: list[str] = []
    session = Session(1.0, lambda _, name: started.append(name) or Job())
    quote = quote_of(0.3)

    assert session.launch(quote) is session.launch(quote)
    assert started == ["main-1"]


def test_what_could_not_be_begun_is_not_tried_again_and_stays_booked() -> None:
    def fail(_: Quote, __: str) -> Job:
        raise OSError("no processes left")

    session, quote = Session(1.0, fail), quote_of(0.3)
    with pytest.raises(OSError, match="no processes"):
        session.launch(quote)

    assert session.booked_usd() == 0.3
    with pytest.raises(BadInput, match="was tried before"):
        session.launch(quote)


def test_ten_thousand_hostile_calls_from_eight_threads_never_overspend() -> None:
    # Calls replay, forge, race and ask for anything; jobs end at random and cost at most their worst case. The bill is
    # kept here, not by the session: what ended jobs have cost, and the worst cases of those that run.
    budget, lock, bill = 25.0, threading.Lock(), dict[str, float]()
    jobs: list[tuple[str, Job, float]] = []

    def begin(quote: Quote, name: str) -> Job:
        job = Job()
        with lock:
            assert name not in bill
            bill[name] = quote.worst_case_usd
            jobs.append((name, job, quote.worst_case_usd))
        return job

    session, quotes = Session(budget, begin), Quotes()
    good = [quotes.signed(quote_of(random.Random(n).uniform(0.0, 6.0))) for n in range(400)]

    def attack(seed: int) -> None:
        draw = random.Random(seed)
        text = draw.choice(good)
        match draw.randrange(4):
            case 0:
                text = text[::-1]
            case 1:
                text = Quotes().signed(quote_of(0.0))
            case 2 if jobs:
                name, job, worst = draw.choice(jobs)
                with lock:
                    if job.document is None:
                        cost = draw.uniform(0.0, worst)
                        bill[name] = cost
                        job.document = {"metrics": {"cost_usd": cost}}
        with contextlib.suppress(ParetuneError):
            session.launch(quotes.read(text, now=0.0))
        with lock:
            assert sum(bill.values()) <= budget + 1e-9

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(attack, range(10_000)))

    assert len(bill) > 5  # or the attack was none
    assert sum(bill.values()) <= budget + 1e-9
