"""What a budget file may contain."""

from pathlib import Path

import pytest

from paretune.core.errors import BadInput
from paretune.ledger.budget_file import Budget, BudgetFile

TEAM = """
budgets:
  - {name: everything, usd_per_month: 2000}
  - {name: nlp, usd_per_month: 500, tags: {team: nlp}}
  - name: ana
    usd_per_month: 1e2
    tags: {user: ana, project: "007"}
"""


def write(folder: Path, text: str) -> str:
    path = folder / "team.yaml"
    path.write_text(text)
    return str(path)


def test_a_budget_covers_the_jobs_that_have_all_of_its_tags(tmp_path: Path) -> None:
    file = BudgetFile.read(write(tmp_path, TEAM))

    assert file.storage is None
    everything, nlp, ana = file.budgets
    assert ana == Budget(name="ana", usd_per_month=100.0, tags={"user": "ana", "project": "007"})
    assert everything.covers({})
    assert nlp.covers({"team": "nlp", "user": "bob"})
    assert not ana.covers({"user": "ana"})


def test_a_file_with_a_second_name_is_refused_because_each_would_have_its_own_budget(tmp_path: Path) -> None:
    path = write(tmp_path, TEAM)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "team.yaml").hardlink_to(path)

    with pytest.raises(BadInput, match="has a second name"):
        BudgetFile.read(str(tmp_path / "elsewhere" / "team.yaml"))


def test_a_relative_sqlite_file_counts_from_the_folder_of_the_budgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    path = write(tmp_path, f"storage: sqlite:///accounts.db{TEAM}")
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert BudgetFile.read(path).storage == f"sqlite:///{tmp_path / 'accounts.db'}"
    assert BudgetFile.read("../team.yaml").storage == f"sqlite:///{tmp_path / 'accounts.db'}"


def test_all_faults_are_reported_at_once_each_with_its_line(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "storage: mysql://user:secret@host/db\n"
        "budget: 3\n"
        "budgets:\n"
        "  - {name: nlp, usd_per_month: plenty}\n"
        "  - {name: nlp, usd_per_month: -1, tag: {team: nlp}}\n"
        "  - {usd_per_month: .inf, tags: team}\n"
        "  - {name: [a], usd_per_month: 1, tags: {team: [a, b]}}\n"
        "  - 500\n",
    )

    with pytest.raises(BadInput) as caught:
        BudgetFile.read(path)

    expected = [
        ":1: storage must be sqlite:///FILE or postgresql://",
        ":2: unknown parameter budget: did you mean budgets?",
        ":4: budgets.0.usd_per_month must be a number at least 0, got 'plenty'",
        ":5: budgets.1.usd_per_month must be at least 0, got '-1'",
        ":5: unknown parameter budgets.1.tag: did you mean budgets.1.tags",
        ":6: .inf is not a number: write a number, or put text in quotes",
        ":6: budgets.2.tags must be a JSON object, got 'team'",
        ":6: name is missing",
        ":6: usd_per_month is missing",
        ":7: budgets.3.name must be text, got a",
        ":7: budgets.3.tags.team must be text, got a,b",
        ":8: budgets.4 must be a JSON object, got '500'",
    ]
    for fault, text in zip(caught.value.faults, expected, strict=True):
        assert text in fault
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("storage: sqlite:///x.db\n", "budgets is missing: a list such as"),
        (
            "budgets:\n  - {name: a, usd_per_month: 1}\n  - {name: a, usd_per_month: 1}\n",
            "team.yaml:3: there are two budgets a",
        ),
        ("", "is empty: it needs budgets"),
    ],
)
def test_what_is_no_file_of_budgets_is_refused(text: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        BudgetFile.read(write(tmp_path, text))

    assert fault in str(caught.value)
