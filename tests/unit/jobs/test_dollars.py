"""Dollars look the same on a page, in a refusal, in a budget, and in the remark and the name of a run."""

import re
from pathlib import Path

import pytest

from paretune.core.errors import BudgetRefused
from paretune.jobs.plan import plan
from paretune.jobs.preview import preview
from tests.support.scripted_jobs import PRICES, SECONDS, SMALL
from tests.support.users import User

TEAM = "budgets: [{name: all, usd_per_month: 10000}]\n"


@pytest.mark.parametrize(("usd", "shown"), [(12_345.68, "12,345.68 USD"), (0.00123, "0.00123 USD")])
def test_a_job_s_dollars_look_the_same_on_a_page_in_a_refusal_and_in_a_remark(
    usd: float, shown: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRICES, SMALL, usd * 3600 / SECONDS)
    (workplace / "team.yaml").write_text(TEAM)
    user, minutes = User(workplace), {"max_runtime_minutes": SECONDS / 60}

    place = user.place()
    page = str(preview(plan(user.spec(**minutes), place), place))
    with pytest.raises(BudgetRefused) as refused:
        user.type(**minutes, max_cost_usd=usd / 2)
    outcome = user.type(max_runtime_minutes=SECONDS / 60 / 2)

    assert f"{shown}; the job is stopped after" in page
    assert f"worst case {shown} (36.0 s and 0 s to stop and upload" in str(refused.value)
    assert f"must be at most max_cost_usd, {half(shown)}: " in str(refused.value)
    assert outcome.summary()["cost"].startswith(f"{shown} (")
    assert f"it cost {shown}, {half(shown)} more than its worst case" in " ".join(outcome.remarks)
    run = user.client.get_run(outcome.run_id)
    assert run.info.run_name == f"train.py: F1 .750, {shown}"
    assert shown in run.data.tags["mlflow.note.content"]
    if usd > 1:
        with pytest.raises(BudgetRefused, match=rf"10,000.00 USD a month, team.yaml\): worst case {re.escape(shown)} "):
            user.type(**minutes, budget="team.yaml")


def half(shown: str) -> str:
    """Return half of the dollars, written like them."""
    return {"12,345.68 USD": "6,172.84 USD", "0.00123 USD": "0.000615 USD"}[shown]
