"""Studies against budgets that they share with others."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.studies.search.driver import Driver
from tests.support.scripted_jobs import SECONDS, SMALL
from tests.support.scripted_study import Desk, searched
from tests.support.tags import tags_of

STUDY = """
name: two rates
job: {launcher: simulated, instance_type: ml.g5.xlarge, max_train_samples: 2000}
search: {learning_rate: {choices: [1e-5, 3e-5]}}
objectives: {cost_usd: minimize, job_seconds: minimize}
sampler: grid
"""
PROFILE = 'budget = "team.yaml"\ntags = {team = "nlp", user = "ana"}\n'


def budgets(usd: float) -> None:
    Path("team.yaml").write_text(f"budgets: [{{name: nlp, usd_per_month: {usd}, tags: {{team: nlp}}}}]\n")


def tags_of_trials() -> set[tuple[str | None, ...]]:
    names = ("paretune.study", "paretune.user", "paretune.team")
    runs = MlflowClient().search_runs(["0"], "tags.`paretune.trial` LIKE '%'")
    return {tuple(tags_of(run).get(name) for name in names) for run in runs}


def test_a_study_takes_the_budget_of_the_profile_and_goes_on_when_that_is_raised_or_gone(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARETUNE_PROFILE", "own.toml")
    Path("study.yaml").write_text(STUDY)
    Path("own.toml").write_text(f"{PROFILE}max_cost_usd = 5.0\n")
    budgets(0.01)
    words = ["study", "--study", "study.yaml", "--max_runtime_minutes", "30"]
    assert main(words) == 4
    output = capsys.readouterr().err
    assert "nothing was launched: no " in output
    assert "the same command continues" not in output  # because it would be refused again
    assert "fits what is left of budget nlp of simulated jobs: 0.0100 USD of 0.0100 USD left in" in output
    assert "paretune.toml: a study file ignores max_cost_usd; put it under `job`" in output

    budgets(10)
    assert main(words) == 0
    assert tags_of_trials() == {("two rates", "ana", "nlp")}
    capsys.readouterr()
    monkeypatch.delenv("PARETUNE_PROFILE")
    assert main(words) == 0  # a study is identified without its budget
    assert "every point was tried" in capsys.readouterr().out


def test_a_search_within_a_budget_that_pays_no_job_says_what_to_change(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("runs.csv").write_text(
        "instance_type,rate,billable_seconds,score\nml.g5.xlarge,1,900,0.8\nml.g5.xlarge,2,900,0.9\n"
    )
    Path("train.py").write_text("p.add_argument('--rate')\n")
    Path("study.yaml").write_text("""
name: too dear
job: {entry_script: train.py, launcher: simulated, simulation.runs: runs.csv, instance_type: ml.g5.xlarge}
search: {rate: {choices: [1, 2]}}
objectives: {cost_usd: minimize, score: maximize}
budget_usd: 0.06
""")
    assert main(["study", "study.yaml"]) == 4

    output = capsys.readouterr().err
    assert "no job's worst case fits the budget (0.0600 USD): a job that is stopped after 30.0 s" in output
    assert "raise the budget" in output


def test_a_study_of_jobs_that_max_cost_usd_refuses_is_refused_without_a_budget_too_and_names_types_without_a_price(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    types = "search: {instance_type: {choices: [ml.g5.xlarge, ml.g7.2xlarge]}, "
    Path("study.yaml").write_text(STUDY.replace("instance_type: ml.g5.xlarge, ", "").replace("search: {", types))
    assert main(["study", "study.yaml", "--max_cost_usd", "0.001"]) == 4

    output = capsys.readouterr().err
    assert "nothing was launched: no remaining point's worst case fits max_cost_usd: raise it" in output
    assert "the price of ml.g7.2xlarge in us-east-1 is not known, so max_cost_usd cannot be enforced" in output


USD = SECONDS / 3600  # of a job, and 0.0117 at worst
TEAM = """budgets:
  - {name: all, usd_per_month: 100}
  - {name: nlp, usd_per_month: 0.04, tags: {team: nlp}}
"""


def driver_of(desk: Desk, name: str, team: str) -> Driver:
    job = {"instance_type": SMALL, "max_runtime_minutes": 0.7, "budget": "team.yaml", "tags": {"team": team}}
    return desk.driver(name=name, job=job, n_parallel=1)


@pytest.mark.slow
def test_a_study_ends_when_the_budget_of_its_team_is_full_and_names_it_while_others_go_on(desk: Desk) -> None:
    Path("team.yaml").write_text(TEAM)
    driver, other = driver_of(desk, "scripted", "nlp"), driver_of(desk, "of vision", "vision")
    reason = searched(driver)

    # Each of the first three jobs leaves 0.01 less: 0.04, 0.03 and 0.02 cover the worst case, and 0.01 does not.
    assert len(driver.trials) == 3
    assert (
        "no remaining point's worst case fits what is left of budget nlp: 0.0100 USD of 0.0400 USD left in 2027-01"
        in reason
    )
    assert searched(other) == "every point was tried"
    ledger = driver.workplace.budget_ledger("team.yaml")
    assert ledger is not None
    balances = [status.balance for status in ledger.statuses(driver.workplace.clock.now(), "measured")]
    assert [balance.spent_usd for balance in balances] == pytest.approx([7 * USD, 3 * USD])
    assert [balance.committed_usd for balance in balances] == [0.0, 0.0]
    other.finish()
    driver.finish()


def test_a_study_goes_on_with_the_remedies_that_it_names(workplace: Path) -> None:
    Path("study.yaml").write_text(STUDY)
    words = ["study", "--study", "study.yaml"]
    assert main(words) == 0
    before = len(MlflowClient().search_runs(["0"]))

    assert main([*words, "--force", "limit", "--max_cost_usd", "50", "--register", "mine"]) == 0
    assert len(MlflowClient().search_runs(["0"])) == before
