"""The same command typed again: the job that runs is followed, and no second one is paid."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from threading import Event as Signal
from typing import Any

import mlflow
import pytest

from paretune.core.errors import Interrupted, LaunchRefused, LostContact
from paretune.core.interruption import Interruption
from paretune.jobs import launch
from paretune.jobs.follow import Sync
from paretune.jobs.launch import run_job
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.plan import plan
from paretune.jobs.record import JobRecord
from paretune.launchers.processes import process_text
from paretune.specification.container import Event
from paretune.tracking.run_writer import Run
from tests.support.scripted_jobs import DONE, ENDLESS, INTERNAL, SMALL, ScriptedLauncher
from tests.support.stand_ins.mlflow_store import denying_batches
from tests.support.tags import tags_of
from tests.support.users import User
from tests.support.workplaces import make_workplace


@pytest.fixture
def user(workplace: Path) -> User:
    return User(workplace)


@pytest.mark.parametrize("before_creation", [False, True])
def test_the_same_command_watches_the_job_of_a_killed_one(user: User, before_creation: bool) -> None:
    run_id = user.is_killed(before_creation=before_creation)

    result = user.type()

    assert result.run_id == run_id
    assert len(user.launcher.created) == 1
    assert "following it, so that nothing is paid for twice (force=again starts another)" in user.messages[0]
    assert user.client.get_run(run_id).data.metrics["cost_usd"] == pytest.approx(0.01)
    assert user.type().run_id != run_id  # the job has ended


def test_the_run_that_mlflow_has_opened_for_the_command_says_which_run_it_watches(user: User) -> None:
    run_id = user.is_killed()
    opened = user.client.create_run("0").info.run_id

    assert user.type(opened).run_id == run_id

    run = user.client.get_run(opened)
    assert run.info.status == "FINISHED"
    assert (tags_of(run)["paretune.kind"], tags_of(run)["paretune.watched_run"]) == ("watcher", run_id)
    assert not run.data.params
    assert not tags_of(run)["paretune.state"]  # it is not the run of a job


def test_each_job_launched_in_one_mlflow_run_is_trained_and_recorded_and_the_same_one_is_found_again(
    user: User,
) -> None:
    user.launcher.endings = [DONE] * 3
    opened = user.client.create_run("0").info.run_id

    first, second = user.type(opened, instance_count=1), user.type(opened, instance_count=2)

    assert first.run_id == opened
    assert len(user.launcher.created) == 2
    below = user.client.get_run(second.run_id)
    assert (tags_of(below)["mlflow.parentRunId"], below.data.params["instance_count"]) == (opened, "2")
    assert user.client.get_run(opened).data.params["instance_count"] == "1"
    assert user.type(opened, instance_count=1).run_id == opened  # as a killed command that is started again
    assert len(user.launcher.created) == 2
    assert user.type(opened, instance_count=1, force="again").run_id not in {first.run_id, second.run_id}


def test_a_launcher_that_is_killed_after_its_first_write_leaves_a_run_that_sync_can_close(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    write = Run.set_tags

    def die_after(run: Run, tags: Mapping[str, str | None]) -> None:
        write(run, tags)
        raise Killed

    opened = user.client.create_run("0").info.run_id
    monkeypatch.setattr(Run, "set_tags", die_after)
    with pytest.raises(Killed):
        user.type(opened)

    tags = tags_of(user.client.get_run(opened))
    assert tags["paretune.state"] == "Running"  # `sync` searches for these
    assert tags["paretune.claimed_at"]


def test_jobs_launched_in_one_mlflow_run_at_the_same_moment_do_not_share_its_run(user: User) -> None:
    opened, counts = user.client.create_run("0").info.run_id, range(1, 5)
    user.launcher.endings = [DONE] * len(counts)

    with ThreadPoolExecutor() as commands:
        results = list(commands.map(lambda count: user.type(opened, instance_count=count), counts))

    assert len({result.run_id for result in results}) == len(counts)
    assert opened in {result.run_id for result in results}
    for count, result in zip(counts, results, strict=True):
        assert user.client.get_run(result.run_id).data.params["instance_count"] == str(count)


def test_a_job_launched_in_the_run_of_a_study_or_a_report_gets_a_run_below_it(user: User) -> None:
    opened = user.client.create_run("0", tags={"paretune.kind": "report"}).info.run_id

    result = user.type(opened)

    assert tags_of(user.client.get_run(result.run_id))["mlflow.parentRunId"] == opened


def test_a_job_launched_inside_start_run_is_below_that_run_and_leaves_it_open(user: User) -> None:
    with mlflow.start_run() as active:
        result = user.type()

        run = user.client.get_run(result.run_id)
        assert tags_of(run)["mlflow.parentRunId"] == active.info.run_id
        assert user.client.get_run(active.info.run_id).info.status == "RUNNING"


@pytest.mark.parametrize("question", ["attach", "location_tags"])  # for the job, and for this command's account
def test_a_started_again_command_whose_job_cannot_be_looked_at_leaves_its_run_to_sync(
    user: User, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    user.launcher.location_tags = lambda: HERE  # type: ignore[method-assign]
    run_id = user.is_killed()

    def refuse(*_: str) -> Any:
        raise LaunchRefused("the token has expired")

    with monkeypatch.context() as expired:
        expired.setattr(user.launcher, question, refuse)
        with pytest.raises(LostContact, match="the token has expired"):
            user.type(run_id)

    run = user.client.get_run(run_id)
    assert (run.info.status, tags_of(run)["paretune.state"]) == ("RUNNING", "Running")


def test_a_script_that_was_edited_runs_as_another_job_and_a_log_next_to_it_changes_nothing(user: User) -> None:
    user.launcher.endings = [DONE] * 3
    run_id = user.is_killed()
    user.script.with_name("nohup.out").write_text("the output of the first command")
    assert user.type().run_id == run_id

    run_id = user.is_killed()
    user.script.write_text("print('edited')")

    assert user.type().run_id != run_id
    assert user.client.get_run(run_id).info.status == "RUNNING"
    assert len(set(user.launcher.created)) == 3


def test_force_starts_another_only_where_it_says_so(user: User) -> None:
    run_id = user.is_killed()

    assert user.type(force="limit,learning_rate").run_id == run_id
    assert user.type(force="again").run_id != run_id
    assert len(user.launcher.created) == 2


def test_who_follows_the_job_that_a_living_process_watches_leaves_it_to_that_one_when_interrupted(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = process_text(os.getppid())
    run_id = user.is_killed(watched_by=first)

    with monkeypatch.context() as ctrl_c:
        ctrl_c.setattr(Interruption, "check", interrupt)
        with pytest.raises(Interrupted, match=f"{user.job_of(run_id)} continues"):
            user.type()

    assert not user.launcher.jobs[user.job_of(run_id)].stopped
    run = user.client.get_run(run_id)
    assert (run.info.status, tags_of(run)["paretune.watched_by"]) == ("RUNNING", first)
    assert "Ctrl-C here does not stop it, because another process also watches it" in user.messages[0]
    assert user.type().run_id == run_id
    assert len(user.launcher.created) == 1


def test_ctrl_c_while_a_command_finds_its_job_completed_changes_nothing_of_the_job_s_end(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = user.is_killed()
    user.launcher.jobs[user.job_of(run_id)].runs = 0  # it has ended

    with monkeypatch.context() as ctrl_c:
        ctrl_c.setattr(Interruption, "check", interrupt)
        with pytest.raises(Interrupted):
            user.type(run_id)  # started again for the run that `mlflow run` had opened

    run = user.client.get_run(run_id)
    assert (run.info.status, tags_of(run)["paretune.state"]) == ("FINISHED", "Completed")
    assert "paretune.failure_reason" not in tags_of(run)


def test_an_output_that_breaks_stops_no_paid_job(user: User) -> None:
    user.launcher.endings = [ENDLESS]

    def broken(events: list[Event]) -> None:
        if any(event.metrics for event in events):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_job(user.spec(), replace(user.place(), on_events=broken))

    (job,) = user.launcher.jobs.values()
    assert not job.stopped
    run = user.client.get_run(job.run_id)
    assert (run.info.status, tags_of(run)["paretune.watched_by"]) == ("RUNNING", "")


def test_a_refused_next_attempt_is_left_to_sync_with_its_checkpoints(user: User) -> None:
    user.launcher.endings = [INTERNAL, LaunchRefused("quota 1 is in use")]

    with pytest.raises(LostContact, match="quota 1 is in use\n`paretune sync` continues it from its last checkpoint"):
        user.type()

    (job,) = user.launcher.jobs.values()
    assert user.client.get_run(job.run_id).info.status == "RUNNING"


def interrupt(_: Interruption) -> None:
    """Raise what a command raises after Ctrl-C."""
    raise Interrupted("Ctrl-C")


def test_six_who_type_the_same_command_at_the_same_moment_pay_for_one_job(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All have opened their runs and found no job before any of them creates one; the first one's job ends at once.
    everybody, submit = Barrier(6, timeout=60), user.launcher.submit
    monkeypatch.setattr(user.launcher, "submit", lambda *job: (everybody.wait(), submit(*job))[1])
    user.launcher.endings = [DONE] * 6
    Path("team.yaml").write_text("budgets: [{name: team, usd_per_month: 100}]")

    with ThreadPoolExecutor() as commands:
        typed = [commands.submit(user.type, budget="team.yaml", max_runtime_minutes=60) for _ in range(6)]
        results = [command.result() for command in typed]

    assert len(user.launcher.created) == 1
    assert len({result.run_id for result in results}) == 1
    runs = user.client.search_runs(["0"])
    assert sorted(tags_of(run)["paretune.state"] for run in runs) == ["", "", "", "", "", "Completed"]
    assert {run.info.status for run in runs} == {"FINISHED"}
    ledger = user.place().budget_ledger("team.yaml")
    assert ledger is not None
    (status,) = ledger.statuses(user.clock.now(), "measured")
    assert (status.balance.spent_usd, status.balance.committed_usd) == (pytest.approx(0.01), 0.0)


def test_a_job_of_the_same_command_from_another_store_or_of_a_deleted_run_is_not_followed(user: User) -> None:
    first = user.type()
    user.client.delete_run(first.run_id)

    assert user.type().run_id != first.run_id

    assert [name.rpartition("-")[0][-2:] for name in user.launcher.created] == ["-0", "-1"]


def test_a_launcher_killed_after_another_has_created_the_job_leaves_its_run_to_the_next_one(user: User) -> None:
    first = user.is_killed()
    second = user.is_killed(before_creation=True)
    user.client.set_tag(second, "paretune.job_name", user.job_of(first))

    result = user.type()

    assert result.run_id == first
    assert len(user.launcher.created) == 1
    assert user.client.get_run(second).info.status == "RUNNING"  # `sync` will close it


HERE = {"account": "111111111111", "region": "us-east-1"}


@pytest.mark.parametrize(
    ("changes", "tags"),
    [
        ({"instance_count": 2}, {}),
        ({"max_runtime_minutes": 7.0}, {}),
        *[({}, tag) for tag in ({"trial": "3"}, {"dataset_key": "of other rows"}, {"region": "eu-west-1"})],
    ],
)
def test_a_trial_and_a_job_of_another_command_data_or_region_are_left_to_who_began_them(
    user: User, changes: dict[str, Any], tags: dict[str, str]
) -> None:
    user.launcher.location_tags = lambda: HERE  # type: ignore[method-assign]
    run_id = user.is_killed(before_creation=bool(tags), **changes)
    for tag, text in tags.items():
        user.client.set_tag(run_id, f"paretune.{tag}", text)

    assert user.type().run_id != run_id
    assert user.client.get_run(run_id).info.status == "RUNNING"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"account": "222222222222"}, "in the AWS account 222222222222, but these credentials belong to 111111111111"),
        ({"region": "eu-west-1"}, "in the region eu-west-1, but this command uses us-east-1"),
        ({}, ""),
    ],
)
def test_a_job_is_elsewhere_in_another_account_or_region(
    user: User, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], message: str
) -> None:
    monkeypatch.setattr(user.launcher, "location_tags", lambda: HERE)
    tags = {f"paretune.{name}": text for name, text in {**HERE, **changes}.items() if text}

    workplace = make_workplace(launcher=user.launcher)
    result = workplace.elsewhere(tags)

    assert message in result if message else not result
    assert not workplace.elsewhere({"paretune.machine": "a"})


def test_the_job_of_an_opened_run_is_not_started_again_in_another_region(user: User) -> None:
    user.launcher.location_tags = lambda: HERE  # type: ignore[method-assign]
    run_id = user.is_killed()
    user.launcher.jobs.clear()  # because the other region knows none of them
    user.launcher.location_tags = lambda: HERE | {"region": "eu-west-1"}  # type: ignore[method-assign]

    with pytest.raises(LostContact, match="in the region us-east-1, but this command uses eu-west-1"):
        user.type(run_id)

    assert len(user.launcher.created) == 1
    run = user.client.get_run(run_id)
    assert run.info.status == "RUNNING"  # `sync` will find it
    assert tags_of(run)["paretune.region"] == "us-east-1"


def test_equal_jobs_of_two_accounts_have_names_of_their_own_on_the_bill_of_both(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    for account in ("111111111111", "222222222222"):
        user.launcher = ScriptedLauncher([ENDLESS])  # each account knows its own jobs only
        monkeypatch.setattr(user.launcher, "location_tags", lambda account=account: {**HERE, "account": account})
        runs.append(user.is_killed())

    first, second = map(user.job_of, runs)
    assert first != second


def test_a_job_says_nothing_of_instances_that_a_colleague_keeps_in_another_account(user: User) -> None:
    user.launcher.location_tags = lambda: HERE  # type: ignore[method-assign]
    kept = {f"paretune.{name}": text for name, text in {**HERE, "account": "222222222222"}.items()}
    for name, place in (("a", kept), ("b", {f"paretune.{name}": text for name, text in HERE.items()})):
        tags = {"paretune.warm_pool": "Available", "paretune.job_name": f"paretune-{name}-1"}
        user.client.create_run("0", tags=place | tags)

    user.type()

    messages = [message for message in user.messages if "pool" in message or "kept" in message]
    assert len(messages) == 1
    assert "paretune-b-1" in messages[0]


def test_a_server_that_denies_an_operation_has_the_record_and_the_same_command_pays_once(user: User) -> None:
    user.launcher.endings = [DONE]
    with denying_batches():
        run_id = user.is_killed()
        result = user.type()

    assert result.run_id == run_id
    assert len(user.launcher.created) == 1
    run = user.client.get_run(run_id)
    assert (run.info.status, tags_of(run)["paretune.state"]) == ("FINISHED", "Completed")
    assert run.data.params["instance_type"] == SMALL
    assert run.data.metrics["cost_usd"] == pytest.approx(0.01)


def test_the_result_of_a_job_that_completed_under_an_interrupted_command_is_shown_before_anything_new_is_paid(
    user: User,
) -> None:
    run_id = user.is_killed()
    follower = user.place()
    interrupted_at_the_end(follower.interruption)
    with pytest.raises(Interrupted):
        run_job(user.spec(), follower)
    assert tags_of(user.client.get_run(run_id))["paretune.state"] == "Completed"

    shown = user.type()

    assert shown.run_id == run_id
    assert shown.has_completed
    assert shown.metrics["f1"] == 0.75
    assert len(user.launcher.created) == 1
    assert any("its result has not been shown yet" in message for message in user.messages)
    assert any("force=again starts another" in message for message in user.messages)
    assert user.type().run_id != run_id  # it has been shown, so this is a deliberate repetition
    assert len(user.launcher.created) == 2


def test_a_result_that_sync_has_shown_is_not_shown_again(user: User) -> None:
    run_id = user.is_killed()
    user.client.set_tag(run_id, "paretune.watched_by", "a-laptop 4194304 1")
    sync(user)

    assert user.type().run_id != run_id
    assert len(user.launcher.created) == 2


def test_force_again_starts_another_job_although_a_result_has_not_been_shown(user: User) -> None:
    run_id = user.is_killed()
    follower = user.place()
    interrupted_at_the_end(follower.interruption)
    with pytest.raises(Interrupted):
        run_job(user.spec(), follower)

    assert user.type(force="again").run_id != run_id
    assert len(user.launcher.created) == 2


def test_who_begins_before_another_launcher_of_its_run_follows_a_job_follows_that_job_too(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, opened = user.is_killed(), user.client.create_run("0").info.run_id
    other: list[JobOutcome] = []

    def plan_late(*job: Any) -> Any:  # meanwhile, the other launcher shows the earlier job to its end
        monkeypatch.setattr(launch, "plan", plan)
        other.append(user.type(opened))
        return plan(*job)

    monkeypatch.setattr(launch, "plan", plan_late)

    assert [user.type(opened).run_id, other[0].run_id] == [earlier, earlier]
    assert recorded_jobs(user) == user.launcher.created == [user.job_of(earlier)]
    assert tags_of(user.client.get_run(opened))["paretune.watched_run"] == earlier


def test_who_finds_its_name_taken_leaves_the_run_to_the_job_that_another_launcher_has_created_in_it(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, submit = user.client.create_run("0").info.run_id, user.launcher.submit
    others: list[JobOutcome] = []

    def submit_late(*job: Any) -> Any:  # meanwhile, a colleague's identical job and the other launcher's one complete
        monkeypatch.setattr(user.launcher, "submit", submit)
        others.extend((user.type(), user.type(opened)))
        return submit(*job)

    monkeypatch.setattr(user.launcher, "submit", submit_late)
    result = user.type(opened)

    assert [others[1].run_id, result.run_id] == [opened, others[0].run_id]
    assert recorded_jobs(user) == user.launcher.created
    assert tags_of(user.client.get_run(opened))["paretune.state"] == "Completed"


def test_who_has_chosen_to_start_a_job_keeps_its_run_when_another_launcher_of_the_run_finds_its_name_taken(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, submit = user.client.create_run("0").info.run_id, user.launcher.submit
    name_is_taken, another_has_chosen = Signal(), Signal()

    def submit_late(*job: Any) -> Any:
        monkeypatch.setattr(user.launcher, "submit", submit)
        user.type()  # a colleague's identical job
        name_is_taken.set()
        assert another_has_chosen.wait(60)
        return submit(*job)

    monkeypatch.setattr(user.launcher, "submit", submit_late)
    with ThreadPoolExecutor() as commands:
        late = commands.submit(user.type, opened)
        assert name_is_taken.wait(60)

        def describe_late(*job: Any) -> None:
            monkeypatch.setattr(JobRecord, "describe", describe)
            another_has_chosen.set()
            late.result(60)
            describe(*job)

        describe = JobRecord.describe
        monkeypatch.setattr(JobRecord, "describe", describe_late)
        result = user.type(opened)

    assert result.run_id == opened
    assert recorded_jobs(user) == user.launcher.created
    assert "paretune.watched_run" not in tags_of(user.client.get_run(opened))


def interrupted_at_the_end(interruption: Interruption) -> None:
    """Interrupt a command when its job has completed."""
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            interruption.reason = "interrupted by SIGINT"

    interruption.on_check.append(look)


def sync(user: User) -> None:
    place = user.place()
    Sync(workplace_at=lambda *_: place, tracking=place.tracking, interruption=Interruption()).run()


def recorded_jobs(user: User) -> list[str]:
    """Return the names of the jobs that runs have recorded, in the order in which names are given."""
    runs = user.client.search_runs(["0"])
    return sorted(name for run in runs if (name := tags_of(run).get("paretune.job_name", "")))
