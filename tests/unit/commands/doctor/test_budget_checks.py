"""What doctor tells of budgets."""

from datetime import UTC, datetime
from pathlib import Path

from paretune.commands.doctor import DoctorRequest
from paretune.commands.doctor.checks import budget_findings
from paretune.core.checks import Verdict, run_check
from paretune.jobs.workplace import budget_ledger_of
from paretune.ledger.budget_file import BudgetFile
from paretune.ledger.budget_ledger import BudgetLedger, BudgetRequest
from tests.unit.launchers.sagemaker.conftest import nothing_of_this_machine

__all__ = ["nothing_of_this_machine"]


NOW = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
TEAM = "budgets: [{name: all, usd_per_month: 20}, {name: nlp, usd_per_month: 5, tags: {team: nlp}}]\n"


def profile(text: str = 'budget = "team.yaml"') -> dict[str, str]:
    """The variable that names a new profile; only the user's own may set a budget."""
    Path("own.toml").write_text(text)
    return {"PARETUNE_PROFILE": "own.toml"}


def test_what_is_left_of_each_budget_of_the_profile_is_told_and_a_full_one_is_wrong(workplace: Path) -> None:
    environment = {"PARETUNE_HOME": str(workplace / "home")}
    assert list(budget_findings(DoctorRequest.from_text({}, environment), environment, NOW)) == []

    Path("team.yaml").write_text(TEAM)
    environment |= profile()
    request = DoctorRequest.from_text({}, environment)
    accounts = BudgetLedger(BudgetFile.read("team.yaml"), f"sqlite:///{workplace / '.paretune' / 'studies.db'}")
    requests = {
        "worst_usd": 5.0,
        "tags": {"team": "nlp"},
        "origin": "measured",
        "now": NOW,
        "instance_type": "ml.g5.xlarge",
    }
    accounts.reserve(BudgetRequest(run_id="a", **requests))  # type: ignore[arg-type]
    every, nlp = budget_findings(request, environment, NOW)
    shared = {"PARETUNE_STORAGE": f"sqlite:///{workplace / 'shared.db'}"}  # has accounts of its own
    assert all("0.00 promised" in result.text for result in budget_findings(request, environment | shared, NOW))

    report = "budget all: 15.00 of 20 USD left in 2026-11 (UTC); 0.00 spent, 5.00 promised; every job"
    assert (every.verdict, every.text) == (Verdict.PASSED, report)
    assert nlp.verdict is Verdict.FAILED
    assert nlp.text.startswith("budget nlp: 0.00 of 5 USD left in 2026-11 (UTC); 0.00 spent, 5.00 promised; team=nlp: ")
    assert nlp.commands == ["paretune sync"]


def test_another_storage_than_that_of_the_month_is_wrong(workplace: Path) -> None:
    Path("team.yaml").write_text(TEAM)
    budget_ledger_of("team.yaml", {}).check_storage(NOW, "measured", claims=True)
    elsewhere = profile() | {"PARETUNE_STORAGE": f"sqlite:///{workplace / 'other.db'}"}
    request = DoctorRequest.from_text({}, elsewhere)
    (finding,) = run_check("budgets", lambda: budget_findings(request, elsewhere, NOW))

    assert finding.verdict is Verdict.FAILED
    assert "set `storage` in the file or PARETUNE_STORAGE back" in finding.text
