"""An upgrade of paretune in the middle of a month: its ledgers and the jobs that run are those of the version before.

`upgrades/` has a ledger and the run of a job whose launching process was killed, both written by version 0.6.0.
"""

import json
import sqlite3
from pathlib import Path

import pytest

from paretune.core.interruption import Interruption
from paretune.jobs.follow import Sync, running_jobs
from paretune.jobs.workplace import Workplace
from paretune.launchers.offers import order_of
from paretune.ledger.budget_ledger import BudgetLedger
from tests.support.scripted_jobs import DONE, ScriptedJob
from tests.support.users import User

STORED = Path(__file__).parent / "upgrades"
BUDGET = "budgets: [{name: everything, usd_per_month: 3.5}]\n"
COST_USD = 0.01  # of a scripted job


def ledger_of_0_5(text: str) -> str:
    """Return the dump of a ledger as version 0.5 wrote it, which called the recorded cost differently."""
    return text.replace("recorded_usd", "booked_usd")


class Upgraded(User):
    """A user who upgraded paretune while a job ran. Its run and its reservation are those of the old version."""

    def __init__(self, folder: Path, *, version: str) -> None:
        super().__init__(folder)
        self.script = Path("code/train.py")
        (folder / "code").mkdir()
        (folder / self.script).touch()
        (folder / "team.yaml").write_text(BUDGET)
        stored = json.loads((STORED / "job-0.6.json").read_text().replace("FOLDER", str(folder)))
        created = self.client.create_run("0", tags=stored["tags"], run_name=stored["name"])
        self.run_id = created.info.run_id
        self.client.set_tag(self.run_id, "paretune.given", stored["tags"]["paretune.given"])
        for name, text in stored["params"].items():
            self.client.log_param(self.run_id, name, text)
        dump = (STORED / "ledger-0.6.sql").read_text().replace("'RUN'", f"'{self.run_id}'")
        (folder / ".paretune").mkdir()
        with sqlite3.connect(folder / ".paretune" / "studies.db") as connection:
            connection.executescript(ledger_of_0_5(dump) if version == "0.5" else dump)
        name = stored["tags"]["paretune.job_name"]
        order = order_of(self.spec(budget="team.yaml"), job_name=name, run_id=self.run_id)
        self.launcher.jobs[name] = ScriptedJob(name, order, DONE)

    def ledger(self, place: Workplace) -> BudgetLedger:
        ledger = place.budget_ledger("team.yaml")
        assert ledger is not None
        return ledger

    def balance(self) -> tuple[float, float]:
        place = self.place()
        (status,) = self.ledger(place).statuses(self.clock.now(), "measured")
        return round(status.balance.spent_usd, 6), round(status.balance.committed_usd, 6)


@pytest.fixture(params=["0.5", "0.6"])
def user(request: pytest.FixtureRequest, workplace: Path) -> Upgraded:
    return Upgraded(workplace, version=request.param)


def test_a_job_that_ran_during_the_upgrade_is_followed_and_recorded_in_the_budget_of_the_old_version(
    user: Upgraded,
) -> None:
    assert user.balance() == (0.02, 1.0)
    place = user.place()
    (row,) = running_jobs(place.tracking, lambda *_: place)
    assert (row["run_id"], row["remark"]) == (user.run_id, "")

    place = user.place()
    (collected,) = Sync(workplace_at=lambda *_: place, tracking=place.tracking, interruption=Interruption()).run()

    assert collected.result is not None
    assert collected.result.metrics["cost_usd"] == pytest.approx(COST_USD)
    assert user.balance() == (0.03, 0.0)
    assert user.launcher.created == []


def test_the_same_command_follows_a_job_of_the_old_version_and_pays_no_second_one(user: Upgraded) -> None:
    assert user.type(budget="team.yaml").run_id == user.run_id
    assert user.launcher.created == []
    assert user.balance() == (0.03, 0.0)


def test_new_jobs_count_against_the_budget_together_with_those_of_the_old_version(user: Upgraded) -> None:
    assert user.type(budget="team.yaml", instance_count=2).run_id != user.run_id
    assert user.balance() == (0.04, 1.0)
    (reserved,) = user.ledger(user.place()).reservations()
    assert (reserved.run_id, reserved.job) == (user.run_id, None)


def test_a_ledger_of_this_version_is_used_by_version_0_6_as_before(user: Upgraded) -> None:
    user.balance()  # opens it

    with sqlite3.connect(".paretune/studies.db") as connection:
        insert = "insert into paretune_reservations (run_id, month, origin, tags, worst_usd, reserved_at) values "
        connection.execute(insert + "('c', '2027-01', 'measured', '{}', 0.5, 1800000000.0)")

    assert user.balance() == (0.02, 1.5)
