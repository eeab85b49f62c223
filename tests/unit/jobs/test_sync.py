"""Bringing MLflow up to date: each job that nobody watches is followed to its end, and none blocks another."""

import json
import os
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus
from mlflow.exceptions import MlflowException

from paretune.cli import main
from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, BudgetRefused, Interrupted, JobFailed, LaunchRefused, ParetuneError
from paretune.core.interruption import Interruption
from paretune.jobs.card import params_of
from paretune.jobs.follow import Collected, Sync
from paretune.jobs.launch import begin_job, run_job
from paretune.jobs.plan import PLAN, draft
from paretune.jobs.record import JobRecord
from paretune.launchers.base import CREATED_WITHIN_S, Job
from paretune.launchers.offers import order_of
from paretune.launchers.processes import process_text
from paretune.specification.container import Event, JobReport
from paretune.specification.job import JobSpec
from paretune.specification.order import Order, job_name
from paretune.tracking import schema
from paretune.tracking.store import Tracking
from tests.support.bills import line, write
from tests.support.fake_clock import FakeClock
from tests.support.scripted_jobs import (
    BROKEN,
    DONE,
    ENDLESS,
    MEMORY,
    PRICES,
    SMALL,
    End,
    ScriptedJob,
    ScriptedLauncher,
    pool,
)
from tests.support.tags import tags_of
from tests.support.workplaces import make_workplace

DEAD = f"{socket.gethostname()} 4194304 1"  # no process has this id
OF_EVERY_JOB = {PLAN, "report.json", "log.txt", "command.txt"}  # artifacts of its run
EVENTS = [Event(time=1.0 + step, step=step, metrics={"train/loss": 1 / step}) for step in (1, 2)]


class Account(ScriptedLauncher):
    """Shows the same job object, with everything that has happened to it."""

    def attach(self, job_name: str) -> Job | None:
        return self.jobs.get(job_name)


@dataclass
class Desk:
    """A store with runs, an account with jobs, and the command that brings them together."""

    home: Path
    tracking: Tracking = field(default_factory=lambda: Tracking({}, SystemClock()))
    client: MlflowClient = field(default_factory=MlflowClient)
    account: Account = field(default_factory=lambda: Account([]))
    interruption: Interruption = field(default_factory=Interruption)
    clock: FakeClock = field(default_factory=FakeClock)

    def leave(
        self,
        ending: End | None = None,
        runs: int = 0,
        model: str = "",
        planned: bool = True,
        **changes: Any,
    ) -> str:
        """Create a run whose launcher has died; its job exists if `ending` is given, its plan if `planned`."""
        script = self.home / "train.py"  # a job with its own script has nothing to prepare
        script.write_text("import transformers\ntransformers.HfArgumentParser([transformers.TrainingArguments])\n")
        spec = JobSpec(**{"instance_type": SMALL, "region": "us-east-1", "entry_script": str(script), **changes})
        workplace = make_workplace(launcher=self.account, tracking=self.tracking, clock=self.clock)
        record = JobRecord(draft(spec, workplace), workplace)
        record.adopt()
        name = job_name(record.run.run_id, 1)
        record.name_attempt(name)
        record.leave()
        record.run.log_params(params_of(spec, None))
        record.run.set_tags({"paretune.watched_by": "another machine"})
        made = replace(record.plan, accumulates=True, takes_batch=True)
        if planned:
            record.run.log_text(json.dumps(made.as_json()), PLAN)
        if ending is not None:
            order = order_of(spec, job_name=name, run_id=record.run.run_id, owner=record.plan.owner)
            job = ScriptedJob(name, order, ending, runs, new_events=list(EVENTS))
            job.model, job.pools = model, self.account.pools
            self.account.jobs[name] = job
        return record.run.run_id

    def sync(self) -> dict[str, Collected]:
        """Run the command, and return what became of each run."""
        workplace = make_workplace(launcher=self.account, tracking=self.tracking, home=self.home, clock=self.clock)
        collected = Sync(
            workplace_at=lambda *_: workplace,
            tracking=self.tracking,
            interruption=self.interruption,
        ).run()
        return {one.run_id: one for one in collected}

    def tag(self, run_id: str, name: str, text: str) -> None:
        self.client.set_tag(run_id, f"paretune.{name}", text)

    def tags(self, run_id: str) -> dict[str, str]:
        return {name.removeprefix("paretune."): text for name, text in tags_of(self.client.get_run(run_id)).items()}

    def status(self, run_id: str) -> str:
        return str(self.client.get_run(run_id).info.status)


@pytest.fixture
def desk(workplace: Path) -> Desk:
    return Desk(workplace)


def test_jobs_that_run_and_jobs_that_have_ended_are_followed_to_their_ends(desk: Desk) -> None:
    ended, running, failed = desk.leave(DONE), desk.leave(DONE, runs=5), desk.leave(BROKEN, runs=2)

    collected = desk.sync()

    for run_id in (ended, running):
        outcome = collected[run_id].result
        assert outcome is not None
        assert outcome.metrics["f1"] == 0.75
        assert outcome.metrics["cost_usd"] == pytest.approx(0.01)
        assert desk.status(run_id) == "FINISHED"
    assert "broken" in collected[failed].remark
    assert desk.status(failed) == "FAILED"
    assert desk.account.created == []
    assert (
        desk.tags(ended)["mlflow.runName"] == "train.py: F1 .750, 0.0100 USD"
    )  # MLflow's table first shows only names
    assert desk.tags(failed)["mlflow.runName"] == "train.py: 0.0100 USD"
    assert desk.sync() == {}  # no event is written twice
    assert [point.step for point in desk.client.get_metric_history(running, "train/loss")] == [1, 2]


def test_a_colleagues_sync_leaves_a_job_alone_whose_upload_takes_an_hour(desk: Desk) -> None:
    remarks: list[str] = []

    class Uploading(Account):
        def submit(self, order: Order) -> Job:
            desk.client.set_tag(order.run_id, "paretune.watched_by", "another machine 1 1")  # for the colleague
            for _ in range(12):
                desk.clock.sleep(300.0)
                workplace.interruption.check()  # as the upload does after each part
                remarks.extend(one.remark for one in desk.sync().values())
                assert desk.status(order.run_id) == "RUNNING"
            return super().submit(order)

    budget = desk.home / "budget.yaml"
    budget.write_text("budgets: [{name: all, usd_per_month: 100}]\n")
    account = Uploading([DONE])
    (desk.home / "train.py").touch()
    spec = JobSpec(instance_type=SMALL, entry_script=str(desk.home / "train.py"), budget=str(budget))
    workplace = make_workplace(launcher=account, tracking=desk.tracking, home=desk.home, clock=desk.clock)

    outcome = run_job(spec, workplace)

    assert len(remarks) == 12
    assert all("its job does not exist yet" in remark for remark in remarks)
    assert "is still missing in 10 minutes;" in remarks[0]
    assert not any("in 0 minutes" in remark for remark in remarks)
    tags = desk.tags(outcome.run_id)
    assert (desk.status(outcome.run_id), tags["state"]) == ("FINISHED", "Completed")
    assert not tags.get("failure_reason")
    ledger = workplace.budget_ledger(str(budget))
    assert ledger is not None
    assert ledger.reservations() == []


def test_a_finished_job_whose_model_was_to_be_registered_gets_one_version_however_often_sync_runs(desk: Desk) -> None:
    run_id = desk.leave(DONE, 1, register="sentiment-en")
    desk.sync()  # this collects it; its model is not in MLflow
    assert desk.tags(run_id)["registered"] == "no: the job has left no model"
    killed = desk.leave(DONE, register="sentiment-en")
    desk.tracking.run(killed).set_tags({"paretune.state": "Completed"})  # just before it registers the model
    made = desk.client.create_logged_model("0", name="model", source_run_id=killed)
    desk.client.finalize_logged_model(made.model_id, LoggedModelStatus.READY)

    collected = desk.sync()

    assert collected.keys() == {killed}
    assert collected[killed].remark == "registered as sentiment-en/1, candidate"
    assert desk.sync() == {}
    assert [one.version for one in desk.client.search_model_versions("name = 'sentiment-en'")] == [1]


def test_the_run_of_a_job_with_very_many_classes_says_why_it_has_no_confusion_matrix(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = JobReport(metrics={"f1": 0.75}, labels=tuple(str(number) for number in range(1_200)))
    monkeypatch.setattr(ScriptedJob, "report", lambda _: report)
    run_id = desk.leave(DONE)

    desk.sync()

    assert {entry.path for entry in desk.client.list_artifacts(run_id)} == {*OF_EVERY_JOB, "classification_report.txt"}
    text = Path(desk.client.download_artifacts(run_id, "classification_report.txt")).read_text()
    rule = "There is no confusion matrix for more than 1,000 classes, and no report per class"
    assert text == f"{rule}: this job has 1,200 classes.\n"


def artifacts_away(client: MlflowClient, run_id: str, *_: Any) -> None:
    raise MlflowException("the bucket of artifacts refuses: AccessDenied")


def test_what_the_store_of_artifacts_did_not_take_is_written_by_a_later_sync(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = desk.leave(DONE, model="s3://mine/output/model/", entry_script=None, register="sentiment-en")
    desk.tag(run_id, "remarks", "its records could not be copied")
    with monkeypatch.context() as away:
        away.setattr("paretune.tracking.run_writer.log_model", artifacts_away)
        away.setattr(MlflowClient, "log_text", artifacts_away)
        for _ in range(2):
            outcome = desk.sync()[run_id].result
            assert outcome is not None
            assert outcome.has_gap
            assert (desk.tags(run_id)["state"], desk.tags(run_id)["gap"]) == ("Completed", "true")
            assert desk.status(run_id) == "FINISHED"
            assert "registered" not in desk.tags(run_id)

    outcome = desk.sync()[run_id].result

    assert outcome is not None
    assert not outcome.has_gap
    assert {entry.path for entry in desk.client.list_artifacts(run_id)} == OF_EVERY_JOB
    assert desk.tags(run_id)["registered"] == "sentiment-en/1"
    assert not desk.tags(run_id)["remarks"]
    assert desk.client.get_run(run_id).data.metrics["cost_usd"] == pytest.approx(0.01)
    assert desk.sync() == {}


def test_a_job_keeps_the_price_it_was_launched_at_however_late_its_record_is_completed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PRICES, SMALL, 2.0)
    run_id = desk.leave(DONE, model="s3://mine/output/model/", entry_script=None)
    for usd_today in (1.0, 3.0):  # the first time MLflow takes no artifacts
        monkeypatch.setitem(PRICES, SMALL, usd_today)
        with monkeypatch.context() as away:
            if usd_today == 1.0:
                away.setattr("paretune.tracking.run_writer.log_model", artifacts_away)
            outcome = desk.sync()[run_id].result
        assert outcome is not None
        assert outcome.offer.price is not None
        assert outcome.offer.price.usd_per_hour == 2.0
        assert desk.tags(run_id)["price_usd_per_hour"] == "2"
        assert desk.client.get_run(run_id).data.metrics["cost_usd"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        ("claimed_at", f"{FakeClock().now() - CREATED_WITHIN_S - 1:.0f}"),
        ("watched_by", DEAD),  # its launcher would have created it here
    ],
)
def test_a_run_whose_job_was_never_created_is_closed_with_the_command_that_starts_it(
    desk: Desk, tag: str, text: str
) -> None:
    run_id = desk.leave()
    desk.tag(run_id, tag, text)
    desk.client.log_metric(run_id, "cost_usd", 0.0)  # of an earlier command, which did not create it either

    remark = desk.sync()[run_id].remark

    assert "its job was never created" in remark
    assert f"--instance_type {SMALL}" in remark
    assert desk.status(run_id) == "KILLED"
    assert desk.tags(run_id)["state"] == "Stopped"
    assert desk.tags(run_id)["failure_reason"] == "its job was never created"
    assert desk.tags(run_id)["job_name"] == ""
    assert desk.sync() == {}


def test_what_a_job_has_cost_that_aws_no_longer_knows_is_not_known(desk: Desk) -> None:
    run_id = desk.leave()
    desk.tag(run_id, "claimed_at", "0")
    desk.client.log_metric(run_id, "cost_usd", 0.004)  # its cost so far

    assert "its cost is unknown (budgets count its worst case)" in desk.sync()[run_id].remark
    run = desk.tracking.recorded(run_id)
    assert run is not None
    assert run.cost_usd is None


@pytest.mark.parametrize(("name", "text"), [("watched_by", DEAD), ("secondary_status", "Training")])
def test_a_job_that_has_run_or_whose_launcher_was_killed_is_followed_if_aws_shows_it_a_moment_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    run_id = desk.leave()
    desk.tag(run_id, name, text)
    order = order_of(JobSpec(), job_name="", run_id=run_id)
    late = ScriptedJob(job_name(run_id, 1), order, DONE)
    monkeypatch.setattr(desk.clock, "sleep", lambda _: desk.account.jobs.setdefault(late.name, late))

    assert desk.sync()[run_id].result is not None
    assert desk.account.created == []


def test_a_job_whose_name_mlflow_stops_showing_is_not_created_a_second_time(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = desk.leave(ENDLESS)
    job = desk.account.jobs.pop(job_name(run_id, 1))
    job.name = job_name("5e4d-0", 1)
    desk.account.jobs[job.name] = job
    desk.tag(run_id, "job_name", job.name)
    monkeypatch.setattr("paretune.tracking.run_writer.Run.tags", lambda _: {})

    remark = desk.sync()[run_id].remark

    assert remark.startswith(f"its job cannot be followed: MLflow does not show which job run {run_id} has")
    assert desk.account.created == []
    assert (desk.status(run_id), desk.tags(run_id)["job_name"]) == ("RUNNING", job.name)


def test_a_job_that_is_created_after_a_sync_has_closed_its_run_is_found_and_recorded(desk: Desk) -> None:
    class Asleep(Account):
        def submit(self, order: Order) -> Job:
            desk.client.set_tag(order.run_id, "paretune.watched_by", "another machine 1 1")  # for the colleague
            desk.clock.sleep(CREATED_WITHIN_S + 1.0)
            assert "its job was never created" in desk.sync()[order.run_id].remark
            return super().submit(order)

    (desk.home / "train.py").touch()
    budget = desk.home / "budget.yaml"
    budget.write_text("budgets: [{name: all, usd_per_month: 100}]\n")
    spec = JobSpec(instance_type=SMALL, entry_script=str(desk.home / "train.py"), budget=str(budget))
    workplace = make_workplace(launcher=Asleep([ENDLESS]), tracking=desk.tracking, home=desk.home, clock=desk.clock)

    job = begin_job(spec, workplace)
    ledger = workplace.budget_ledger(str(budget))
    assert ledger is not None
    assert [each.run_id for each in ledger.reservations()] == [job.record.run.run_id]

    assert job.current is not None
    tags = desk.tags(job.record.run.run_id)
    assert (desk.status(job.record.run.run_id), tags["state"]) == ("RUNNING", "Running")
    assert tags["job_name"] == job.current.name
    assert tags["watched_by"] == process_text()
    assert not tags.get("failure_reason")


def test_the_gaps_of_a_local_job_of_another_machine_are_left_to_that_machine(desk: Desk) -> None:
    run_id = desk.leave()
    for name, text in (("watched_by", ""), ("machine", "gpu-box x86_64 8"), ("state", "Completed"), ("gap", "true")):
        desk.tag(run_id, name, text)
    desk.account.location_tags = lambda: {"machine": "laptop arm64 10"}  # type: ignore[method-assign]

    assert "another machine (gpu-box)" in desk.sync()[run_id].remark
    assert desk.tags(run_id)["gap"] == "true"

    desk.account.location_tags = lambda: {"machine": "gpu-box x86_64 4"}  # type: ignore[method-assign]
    assert "its job no longer exists" in desk.sync()[run_id].remark  # the same machine with fewer cores


@pytest.mark.parametrize("is_simulated", [False, True])
def test_the_gaps_of_a_job_of_another_folder_are_left_to_that_folder(desk: Desk, is_simulated: bool) -> None:
    desk.account.jobs_outlive_submitter = is_simulated
    desk.account.traits = replace(desk.account.traits, is_simulated=is_simulated)  # type: ignore[misc]
    run_id = desk.leave(DONE)
    desk.sync()
    desk.tag(run_id, "gap", "true")

    jobs, desk.account.jobs = desk.account.jobs, {}  # this folder has no jobs
    remark = desk.sync()[run_id].remark
    assert "in the folder in which it was started" in remark
    assert "if its files are deleted, delete the tag paretune.gap of the run" in remark

    desk.account.jobs = jobs
    assert desk.sync()[run_id].result is not None
    assert desk.sync() == {}


def test_the_gaps_of_a_deleted_local_job_end_with_the_tag_of_its_run(desk: Desk) -> None:
    desk.account.jobs_outlive_submitter = False
    run_id = desk.leave(DONE)
    desk.sync()
    desk.tag(run_id, "gap", "true")
    desk.account.jobs = {}
    assert "paretune.gap" in desk.sync()[run_id].remark

    desk.client.delete_tag(run_id, "paretune.gap")
    assert desk.sync() == {}


def test_a_local_job_of_another_machine_is_left_to_that_machine(desk: Desk) -> None:
    run_id = desk.leave()
    desk.tag(run_id, "claimed_at", "0")
    desk.tag(run_id, "watched_by", "another-machine 1 2")
    desk.account.jobs_outlive_submitter = False

    assert "another machine" in desk.sync()[run_id].remark
    assert desk.status(run_id) == "RUNNING"


def test_a_launcher_that_died_between_naming_the_second_attempt_and_creating_it_is_continued(desk: Desk) -> None:
    run_id = desk.leave(MEMORY)
    desk.tag(run_id, "job_name", job_name(run_id, 2))
    desk.account.endings = [DONE]

    collected = desk.sync()

    assert desk.account.created == [job_name(run_id, 2)]
    assert collected[run_id].result is not None


def test_a_job_of_somebody_without_a_login_name_stays_theirs_whoever_runs_sync(desk: Desk) -> None:
    run_id = desk.leave(DONE, planned=False)
    desk.client.delete_tag(run_id, "paretune.user")  # as in a container without users

    assert desk.sync()[run_id].result is not None
    assert "user" not in desk.tags(run_id)


def test_a_job_is_followed_although_its_project_can_no_longer_be_read(desk: Desk) -> None:
    project = desk.home / "project"
    project.mkdir()
    (project / "MLproject").write_text("entry_points: {main: {command: echo}}\n")
    run_id = desk.leave(DONE, entry_script=None, project=str(project), seed=7)
    (project / "MLproject").write_text("entry_points: {train\n")

    assert desk.sync()[run_id].result is not None
    assert desk.client.get_run(run_id).data.params["seed"] == "7"


def test_a_run_that_is_watched_by_a_living_process_is_left_to_it(desk: Desk) -> None:
    run_id = desk.leave(DONE)
    desk.tag(run_id, "watched_by", process_text(os.getppid()))

    assert desk.sync()[run_id].remark == "another process on this machine is watching it"


@pytest.mark.parametrize("document", ['{"color": "blue"}', '{"seed": '])
def test_a_run_that_cannot_be_read_back_hinders_no_other(desk: Desk, document: str) -> None:
    strange, good = desk.leave(DONE, planned=False), desk.leave(DONE)
    desk.tag(strange, "given", document)

    collected = desk.sync()

    assert "cannot be read back" in collected[strange].remark
    assert collected[good].result is not None


OUR_TAGS = sorted(
    name
    for key, name in vars(schema).items()
    if key.isupper() and str(name).startswith("paretune.") and key != "PREFIX"
)
SPOILT = dict.fromkeys(
    ("used_instance_count", "given", "settings", "claimed_at", "price_usd_per_hour", "watched_by", "budget"),
    ("inf", "abc", "[1,2]"),
)


def test_no_tag_that_somebody_has_broken_ends_what_others_see(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    good = desk.leave(DONE)
    desk.sync()
    tags = {**tags_of(desk.client.get_run(good)), "paretune.launcher": "simulated", "paretune.state": "Running"}
    for name in OUR_TAGS:
        for text in ("inf", "[1,2]"):
            run_id = desk.client.create_run("0", tags={**tags, name: text}).info.run_id
            desk.client.log_param(run_id, "instance_type", SMALL)
    bill = write([line("paretune-x-1", 1.0)], desk.home / "bill.csv")

    codes = [main([*words]) for words in (["status"], ["report"], ["reconcile", "--bill", str(bill)])]

    printed = capsys.readouterr()
    assert codes == [0, 0, 0], printed.err
    assert SMALL in printed.out


def test_sync_says_in_a_line_what_is_broken_in_a_run_and_follows_the_others(desk: Desk) -> None:
    template = tags_of(desk.client.get_run(desk.leave()))
    broken = [
        desk.client.create_run("0", tags={**template, f"paretune.{name}": text}).info.run_id
        for name, texts in SPOILT.items()
        for text in texts
    ]
    good, strange = desk.leave(DONE), desk.leave(DONE, planned=False)
    desk.tag(strange, "given", "[1,2]")

    collected = desk.sync()

    assert collected[good].result is not None
    assert "no specification of a job is recorded" in collected[strange].remark
    assert {*broken} <= collected.keys()
    assert desk.account.created == []


@pytest.mark.parametrize(
    "error",
    [LaunchRefused("quota"), BudgetRefused("dearer"), BadInput(["no script"]), JobFailed("of it", "no memory")],
)
def test_a_next_attempt_that_cannot_be_made_now_is_left_for_later_and_hinders_no_other(
    desk: Desk, error: ParetuneError
) -> None:
    refused = desk.leave(MEMORY)
    good = desk.leave(DONE, 5)
    desk.account.endings = [error]

    collected = desk.sync()

    assert collected[refused].remark == str(error)
    assert desk.status(refused) == "RUNNING"
    assert desk.tags(refused)["state"] == "Running"
    assert collected[good].result is not None


def test_an_interruption_leaves_the_jobs_running_and_their_runs_open(desk: Desk) -> None:
    run_id = desk.leave(ENDLESS)
    desk.interruption.reason = "interrupted by SIGINT"

    with pytest.raises(Interrupted):
        desk.sync()

    assert desk.status(run_id) == "RUNNING"
    assert desk.tags(run_id)["watched_by"] == ""


def test_instances_kept_after_a_job_are_recorded_in_its_run_once_they_are_given_back(desk: Desk) -> None:
    run_id = desk.leave(DONE, 1, instance_count=2)
    name = job_name(run_id, 1)
    desk.account.pools[name] = pool()

    assert (
        "are kept for the next similar job, at a cost of at most 0.00 USD: `paretune sync` records the cost once"
        in desk.sync()[run_id].remark
    )
    desk.account.pools[name] = pool("Terminated", 3600.0)
    remark = desk.sync()[run_id].remark

    metrics = desk.client.get_run(run_id).data.metrics
    assert metrics["billable_seconds"] == 36.0
    assert metrics["warm_pool_seconds"] == 3600.0
    assert metrics["cost_usd"] == pytest.approx(2 * 3636 / 3600)
    assert desk.tags(run_id)["warm_pool"] == "Terminated"
    assert desk.tags(run_id)["mlflow.runName"] == "train.py: F1 .750, 2.02 USD"
    assert "billed for 1 h each until they were released: 2.00 USD, in its cost_usd now" in remark
    assert desk.sync() == {}

    desk.tag(run_id, "warm_pool", "Available")  # as if `sync` had been killed before it wrote this
    desk.sync()
    assert desk.client.get_run(run_id).data.metrics["cost_usd"] == metrics["cost_usd"]


def test_kept_instances_that_aws_still_calls_in_use_when_the_job_ends_are_recorded_too(desk: Desk) -> None:
    run_id = desk.leave(DONE, sagemaker={"keep_alive_minutes": 10.0})
    desk.account.pools[job_name(run_id, 1)] = pool("InUse")
    desk.sync()
    assert desk.tags(run_id)["warm_pool"] == "Available"

    desk.account.pools[job_name(run_id, 1)] = pool("Terminated", 600.0)
    desk.sync()

    assert desk.client.get_run(run_id).data.metrics["cost_usd"] == pytest.approx(636 / 3600)


def test_instances_of_a_job_that_was_deleted_since_are_recorded_for_as_long_as_they_were_asked_for(desk: Desk) -> None:
    run_id = desk.leave(DONE, sagemaker={"keep_alive_minutes": 10.0})
    desk.sync()
    desk.tag(run_id, "warm_pool", "Available")
    desk.account.jobs.clear()

    desk.sync()

    assert desk.client.get_run(run_id).data.metrics["cost_usd"] == pytest.approx(636 / 3600)


def test_a_synced_run_has_the_parameters_that_were_given_and_no_others(desk: Desk) -> None:
    run_id = desk.leave(DONE, region=None)
    desk.tag(run_id, "region", "eu-west-1")  # where its launcher ran it

    desk.sync()

    assert "region" not in desk.client.get_run(run_id).data.params


def test_kept_instances_of_an_unknown_price_have_no_cost(desk: Desk) -> None:
    run_id = desk.leave(DONE, instance_type="ml.g6.48xlarge")
    desk.account.pools[job_name(run_id, 1)] = pool()
    desk.sync()
    desk.account.pools[job_name(run_id, 1)] = pool("Terminated", 3600.0)

    remark = desk.sync()[run_id].remark

    assert "released; the price is unknown" in remark
    assert "USD" not in remark
    assert "cost_usd" not in desk.client.get_run(run_id).data.metrics
