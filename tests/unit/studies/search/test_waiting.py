"""A second driver of a study, while the first one has reserved the dollars."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paretune.core.errors import Interrupted
from paretune.studies.search import waiting
from paretune.studies.search.driver import Driver
from paretune.studies.search.joint import search
from paretune.studies.search.waiting import wait_for_others
from paretune.tracking import Tracking
from tests.scripted_study import RATES, Desk
from tests.unit.jobs.test_retrying_job import SECONDS, SMALL, Clock

USD = SECONDS / 3600  # of each job, at one dollar an hour
WORST = 0.1  # of six minutes


class SharedClock(Clock):
    """While one process sleeps, another one may work."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.meanwhile()


@pytest.fixture
def desk(workplace: Path, tmp_path: Path) -> Iterator[Desk]:
    clock = SharedClock()
    made = Desk(tmp_path, clock, Tracking({}, clock))
    yield made
    made.close()


def two_drivers(desk: Desk, **terms: Any) -> tuple[Driver, Driver]:
    """One that has reserved a trial, and one that comes later; both live, on other machines."""
    first, second = desk.driver(**terms), desk.driver(**terms)
    first._owner, second._owner = "host-a 1 1", "host-b 1 1"
    for driver in (first, second):
        driver.ledger.heartbeat(driver._owner, desk.clock.now())
    assert first.start(first.study.ask_for({"learning_rate": RATES[0]}))
    return first, second


def test_a_second_driver_waits_while_the_first_holds_the_dollars_and_then_goes_on(desk: Desk) -> None:
    first, second = two_drivers(desk, budget_usd=WORST + USD)
    assert "no untried point fits what is left of the budget" in search(second)
    assert isinstance(desk.clock, SharedClock)
    desk.clock.meanwhile = first.poll

    assert wait_for_others(second, desk.said.append)

    assert desk.said[-1].startswith(f"host-a 1 1 has reserved {WORST:.4g} USD for 1 trials of the study that run")
    assert "for at most 21 minutes" in desk.said[-1]
    assert len(second.trials) == 1
    search(second)
    assert len(desk.launcher.created) > 1
    assert second.ledger.balance().spent_usd <= WORST + USD
    assert not wait_for_others(second, desk.said.append)  # nobody holds anything


def test_nothing_is_waited_for_where_no_job_would_fit_all_the_same(desk: Desk) -> None:
    first, second = two_drivers(desk)
    terms: dict[str, Any] = {"budget_usd": WORST - USD}
    poorer = desk.driver(**terms)
    poorer._owner = second._owner
    search(poorer)

    assert not wait_for_others(poorer, desk.said.append)
    assert not any("waiting" in text for text in desk.said)
    assert first.running


def test_a_study_that_ends_for_another_reason_than_dollars_does_not_wait_for_others(desk: Desk) -> None:
    first, second = two_drivers(desk, n_trials=2)
    second.start(second.study.ask_for({"learning_rate": RATES[1]}))
    while second.running:
        second.poll()
    assert search(second) == "2 trials were made"

    assert not wait_for_others(second, desk.said.append)
    assert first.running


def test_a_wait_is_bounded_by_the_longest_runtime_and_hears_an_interruption(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = two_drivers(desk, budget_usd=WORST + USD)
    search(second)
    began = desk.clock.now()
    assert isinstance(desk.clock, SharedClock)
    monkeypatch.setattr(waiting, "WATCH_INTERVAL_S", 20.0)
    desk.clock.meanwhile = lambda: second.ledger.heartbeat("host-a 1 1", desk.clock.now())

    assert not wait_for_others(second, desk.said.append)
    assert 20 * 60 < desk.clock.now() - began < 22 * 60

    desk.interruption.reason = "interrupted by SIGINT"
    with pytest.raises(Interrupted):
        wait_for_others(second, desk.said.append)


def test_the_trials_of_a_driver_that_dies_meanwhile_are_taken_over(desk: Desk) -> None:
    _, second = two_drivers(desk, budget_usd=WORST + USD)
    search(second)

    assert wait_for_others(second, desk.said.append)  # nothing is heard of the first one any more

    assert desk.said[-1] == "trial 0: taken over"
    assert [job.number for job in second.running] == [0]
    assert SMALL in {job.spec.instance_type for job in second.running}
