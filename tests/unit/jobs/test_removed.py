"""Jobs whose runs were deleted in MLflow, or removed from it for good, while the jobs ran and nobody watched them."""

import os
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import mlflow
import pytest
from mlflow.tracking._tracking_service.utils import _get_store

from paretune.core.errors import BadInput, LaunchRefused
from paretune.core.interruption import Interruption
from paretune.core.machine import user_here
from paretune.jobs.follow import Collected, Sync, find_run, lines_of, running_jobs, stop
from paretune.jobs.launch import begin_job
from paretune.jobs.plan import draft
from paretune.jobs.workplace import Workplace, Workplaces
from paretune.tracking.recorded_run import RecordedRun
from tests.support.scripted_jobs import DONE, ENDLESS
from tests.support.tags import tags_of
from tests.support.users import User

DEAD = "this-machine-restarted 4194304 1"  # a process on another machine, which nobody can ask
USD = 0.01  # cost of a scripted job, which runs for 36 seconds at 1 USD an hour


class Owner(User):
    """A user whose jobs count against a budget, in an experiment of their own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.experiment = mlflow.create_experiment("reviews")  # MLflow's default experiment cannot be deleted
        self.budget = folder / "team.yaml"
        self.budget.write_text("budgets: [{name: everything, usd_per_month: 100}]\n")

    def place(self, environment: Mapping[str, str] = MappingProxyType({})) -> Workplace:
        return super().place({**environment, "MLFLOW_EXPERIMENT_ID": self.experiment})

    def leaves(self, ending: str = DONE) -> str:
        """Launch a job, end its launching process, and return the id of its run."""
        self.launcher.endings = [ending, DONE]
        return self.is_killed(budget=str(self.budget), watched_by=DEAD)

    def types_again(self, **changes: Any) -> Any:
        return self.type(budget=str(self.budget), **changes)

    def balance(self) -> tuple[float, float]:
        """Return the dollars that are spent and reserved in the budget."""
        ledger = self.place().budget_ledger(str(self.budget))
        assert ledger is not None
        (status,) = ledger.statuses(self.clock.now(), "measured")
        return round(status.balance.spent_usd, 6), round(status.balance.committed_usd, 6)

    def status(self) -> list[dict[str, Any]]:
        place = self.place()
        return running_jobs(place.tracking, lambda *_: place, [str(self.budget)])

    def syncs(self) -> list[Collected]:
        place = self.place()
        at, interruption, budgets = (lambda *_: place), Interruption(), [str(self.budget)]
        return Sync(workplace_at=at, tracking=place.tracking, interruption=interruption, budgets=budgets).run()

    def finds(self, name: str) -> RecordedRun:
        place = self.place()
        return find_run(place.tracking, name, lambda *_: place, [str(self.budget)])

    def recorded(self, run_id: str) -> RecordedRun:
        """Return the run that has the record of the job for which the run `run_id` was opened."""
        run = self.place().tracking.recorder_of(run_id)
        assert run is not None
        return run


def delete_run(user: Owner, run_id: str) -> None:
    user.client.delete_run(run_id)


def delete_experiment(user: Owner, run_id: str) -> None:
    user.client.delete_experiment(user.experiment)
    user.experiment = mlflow.create_experiment("later")


def remove_for_good(user: Owner, run_id: str) -> None:
    user.client.delete_run(run_id)
    _get_store()._hard_delete_run(run_id)  # type: ignore[no-untyped-call]  # as `mlflow gc` does


each_deletion = pytest.mark.parametrize("delete", [delete_run, delete_experiment, remove_for_good])
Delete = Callable[[Owner, str], None]


@pytest.fixture
def user(workplace: Path) -> Owner:
    return Owner(workplace)


@each_deletion
def test_status_lists_a_job_whose_run_was_deleted_and_names_the_command_that_follows_it(
    user: Owner, delete: Delete
) -> None:
    run_id = user.leaves()
    job = user.job_of(run_id)
    delete(user, run_id)

    (row,) = user.status()

    assert (row["run_id"], row["job"]) == (run_id, job)
    assert row["cost_usd"] == pytest.approx(USD)
    assert row["worst_usd"] > 0.01
    assert "in MLflow" in row["remark"] or "from MLflow" in row["remark"]
    assert "`paretune sync`" in row["remark"]


@each_deletion
def test_sync_follows_a_job_whose_run_was_deleted_and_its_cost_replaces_the_worst_case(
    user: Owner, delete: Delete
) -> None:
    run_id = user.leaves()
    spent_usd, reserved_usd = user.balance()
    assert spent_usd == 0.0
    assert reserved_usd > 0.01
    delete(user, run_id)

    collected = user.syncs()

    assert user.balance() == (USD, 0.0)
    assert any(each.result is not None and each.result.has_completed for each in collected)
    assert any("MLflow" in each.remark for each in collected)
    run = user.recorded(run_id)
    assert (run.is_deleted, run.state) == (False, "Completed")
    assert run.cost_usd == pytest.approx(USD)
    assert user.syncs() == []
    assert user.status() == []
    assert len(user.launcher.created) == 1


@each_deletion
def test_the_same_command_follows_a_job_whose_run_was_deleted_and_pays_no_second_one(
    user: Owner, delete: Delete
) -> None:
    run_id = user.leaves()
    delete(user, run_id)

    outcome = user.types_again()

    assert len(user.launcher.created) == 1
    assert outcome.has_completed
    assert outcome.run_id == user.recorded(run_id).run_id
    assert user.balance() == (USD, 0.0)
    assert user.syncs() == []
    user.types_again()  # the job has ended and was shown
    assert len(user.launcher.created) == 2


@each_deletion
def test_stop_and_logs_find_a_job_whose_run_was_deleted_by_run_and_by_name(user: Owner, delete: Delete) -> None:
    run_id = user.leaves(ENDLESS)
    job = user.job_of(run_id)
    delete(user, run_id)
    place = user.place()

    for name in (run_id, run_id[:8], job):
        assert lines_of(user.finds(name), lambda *_: place, 5) == (["last line"], "somewhere")
    end = stop(user.finds(job), lambda *_: place)

    assert end.state.value == "Stopped"
    assert user.balance() == (USD, 0.0)
    assert user.recorded(run_id).state == "Stopped"


def test_a_deleted_run_whose_job_was_never_created_is_closed_and_stays_deleted(user: Owner) -> None:
    run_id = user.is_killed(before_creation=True, budget=str(user.budget))
    user.client.set_tag(run_id, "paretune.claimed_at", "0")
    user.client.delete_run(run_id)

    assert user.status() == []
    (closed,) = user.syncs()

    assert "its job was never created" in closed.remark
    assert user.syncs() == []
    assert user.recorded(run_id).is_deleted
    assert user.recorded(run_id).state == "Stopped"


def test_a_run_that_is_deleted_under_its_living_command_has_the_whole_record_in_the_end(user: Owner) -> None:
    user.launcher.endings = [DONE]
    job = begin_job(user.spec(budget=str(user.budget)), user.place())
    user.client.delete_run(job.record.run.run_id)

    outcome = job.wait(Interruption())

    assert any("was deleted in MLflow" in remark for remark in outcome.remarks)
    run = user.recorded(job.record.run.run_id)
    assert (run.is_deleted, run.state) == (False, "Completed")
    assert run.cost_usd == pytest.approx(USD)
    assert user.balance() == (USD, 0.0)
    assert user.syncs() == []


def test_a_tag_that_names_another_existing_run_gives_nobody_its_job(user: Owner) -> None:
    victim = user.leaves(ENDLESS)
    forged = user.client.create_run(user.experiment, tags=dict(tags_of(user.client.get_run(victim)))).info.run_id
    user.client.set_tag(forged, "paretune.continues", victim)
    place = user.place()

    with pytest.raises(BadInput, match="does not exist"):
        stop(user.recorded(forged), lambda *_: place)

    assert user.finds(user.job_of(victim)).run_id == victim


def test_reservations_of_other_stores_are_left_alone_and_those_of_older_versions_are_told(user: Owner) -> None:
    user.leaves()
    user.syncs()
    place, job = user.place(), user.spec(budget=str(user.budget))
    for run_id, name in (("a" * 32, "a-job"), ("b" * 32, "")):
        place.reserve(draft(job, place).at_worst(2.0), run_id, name)
    with sqlite3.connect(user.budget.parent / ".paretune" / "studies.db") as connection:
        other = "update paretune_reservations set job = json_set(job, '$.store', 'another') where run_id like 'a%'"
        connection.execute(other)

    (remark,) = user.syncs()

    assert not remark.run_id
    prefix = (
        f"2.00 USD are reserved in the budgets of {user.budget} by another version of paretune for the runs {'b' * 32}"
    )
    assert remark.remark.startswith(prefix)


def test_a_reservation_without_run_and_job_is_told_and_stays(user: Owner) -> None:
    run_id = user.leaves()
    user.launcher.jobs.clear()
    remove_for_good(user, run_id)
    before = user.balance()

    (remark,) = user.syncs()

    assert "its run was removed from MLflow, and its job does not exist" in remark.remark
    assert user.balance() == before


def test_a_removed_job_that_its_launcher_cannot_show_is_named_with_the_reason(
    user: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_for_good(user, user.leaves(ENDLESS))
    before = user.balance()

    def refuses(name: str) -> None:
        raise LaunchRefused("AccessDeniedException: no permission to describe it")

    monkeypatch.setattr(user.launcher, "attach", refuses)
    (remark,) = user.syncs()

    assert "which is unreadable: AccessDeniedException: no permission to describe it" in remark.remark
    assert user.balance() == before


@pytest.mark.parametrize("other", ["user", "machine"])
def test_a_copy_of_the_store_gives_nobody_the_job_of_another_user_or_machine_unless_asked(
    user: Owner, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = user.leaves(ENDLESS)
    job, before = user.job_of(run_id), user.balance()
    remove_for_good(user, run_id)  # a copy that was made before the job was launched has no run of it either
    if other == "machine":
        monkeypatch.setattr("platform.node", lambda: "elsewhere")
    place = replace(user.place(), environment={"LOGNAME": "colleague"} if other == "user" else {})
    budgets = [str(user.budget)]

    def syncs(adopt: str = "") -> list[Collected]:
        return Sync(
            workplace_at=lambda *_: place,
            tracking=place.tracking,
            interruption=Interruption(),
            budgets=budgets,
            adopt=adopt,
        ).run()

    assert running_jobs(place.tracking, lambda *_: place, budgets) == []
    for name in (run_id, run_id[:8], job):
        with pytest.raises(BadInput, match="no job here"):
            find_run(place.tracking, name, lambda *_: place, budgets)
    (remark,) = syncs()
    assert f"for job {job} of " in remark.remark
    assert f"sync --adopt {run_id}` records the job here" in remark.remark
    assert place.tracking.recorder_of(run_id) is None
    assert user.balance() == before
    user.launcher.jobs[job].ending = DONE

    assert any("this new run records the job" in each.remark for each in syncs(adopt=run_id))
    recorder = place.tracking.recorder_of(run_id)
    assert recorder is not None
    assert recorder.tags["paretune.job_name"] == job


def test_the_home_remembers_the_budget_file_of_a_job_whose_run_is_gone(user: Owner, tmp_path: Path) -> None:
    user.budget = tmp_path / "far" / "team.yaml"
    user.budget.parent.mkdir()
    user.budget.write_text("budgets: [{name: everything, usd_per_month: 100}]\n")
    run_id = user.leaves(ENDLESS)
    remove_for_good(user, run_id)
    workplaces = Workplaces(environment={}, interruption=Interruption(), home=user.place().home)

    budgets = workplaces.budgets()

    assert budgets == [str(user.budget)]
    place = user.place()
    (row,) = running_jobs(place.tracking, lambda *_: place, budgets)
    assert row["run_id"] == run_id
    user.leaves()  # a second job of the same file
    assert workplaces.budgets() == budgets


def test_train_leaves_the_running_job_of_another_user_alone_if_this_store_does_not_have_its_run(
    user: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = user.leaves(ENDLESS)  # ann's job, in the store of which this one is a copy
    (job,) = user.launcher.jobs.values()
    monkeypatch.setattr(type(job), "launched_by", "ann@her-laptop")
    remove_for_good(user, run_id)

    with pytest.raises(LaunchRefused) as refused:
        user.types_again()

    message = str(refused.value)
    assert f"job {job.name} of ann@her-laptop runs the same training" in message
    assert f"`paretune sync --adopt {run_id}` records the job here" in message
    assert "--force again starts another job" in message
    assert user.place().tracking.recorder_of(run_id) is None
    assert [run.info.status for run in user.client.search_runs([user.experiment])] == ["FAILED"]
    monkeypatch.setattr(type(job), "launched_by", user_here(os.environ))
    user.launcher.endings = [DONE]
    job.ending = DONE
    assert user.types_again().has_completed
    assert user.place().tracking.recorder_of(run_id) is not None


def test_a_removed_job_is_listed_once_although_runs_of_two_launchers_name_the_budget_file(user: Owner) -> None:
    user.launcher.endings = [DONE, ENDLESS, DONE]
    rehearsed = user.type(budget=str(user.budget)).run_id
    user.client.set_tag(rehearsed, "paretune.launcher", "simulated")
    other = user.is_killed(budget=str(user.budget), watched_by=DEAD, instance_count=2)
    user.is_killed(budget=str(user.budget), watched_by=DEAD, instance_count=3)
    remove_for_good(user, other)

    rows = [row["run_id"] for row in user.status()]

    assert rows.count(other) == 1
