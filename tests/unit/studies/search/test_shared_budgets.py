"""Studies against budgets that they share with others; a job costs 0.01 USD and 0.0117 at worst."""

from pathlib import Path

import pytest

from paretune.studies.search.driver import Driver
from tests.scripted_jobs import SECONDS, SMALL
from tests.scripted_study import Desk, searched

USD = SECONDS / 3600
BUDGETS = """budgets:
  - {name: all, usd_per_month: 100}
  - {name: nlp, usd_per_month: 0.04, tags: {team: nlp}}
"""


def driver_of(desk: Desk, name: str, team: str) -> Driver:
    job = {"instance_type": SMALL, "max_runtime_minutes": 0.7, "budget": "team.yaml", "tags": {"team": team}}
    return desk.driver(name=name, job=job, n_parallel=1)


@pytest.mark.slow
def test_a_study_ends_when_the_budget_of_its_team_is_full_and_names_it_while_others_go_on(desk: Desk) -> None:
    Path("team.yaml").write_text(BUDGETS)
    driver, other = driver_of(desk, "scripted", "nlp"), driver_of(desk, "of vision", "vision")
    reason = searched(driver)

    # Each of the first three leaves 0.01 less: 0.04, 0.03 and 0.02 cover the worst case, 0.01 does not.
    assert len(driver.trials) == 3
    assert "no untried point fits what is left of budget nlp: 0.01 of 0.04 USD left in 2027-01 (UTC)" in reason
    assert "the least one is 0.01167 USD: raise that budget" in reason
    assert searched(other) == "every point was tried"
    ledger = driver.workplace.budget_ledger("team.yaml")
    assert ledger is not None
    balances = [status.balance for status in ledger.statuses(driver.workplace.clock.now(), "measured")]
    assert [balance.spent_usd for balance in balances] == pytest.approx([7 * USD, 3 * USD])
    assert [balance.committed_usd for balance in balances] == [0.0, 0.0]
    other.finish()
    driver.finish()
