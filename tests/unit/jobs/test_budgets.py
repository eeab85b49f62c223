"""One job and the budgets that it shares: reserved before it is created, recorded when it has ended."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.cli import main
from paretune.core.errors import BadInput, BudgetRefused
from paretune.core.interruption import Interruption
from paretune.jobs.bill import Bill
from paretune.jobs.follow import Collected, Sync
from paretune.jobs.plan import draft, plan
from paretune.jobs.preview import JobPreview, preview
from paretune.jobs.record import JobRecord
from paretune.jobs.workplace import Workplace
from paretune.ledger.budget_ledger import BudgetStatus
from paretune.specification.job import JobSpec
from paretune.tracking.store import tracking_uri
from tests.support.tags import tags_of
from tests.support.users import User
from tests.support.workplaces import make_workplace, planned

TEAM = "budgets: [{name: all, usd_per_month: 20}, {name: nlp, usd_per_month: 5, tags: {team: nlp}}]\n"
NLP = {"tags": {"team": "nlp", "user": "ana"}, "budget": "team.yaml"}


class Payer(User):
    """Somebody whose jobs count against the budgets of team.yaml; a job costs 0.01 USD, and at most 1 USD."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "team.yaml").write_text(TEAM)
        self.home = folder / ".paretune"

    def spec(self, **changes: Any) -> JobSpec:
        return super().spec(**{**NLP, **changes})

    def standing(self, name: str = "nlp", origin: str = "measured") -> BudgetStatus:
        accounts = self.place().budget_ledger("team.yaml")
        assert accounts is not None
        (statu,) = [status for status in accounts.statuses(self.clock.now(), origin) if status.budget.name == name]
        return statu


def reserve(spec: JobSpec, workplace: Workplace, run_id: str) -> None:
    """Reserve a job's worst case in the budgets."""
    workplace.reserve(draft(spec, workplace), run_id, "")


def dry_run(spec: JobSpec, workplace: Workplace) -> JobPreview:
    return preview(plan(spec, workplace), workplace)


@pytest.fixture
def payer(workplace: Path) -> Payer:
    return Payer(workplace)


def test_a_job_is_reserved_at_its_worst_case_while_it_runs_and_recorded_at_its_cost(payer: Payer) -> None:
    payer.is_killed()
    assert payer.standing().balance.committed_usd == pytest.approx(1.0)

    payer.type()  # adopts it: it is not reserved again
    balance = payer.standing().balance
    assert (balance.spent_usd, balance.committed_usd) == (pytest.approx(0.01), 0.0)
    assert len(payer.launcher.created) == 1


def test_another_storage_does_not_get_the_month_a_second_time(payer: Payer, tmp_path: Path) -> None:
    storages = [{"PARETUNE_STORAGE": f"sqlite:///{tmp_path / name}.db"} for name in ("one", "other")]
    places = [payer.place(), *(replace(payer.place(), environment=storage) for storage in storages)]
    for place in places[1:]:
        place.check_budgets(draft(payer.spec(), place))  # reserves nothing, so each may be the first
    reserve(payer.spec(max_runtime_minutes=240.0), places[1], "a run")
    for place in (places[0], places[2]):
        with pytest.raises(BudgetRefused, match=r"accounts of team.yaml for 20.* are in sqlite:///.*one.db, got"):
            reserve(payer.spec(), place, "other run")

    payer.clock.sleep(31 * 86_400)
    reserve(payer.spec(), places[2], "other run")


def test_a_job_on_this_machine_is_in_no_budget_for_nobody_bills_it(payer: Payer, tmp_path: Path) -> None:
    here = make_workplace(home=tmp_path / "home")
    assert here.budget_ledger("team.yaml") is None
    with pytest.raises(BadInput, match=r"nowhere\.yaml does not exist"):
        here.budget_ledger("nowhere.yaml")
    assert here.check_budgets(draft(JobSpec(budget="team.yaml", max_runtime_minutes=40000.0), here)) == []
    record = JobRecord(planned(JobSpec(budget="team.yaml"), here), here)
    record.describe(record.plan)
    here.reserve(record.plan, record.run.run_id, "paretune-x-1")
    record.run.flush()
    assert payer.standing("all").balance.committed_usd == 0.0
    assert "paretune.budget" not in record.run.tags()


def sync_all(payer: Payer) -> list[Collected]:
    workspace = payer.place()
    return Sync(
        workplace_at=lambda *_: workspace,
        tracking=workspace.tracking,
        interruption=Interruption(),
    ).run()


def test_sync_in_another_folder_records_against_the_same_budget_file_and_no_other_of_its_name(
    payer: Payer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payer.is_killed()
    custom, elsewhere = Path("team.yaml").resolve(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "team.yaml").write_text(TEAM)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_uri())
    monkeypatch.chdir(elsewhere)
    sync_all(payer)

    assert not (elsewhere / ".paretune").exists()
    monkeypatch.chdir(custom.parent)
    balance = payer.standing().balance
    assert (balance.spent_usd, balance.committed_usd) == (pytest.approx(0.01), 0.0)


def test_a_job_that_does_not_fit_is_refused_before_a_run_is_opened(payer: Payer) -> None:
    with pytest.raises(BudgetRefused, match=r"budget nlp \(5.00 USD a month, team.yaml\): worst case 6.00 USD"):
        payer.type(max_runtime_minutes=360.0)

    assert not payer.launcher.created
    assert not payer.client.search_runs(["0"])


def test_of_two_that_pass_the_first_look_only_one_that_fits_is_launched(
    payer: Payer, monkeypatch: pytest.MonkeyPatch
) -> None:
    payer.is_killed(max_runtime_minutes=270.0)  # 4.5 of 5 USD
    monkeypatch.setattr(Workplace, "check_budgets", lambda *_, **__: [])  # as if it had checked before the other one
    with pytest.raises(BudgetRefused, match=r"4\.50 USD reserved for running jobs"):
        payer.type(seed=7)

    assert len(payer.launcher.created) == 1
    (refused,) = payer.client.search_runs(["0"], "attributes.status = 'FAILED'")
    assert "budget nlp" in tags_of(refused)["paretune.failure_reason"]
    assert payer.standing().balance.committed_usd == pytest.approx(4.5)


def test_the_command_that_watches_a_running_job_is_not_refused_by_a_budget_that_is_full(payer: Payer) -> None:
    run_id = payer.is_killed(max_runtime_minutes=300.0)
    assert payer.standing().left_usd == 0.0

    assert payer.type(max_runtime_minutes=300.0).run_id == run_id


def test_kept_instances_stay_promised_until_they_are_recorded(payer: Payer) -> None:
    payer.launcher.keeps = True
    result = payer.type(sagemaker={"keep_alive_minutes": 60.0})
    balance = payer.standing().balance
    assert (balance.spent_usd, balance.committed_usd) == (0.0, pytest.approx(1.01))
    sync_all(payer)
    assert payer.standing().balance == balance

    workspace = payer.place()
    (run,) = workspace.tracking.runs(f"attributes.run_id = '{result.run_id}'")
    bill = Bill.of_run(run, workspace)
    assert bill.release_instances() == ""
    for _ in range(2):
        assert bill.record_pool(run, workspace)[0] == pytest.approx(9 / 3600)
    balance = payer.standing().balance
    assert (balance.spent_usd, balance.committed_usd) == (pytest.approx(0.01 + 9 / 3600), 0.0)


def test_a_storage_that_is_gone_refuses_a_job_and_leaves_the_worst_case_of_a_running_one(payer: Payer) -> None:
    payer.is_killed()
    home = Path(".paretune/studies.db")
    home.rename("away.db")
    home.mkdir()  # so that SQLite cannot open it
    result = payer.type()
    assert "sync" in tags_of(payer.client.get_run(result.run_id))["paretune.reserved"]
    assert any("stays reserved in its budgets until `paretune sync` records it" in text for text in result.remarks)
    with pytest.raises(Exception, match=r"studies\.db") as refused:
        payer.type(seed=7)
    assert isinstance(refused.value, BadInput)
    home.rmdir()
    Path("away.db").rename(home)

    assert payer.standing().balance.committed_usd == pytest.approx(1.0)
    message = sync_all(payer)
    assert payer.standing().balance.spent_usd == pytest.approx(0.01)
    assert tags_of(payer.client.get_run(result.run_id))["paretune.reserved"] == ""
    assert any(
        f"0.0100 USD recorded against the budgets of {Path('team.yaml').resolve()}" in entry.remark for entry in message
    )


def end_without_storage(payer: Payer) -> None:
    """End a job while the storage of its budgets is gone, so that its worst case stays reserved."""
    payer.is_killed()
    home = Path(".paretune/studies.db")
    home.rename("away.db")
    home.mkdir()  # so that SQLite cannot open it
    payer.type()
    home.rmdir()
    Path("away.db").rename(home)


def test_an_old_job_in_another_account_keeps_no_later_job_from_its_budgets(payer: Payer) -> None:
    payer.launcher.location_tags = lambda: {"account": "111111111111"}  # type: ignore[method-assign]
    old = payer.type(seed=7).run_id
    payer.client.set_tag(old, "paretune.account", "222222222222")
    assert sync_all(payer) == []
    end_without_storage(payer)

    (entry,) = sync_all(payer)

    assert entry.remark.startswith("0.0100 USD recorded against the budgets of ")
    assert payer.client.search_runs(["0"], "tags.`paretune.reserved` LIKE '_%'") == []
    assert payer.standing().balance.committed_usd == 0.0


def test_a_budget_file_that_was_moved_is_missed_only_if_a_job_has_a_reservation_in_it(payer: Payer) -> None:
    payer.type(seed=7)
    Path("team.yaml").rename("moved.yaml")
    assert sync_all(payer) == []

    Path("moved.yaml").rename("team.yaml")
    end_without_storage(payer)
    Path("team.yaml").rename("moved.yaml")

    (entry,) = sync_all(payer)
    assert entry.remark.startswith("its cost cannot be recorded in its budgets: ")
    assert "team.yaml" in entry.remark


def test_a_dry_run_says_what_is_left_of_each_budget_and_reserves_nothing(payer: Payer) -> None:
    payer.is_killed()
    output = dry_run(payer.spec(seed=7), payer.place()).document["budgets"]

    assert output == [
        "budget all: 19.00 USD of 20.00 USD left in 2027-01 (UTC), worst case 1.00 USD",
        "budget nlp: 4.00 USD of 5.00 USD left in 2027-01 (UTC), worst case 1.00 USD",
    ]
    assert payer.standing().balance.committed_usd == pytest.approx(1.0)
    with pytest.raises(BudgetRefused):
        dry_run(payer.spec(max_runtime_minutes=360.0), payer.place())


def test_every_run_says_whose_job_it_is(payer: Payer) -> None:
    mine = tags_of(payer.client.get_run(payer.type().run_id))
    assert (mine["paretune.user"], mine["paretune.team"]) == ("ana", "nlp")
    assert mine["paretune.budget"] == str(Path("team.yaml").resolve())
    assert "paretune.study" not in mine
    (name,) = payer.launcher.created
    assert payer.launcher.jobs[name].order.owner.aws_tags() == {
        "paretune:user": "ana",
        "paretune:team": "nlp",
    }
    assert "owner" not in payer.launcher.jobs[name].order.as_json()


def test_a_simulated_job_from_the_command_line_counts_in_the_account_of_simulated_jobs_alone(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "team.yaml").write_text(TEAM)
    (workplace / "own.toml").write_text('budget = "team.yaml"\ntags = {team = "nlp", user = "ana"}\n')
    monkeypatch.setenv("PARETUNE_PROFILE", "own.toml")
    words = ["--launcher", "simulated", "--instance_type", "ml.g5.xlarge", "--max_train_samples", "4000"]

    assert main(["train", *words]) == 0
    (run,) = MlflowClient().search_runs(["0"])
    assert (tags_of(run)["paretune.user"], tags_of(run)["paretune.team"]) == ("ana", "nlp")
    capsys.readouterr()
    assert main(["train", *words, "--dry_run", "true"]) == 0
    assert (
        f"budget nlp of simulated jobs: {5 - run.data.metrics['cost_usd']:.2f} USD of 5.00 USD"
        in capsys.readouterr().out
    )
    assert main(["train", *words, "--max_runtime_minutes", "600"]) == 4
    assert "budget nlp of simulated jobs (5.00 USD a month, team.yaml): worst case" in capsys.readouterr().err


def test_a_refusal_names_the_instance_type_without_a_price(payer: Payer) -> None:
    with pytest.raises(BudgetRefused) as refused:
        payer.type(fallback_instance_types=("ml.p3.2xlarge",))  # the first type has a price

    assert str(refused.value).startswith("the price of ml.p3.2xlarge in us-east-1 is not known")
    assert "ml.g5.xlarge" not in str(refused.value)
