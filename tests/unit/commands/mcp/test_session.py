"""Sessions: what is launched never costs more than their dollars, however many servers there are."""

import contextlib
import random
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from paretune.commands.mcp.quotes import Quote, Quotes
from paretune.commands.mcp.session import Session
from paretune.core.errors import BadInput, BudgetRefused, ParetuneError
from paretune.ledger.study_ledger import StudyLedger


class Job:
    """A running job that is told how it ends."""

    def __init__(self) -> None:
        self.document: Mapping[str, Any] | None = None

    def outcome(self) -> Mapping[str, Any] | None:
        return self.document

    def stop(self) -> None:
        self.document = {"error": {"message": "interrupted"}}

    def last_lines(self) -> list[str]:
        return []


class Machine:
    """A machine on which servers are started: its storage and its processes outlive them."""

    def __init__(self, folder: Path) -> None:
        self.storage = f"sqlite:///{folder / 'studies.db'}"
        self.jobs: dict[str, Job] = {}
        self.lock = threading.Lock()

    def server(self, budget_usd: float, session: str = "default") -> Session:
        return Session(
            session,
            budget_usd,
            open_ledger=lambda name: StudyLedger(self.storage, name),
            start=self.start,
            command=lambda name: self.jobs.setdefault(name, Job()),
        )

    def start(self, quote: Quote, name: str) -> None:
        with self.lock:
            assert name not in self.jobs
            self.jobs[name] = Job()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def quote_of(usd: float, command: str = "main") -> Quote:
    return Quote(command=command, parameters={}, identity="", worst_case_usd=usd, priced_as_of="2026-09", expires=1e12)


def booked_usd(session: Session) -> float:
    balance = session.balance()
    return balance.spent_usd + balance.committed_usd


def test_worst_cases_are_booked_until_a_job_says_what_it_has_cost(machine: Machine) -> None:
    session = machine.server(1.0)
    name = session.launch(quote_of(0.7)).name

    assert booked_usd(session) == 0.7
    with pytest.raises(
        BudgetRefused, match=r"worst case 0\.4 USD does not fit: of 1 USD 0 are spent and 0\.7 promised"
    ):
        session.launch(quote_of(0.4))
    machine.jobs[name].document = {"metrics": {"cost_usd": 0.2}}
    assert booked_usd(session) == 0.2
    session.launch(quote_of(0.4))


def test_a_server_that_is_started_again_and_one_beside_it_share_the_budget(machine: Machine) -> None:
    first = machine.server(1.0)
    name = first.launch(quote_of(0.7)).name
    beside = machine.server(1.0)

    with pytest.raises(BudgetRefused, match="--session"):
        beside.launch(quote_of(0.4))
    machine.jobs[name].document = {"metrics": {"cost_usd": 0.5}}
    again = machine.server(1.0)
    assert again.find(name).entry.booked_usd == 0.5
    again.launch(quote_of(0.4))
    with pytest.raises(BudgetRefused):
        first.launch(quote_of(0.2))


def test_another_session_has_its_own_dollars(machine: Machine) -> None:
    machine.server(1.0).launch(quote_of(0.7))

    machine.server(1.0, "tomorrow").launch(quote_of(0.7))


def test_a_session_without_dollars_launches_nothing_that_is_free_either(machine: Machine) -> None:
    with pytest.raises(BudgetRefused, match="this server launches nothing"):
        machine.server(0.0).launch(quote_of(0.0))


@pytest.mark.parametrize(
    ("document", "usd"),
    [
        ({"error": {"message": "failed"}}, 0.7),
        ({"metrics": {}}, 0.7),
        ({"metrics": None}, 0.7),
        ({"metrics": {"cost_usd": float("nan")}}, 0.7),
        ({"metrics": {"cost_usd": -5.0}}, 0.7),
        ({"metrics": {"cost_usd": "0"}}, 0.7),
        ({"metrics": {"cost_usd": 0.1}, "kept_usd": None}, 0.1),
        ({"metrics": {"cost_usd": 0.1}, "kept_usd": 0.25}, 0.35),  # instances kept after the job are billed, too
        ({"metrics": {"cost_usd": 0.1}, "kept_usd": "none"}, 0.7),
    ],
)
def test_a_job_that_does_not_say_what_it_has_cost_stays_booked_at_its_worst_case(
    machine: Machine, document: Mapping[str, Any], usd: float
) -> None:
    session = machine.server(1.0)
    machine.jobs[session.launch(quote_of(0.7)).name].document = document

    assert booked_usd(session) == usd


def test_what_a_study_has_promised_counts(machine: Machine) -> None:
    session = machine.server(9.0)
    machine.jobs[session.launch(quote_of(8.0, "study")).name].document = {"spent_usd": 2.0, "committed_usd": 1.5}

    assert booked_usd(session) == 3.5


def test_a_quote_is_launched_once(machine: Machine) -> None:
    session, quote = machine.server(1.0), quote_of(0.3)

    assert session.launch(quote).name == session.launch(quote).name
    assert len(machine.jobs) == 1


def test_what_could_not_be_begun_is_not_tried_again_and_stays_booked(machine: Machine) -> None:
    def fail(_: Quote, __: str) -> None:
        raise OSError("no processes left")

    machine.start = fail  # type: ignore[method-assign]
    session, quote = machine.server(1.0), quote_of(0.3)
    with pytest.raises(OSError, match="no processes"):
        session.launch(quote)

    assert booked_usd(session) == 0.3
    assert session.launch(quote).entry.end is not None


def test_what_was_never_launched_is_not_found(machine: Machine) -> None:
    with pytest.raises(BadInput, match="nothing was launched as main-9: nothing was launched yet"):
        machine.server(1.0).find("main-9")


def test_four_hundred_hostile_calls_to_two_servers_never_overspend(machine: Machine) -> None:
    # Calls replay, forge, race and ask for anything; jobs end at random and cost at most their worst case. The bill is
    # kept here, not by the sessions: what ended jobs have cost, and the worst cases of those that run.
    budget, bill = 25.0, dict[str, float]()

    def begin(quote: Quote, name: str) -> None:
        with machine.lock:
            assert name not in bill
            bill[name] = quote.worst_case_usd

    machine.start = begin  # type: ignore[method-assign]
    sessions, quotes = [machine.server(budget), machine.server(budget)], Quotes()
    good = [quotes.signed(quote_of(random.Random(n).uniform(0.0, 6.0))) for n in range(400)]

    def attack(seed: int) -> None:
        draw = random.Random(seed)
        text = draw.choice(good)
        match draw.randrange(40):
            case 0 if bill:
                with machine.lock:
                    name = draw.choice([*bill])
                    job = machine.jobs.setdefault(name, Job())
                    if job.document is None:
                        bill[name] = draw.uniform(0.0, bill[name])
                        job.document = {"metrics": {"cost_usd": bill[name]}}
            case number if number < 19:
                text = text[::-1]
            case number if number < 36:
                text = Quotes().signed(quote_of(0.0))
        with contextlib.suppress(ParetuneError):
            draw.choice(sessions).launch(quotes.read(text, now=0.0))
        with machine.lock:
            assert sum(bill.values()) <= budget + 1e-9

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(attack, range(400)))

    assert len(bill) > 5  # or the attack was none
    assert sum(bill.values()) <= budget + 1e-9
