"""The same command typed again: the job that runs is followed, and no second one is paid."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.core.clock import Interruption, SystemClock
from paretune.core.errors import Interrupted, LostContact
from paretune.jobs.attempts import Attempts
from paretune.jobs.launch import run_job
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.record import JobRecord
from paretune.launchers.base import job_name
from paretune.launchers.processes import process_text
from paretune.specification.container import JobInputs
from paretune.specification.job import JobSpec
from paretune.tracking.store import Tracking
from tests.processes import wait_until
from tests.scripted_jobs import DONE, SMALL, ScriptedLauncher
from tests.stand_ins.aws import FakeClock
from tests.workplaces import make_workplace


class User:
    """Somebody who types commands for one account, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "train.py"  # a job with a script of its own has nothing to prepare
        self.script.touch()
        self.clock = FakeClock()
        self.launcher = ScriptedLauncher([DONE, DONE])
        self.client = MlflowClient()
        self.messages: list[str] = []

    def spec(self, **changes: Any) -> JobSpec:
        """The job that is typed."""
        return JobSpec(**{"instance_type": SMALL, "entry_script": str(self.script), **changes})

    def type(self, opened: str = "", **changes: Any) -> JobOutcome:
        """The command, to its end; `opened` is the run that `mlflow run` has opened for it."""
        environment = {"MLFLOW_RUN_ID": opened} if opened else {}
        tracking = Tracking(environment, SystemClock())
        workplace = make_workplace(launcher=self.launcher, tracking=tracking, clock=self.clock, messages=self.messages)
        return run_job(self.spec(**changes), workplace)

    def is_killed(self, *, before_creation: bool = False, watched_by: str = "", **changes: Any) -> str:
        """A command that is killed while its job runs, or before that is created; its run."""
        spec, tracking = self.spec(**changes), Tracking({}, SystemClock())
        record = JobRecord(spec, make_workplace(launcher=self.launcher, tracking=tracking, clock=self.clock))
        record.describe(JobInputs())
        job = Attempts(record, JobInputs())
        if before_creation:
            record.name_attempt(job.document.job_name)
        else:
            job.begin()
        record.run.set_tags({"paretune.watched_by": watched_by})
        record.run.flush()
        return record.run.run_id


@pytest.fixture
def user(workplace: Path) -> User:
    return User(workplace)


@pytest.mark.parametrize("before_creation", [False, True])
def test_the_same_command_watches_the_job_of_a_killed_one(user: User, before_creation: bool) -> None:
    run_id = user.is_killed(before_creation=before_creation)

    result = user.type()

    assert result.run_id == run_id
    assert len(user.launcher.created) == 1
    assert "watching it, so that nothing is paid twice (force=true starts another)" in user.messages[0]
    assert user.client.get_run(run_id).data.metrics["cost_usd"] == pytest.approx(0.01)
    assert user.type().run_id != run_id  # it has ended


def test_the_run_that_mlflow_has_opened_for_the_command_says_which_run_it_watches(user: User) -> None:
    run_id = user.is_killed()
    opened = user.client.create_run("0").info.run_id

    assert user.type(opened).run_id == run_id

    run = user.client.get_run(opened)
    assert run.info.status == "FINISHED"
    assert (run.data.tags["paretune.kind"], run.data.tags["paretune.watched_run"]) == ("watcher", run_id)
    assert not run.data.params
    assert not run.data.tags["paretune.state"]  # it is the run of no job


def test_force_starts_another(user: User) -> None:
    run_id = user.is_killed()

    assert user.type(force=True).run_id != run_id
    assert len(user.launcher.created) == 2


@pytest.mark.parametrize("changes", [{"learning_rate": 1e-3}, {"max_runtime_minutes": 7.0}])
def test_a_job_of_another_command_is_left_alone(user: User, changes: dict[str, float]) -> None:
    run_id = user.is_killed(**changes)

    assert user.type().run_id != run_id
    assert user.client.get_run(run_id).info.status == "RUNNING"


def test_the_same_command_follows_the_job_that_a_living_process_watches(user: User) -> None:
    first = process_text(os.getppid())
    run_id = user.is_killed(watched_by=first)

    assert user.type().run_id == run_id

    assert len(user.launcher.created) == 1
    assert "Ctrl-C leaves it to the process that watches it, too" in user.messages[0]


def test_an_interrupted_follower_leaves_the_job_and_its_watcher_alone(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = process_text(os.getppid())
    user.launcher.endings = ["endless"]
    run_id = user.is_killed(watched_by=first)
    monkeypatch.setattr(Interruption, "check", interrupt)

    with pytest.raises(Interrupted, match=f"{job_name(run_id, 1)} goes on"):
        user.type()

    assert not user.launcher.jobs[job_name(run_id, 1)].stopped
    run = user.client.get_run(run_id)
    assert (run.info.status, run.data.tags["paretune.watched_by"]) == ("RUNNING", first)


def interrupt(_: Interruption) -> None:
    """What a command meets that Ctrl-C has reached."""
    raise Interrupted("Ctrl-C")


@pytest.mark.parametrize("is_slow", [False, True])
def test_the_same_command_typed_on_three_machines_at_the_same_moment_starts_one_job(
    user: User, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    """All have opened their runs before any looks; the one that goes first may name its job when the others wait."""
    everybody, looks, named = Barrier(3, timeout=60), list[float](), list[str]()
    describe, name_attempt, begin = JobRecord.describe, JobRecord.name_attempt, Attempts.begin

    def name_after_two_more_looks(record: JobRecord, name: str) -> None:
        named.append(name)
        if is_slow and len(named) == 1:
            seen = len(looks)
            wait_until(lambda: len(looks) > seen + 1, within_s=60, what="the others look for the job")
        name_attempt(record, name)

    def look_again(seconds: float) -> None:
        looks.append(seconds)
        if everybody.broken:  # else no time passes: nobody stops looking
            FakeClock.sleep(user.clock, seconds)

    user.launcher.endings = [DONE] * 3
    monkeypatch.setattr(user.clock, "sleep", look_again)
    monkeypatch.setattr(user.launcher, "check_inputs", lambda *_: everybody.wait())
    monkeypatch.setattr(JobRecord, "describe", lambda *args, **more: (everybody.wait(), describe(*args, **more)))
    monkeypatch.setattr(JobRecord, "name_attempt", name_after_two_more_looks)
    monkeypatch.setattr(Attempts, "begin", lambda job: (begin(job), everybody.wait()))  # its job does not end before

    with ThreadPoolExecutor() as commands:
        results = [command.result() for command in [commands.submit(user.type) for _ in range(3)]]

    assert len(user.launcher.created) == 1
    assert len({result.run_id for result in results}) == 1


def test_a_trial_of_a_study_is_left_to_its_driver(user: User) -> None:
    run_id = user.is_killed()
    user.client.set_tag(run_id, "paretune.trial", "3")

    assert user.type().run_id != run_id


HERE = {"account": "111111111111", "region": "us-east-1"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"account": "222222222222"}, "in the AWS account 222222222222, and these credentials are of 111111111111"),
        ({"region": "eu-west-1"}, "in the region eu-west-1, and this command asks us-east-1"),
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


def test_the_job_of_an_opened_run_is_not_started_again_in_another_region(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user.launcher, "location_tags", lambda: HERE)
    run_id = user.is_killed()
    user.launcher.jobs.clear()  # as the other region knows none of them
    monkeypatch.setattr(user.launcher, "location_tags", lambda: {**HERE, "region": "eu-west-1"})

    with pytest.raises(LostContact, match="in the region us-east-1, and this command asks eu-west-1"):
        user.type(run_id)

    assert len(user.launcher.created) == 1
    run = user.client.get_run(run_id)
    assert run.info.status == "RUNNING"  # `sync` finds it
    assert run.data.tags["paretune.region"] == "us-east-1"
