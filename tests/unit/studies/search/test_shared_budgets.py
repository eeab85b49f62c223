"""Studies against budgets that they share with others; a job costs 0.01 USD and 0.0117 at worst."""

from pathlib import Path

import pytest

from paretune.ledger.budget_ledger import BudgetLedger
from paretune.studies.search.driver import Driver
from tests.scripted_jobs import SECONDS, SMALL
from tests.scripted_study import Desk, searched

USD = SECONDS / 3600
BUDGETS = (
    "budgets:\n  - {{name: all, usd_per_month: {all}}}\n  - {{name: nlp, usd_per_month: {nlp}, tags: {{team: nlp}}}}\n"
)


def team(*, nlp: float, everything: float = 100.0, storage: str = "") -> None:
    Path("team.yaml").write_text(storage + BUDGETS.format(all=everything, nlp=nlp))


def driver_of(desk: Desk, name: str = "scripted", custom: str = "nlp") -> Driver:
    job = {"instance_type": SMALL, "max_runtime_minutes": 0.7, "budget": "team.yaml", "tags": f'{{"team": "{custom}"}}'}
    return desk.driver(name=name, job=job, n_parallel=1)


def budget_ledger_of(driver: Driver) -> BudgetLedger:
    accounts = driver.workplace.budget_ledger("team.yaml")
    assert accounts is not None
    return accounts


def balances(driver: Driver) -> dict[str, tuple[float, float]]:
    result = budget_ledger_of(driver).statuses(driver.workplace.clock.now(), "measured")
    return {
        item.budget.name: (round(item.balance.spent_usd, 6), round(item.balance.committed_usd, 6)) for item in result
    }


@pytest.mark.slow
def test_a_study_ends_when_the_budget_of_its_team_is_full_and_names_it_while_others_go_on(desk: Desk) -> None:
    team(nlp=0.04)
    driver = driver_of(desk)
    reason = searched(driver)

    # Each of the first three leaves 0.01 less: 0.04, 0.03 and 0.02 cover the worst case, 0.01 does not.
    assert len(driver.trials) == 3
    assert "no untried point fits what is left of budget nlp: 0.01 of 0.04 USD left in 2027-01 (UTC)" in reason
    assert "the least one is 0.01167 USD: raise that budget" in reason
    other = driver_of(desk, "of vision", "vision")
    assert searched(other) == "every point was tried"
    assert balances(driver) == {"all": (round(7 * USD, 6), 0.0), "nlp": (round(3 * USD, 6), 0.0)}
    other.finish()
    driver.finish()
