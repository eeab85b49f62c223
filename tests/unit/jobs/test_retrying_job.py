"""One job over all its attempts, on a launcher whose jobs end as a test wants, and in a real MLflow store."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from paretune.core.clock import SystemClock
from paretune.core.errors import BudgetRefused, Interrupted, JobFailed, LaunchRefused, LostContact, OutOfMemory
from paretune.jobs.attempts import STOP_PATIENCE_S, Attempts
from paretune.jobs.follow import running_jobs
from paretune.jobs.outcome import JobOutcome
from paretune.jobs.plan import PLAN
from paretune.jobs.record import JobRecord, plan_in
from paretune.launchers import SAGEMAKER
from paretune.launchers.base import Job
from paretune.launchers.offers import admit
from paretune.specification.container import JobInputs, JobReport
from paretune.specification.ending import JobState
from paretune.specification.job import JobSpec
from paretune.specification.order import Order
from paretune.tracking.run_writer import Run
from paretune.tracking.store import Tracking
from tests.support.bound_scripts import script_inputs
from tests.support.fake_clock import FakeClock
from tests.support.scripted_jobs import (
    CAPACITY,
    DONE,
    ENDLESS,
    INTERNAL,
    LARGE,
    MEMORY,
    OTHER,
    PRICES,
    SECONDS,
    SMALL,
    ScriptedJob,
    ScriptedLauncher,
)
from tests.support.tags import tags_of
from tests.support.workplaces import make_workplace, planned


@dataclass
class Desk:
    """What survives a restart of the launcher: the clock, the jobs, the run."""

    clock: FakeClock
    tracking: Tracking
    messages: list[str]
    client: MlflowClient
    run_id: str | None = None

    def attempts(self, launcher: ScriptedLauncher, **changes: Any) -> Attempts:
        """Return a watcher of one job; a second one takes over the same run."""
        spec = JobSpec(**{"instance_type": SMALL, "region": "us-east-1", **changes})
        workplace = make_workplace(launcher=launcher, tracking=self.tracking, clock=self.clock, messages=self.messages)
        inputs = script_inputs(spec) if spec.entry_script is not None else None
        plan, run = planned(spec, workplace, inputs), None if self.run_id is None else self.tracking.run(self.run_id)
        if run is not None:
            plan = replace(plan_in(run, workplace, spec.identity), inputs=plan.inputs)
        record = JobRecord(plan, workplace, run=run)
        if run is None:
            record.describe(plan)
            record.run.flush()
        self.run_id = record.run.run_id
        record.adopt()
        attempts = Attempts(record)
        attempts.begin()
        return attempts

    def follow(self, attempts: Attempts) -> JobOutcome:
        """Poll twice a second until the end."""
        while (end := attempts.poll()) is None:
            self.clock.sleep(0.5)
        return end.result()

    def names(self, count: int) -> list[str]:
        """Return the names of the first jobs of the run."""
        return [f"paretune-{self.run_id}-{number}" for number in range(1, count + 1)]

    @property
    def metrics(self) -> Mapping[str, float]:
        return dict(self.client.get_run(self.run_id or "").data.metrics)

    @property
    def tags(self) -> Mapping[str, str]:
        return {
            name.removeprefix("paretune."): text
            for name, text in tags_of(self.client.get_run(self.run_id or "")).items()
        }


@pytest.fixture
def desk(workplace: Path) -> Desk:
    return Desk(FakeClock(), Tracking({}, SystemClock()), [], MlflowClient())


def test_out_of_memory_is_tried_again_with_half_the_batch_until_it_fits_and_everything_is_paid(desk: Desk) -> None:
    launcher = ScriptedLauncher([MEMORY, MEMORY, DONE])
    desk.follow(desk.attempts(launcher, per_device_train_batch_size=16))

    plans = [order.batch for order in launcher.orders]
    assert launcher.created == desk.names(3)
    assert [plan.per_device_train_batch_size for plan in plans] == [16, 8, 4]
    assert [plan.global_batch_size for plan in plans] == [16, 16, 16]
    assert [order.spent_seconds for order in launcher.orders] == [0, 36, 72]
    assert desk.metrics["billable_seconds"] == 108
    assert desk.metrics["cost_usd"] == pytest.approx(0.03)
    assert desk.tags["out_of_memory_retries"] == "2"
    assert desk.tags["used_per_device_train_batch_size"] == "4"
    dollars = [point.value for point in desk.client.get_metric_history(desk.run_id or "", "cost_usd")]
    assert dollars[0] == pytest.approx(0.01)  # after the first step of the first attempt
    assert dollars[-1] == desk.metrics["cost_usd"]


@pytest.mark.parametrize("is_edited", [False, True])
def test_a_script_of_this_machine_that_was_edited_meanwhile_is_not_tried_again(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_edited: bool
) -> None:
    class Here(ScriptedLauncher):
        jobs_outlive_submitter = False  # its scripts run in place

    status, began, script = ScriptedJob.status, 1000.0, tmp_path / "train.py"
    monkeypatch.setattr(ScriptedJob, "status", lambda job: replace(status(job), ended_at=began + SECONDS))
    script.write_text("import transformers\ntransformers.HfArgumentParser([transformers.TrainingArguments])\n")
    os.utime(script, (began, began + 9.0 if is_edited else began - 9.0))
    launcher = Here([MEMORY, DONE])
    job = desk.attempts(launcher, entry_script=str(script), per_device_train_batch_size=16)

    if is_edited:
        with pytest.raises(OutOfMemory, match=r"with per-device batch 16; train\.py has been changed since"):
            desk.follow(job)
    else:
        desk.follow(job)

    assert len(launcher.created) == 2 - is_edited
    assert "unseen" not in desk.tags  # the same command trains anew once this one has ended


def test_a_script_that_chooses_its_batch_itself_is_not_tried_again_without_memory(desk: Desk, tmp_path: Path) -> None:
    script, options = tmp_path / "train.py", ("per_device_train_batch_size", "gradient_accumulation_steps")
    lines = ["import argparse", "p = argparse.ArgumentParser()", *(f"p.add_argument('--{name}')" for name in options)]
    script.write_text("\n".join(lines))
    launcher = ScriptedLauncher([MEMORY, DONE])

    with pytest.raises(OutOfMemory):
        desk.follow(desk.attempts(launcher, entry_script=str(script)))

    assert launcher.created == desk.names(1)


def test_a_job_whose_creation_a_ctrl_c_has_cut_short_is_found_stopped_and_recorded(desk: Desk) -> None:
    class Interrupting(ScriptedLauncher):
        unseen = 2  # answers in which AWS does not show the new job yet

        def submit(self, order: Order) -> Job:
            super().submit(order)
            raise KeyboardInterrupt

        def attach(self, job_name: str) -> Job | None:
            self.unseen -= bool(self.created)
            return super().attach(job_name) if self.unseen < 0 else None

    launcher = Interrupting([ENDLESS])
    spec = JobSpec(instance_type=SMALL, region="us-east-1", entry_script="train.py")
    workplace = make_workplace(launcher=launcher, tracking=desk.tracking, clock=desk.clock)
    record = JobRecord(planned(spec, workplace), workplace)
    desk.run_id = record.run.run_id
    job = Attempts(record)

    with pytest.raises(KeyboardInterrupt) as caught:
        job.begin()
    job.end(caught.value)

    assert launcher.created == desk.names(1)
    assert desk.client.get_run(desk.run_id).info.status == "KILLED"
    assert desk.tags["state"] == "Stopped"
    assert desk.metrics["cost_usd"] == pytest.approx(0.01)


def test_a_type_without_capacity_is_followed_by_the_next_one_at_once_and_its_price_counts(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = ScriptedLauncher([CAPACITY, CAPACITY, DONE])
    end = desk.follow(
        desk.attempts(launcher, spot=True, fallback_instance_types=f"{LARGE}, {OTHER}", global_batch_size=32)
    )

    tried = [tuple(offer.instance_type for offer in order.offers) for order in launcher.orders]
    assert tried == [(SMALL, LARGE, OTHER), (LARGE, OTHER), (OTHER,)]  # the last one alone may wait for hours
    assert {order.batch.global_batch_size for order in launcher.orders} == {32}
    assert desk.tags["used_instance_type"] == OTHER
    name, run = f"b32 lr5e-5 {OTHER.removeprefix('ml.')}", desk.client.get_run(desk.run_id)
    assert run.info.run_name == f"{name}: F1 .750, 0.0700 USD, all-MiniLM-L6-v2"
    assert end.in_one_line().startswith(f"{name} all-MiniLM-L6-v2")
    assert f"--instance_type {SMALL}" in end.note()  # the command is the user's
    assert desk.tags["price_usd_per_hour"] == "4"
    assert desk.metrics["cost_usd"] == pytest.approx(0.07)  # the bill of each attempt, at its own price
    assert f"no capacity for {SMALL}: trying {LARGE}; 36.0 s of the last attempt are billed" in desk.messages

    monkeypatch.setitem(PRICES, OTHER, 9.0)
    desk.follow(desk.attempts(launcher, spot=True, fallback_instance_types=f"{LARGE}, {OTHER}", global_batch_size=32))
    assert desk.metrics["cost_usd"] == pytest.approx(0.07)  # an adopted job keeps its price


def test_a_type_without_a_price_is_not_billed_at_the_price_of_the_type_before_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(PRICES, LARGE)
    launcher = ScriptedLauncher([CAPACITY, DONE])
    for _ in range(2):  # the second time, another process adopts the job
        outcome = desk.follow(desk.attempts(launcher, spot=True, fallback_instance_types=LARGE))

        assert outcome.offer.price is None
        assert "cost_usd" not in desk.metrics
        assert desk.tags["price_usd_per_hour"] == desk.tags["price_source"] == ""


def test_a_next_type_begins_with_the_batch_that_has_fitted(desk: Desk) -> None:
    launcher = ScriptedLauncher([MEMORY, CAPACITY, DONE])
    desk.follow(desk.attempts(launcher, spot=True, fallback_instance_types=LARGE, per_device_train_batch_size=16))

    assert [order.batch.per_device_train_batch_size for order in launcher.orders] == [16, 8, 8]
    assert {order.batch.global_batch_size for order in launcher.orders} == {16}


@pytest.mark.parametrize("looks", range(9))  # the job has ended by the eighth
def test_a_launcher_that_dies_anywhere_goes_through_the_same_attempts_and_starts_nothing_twice(
    desk: Desk, looks: int
) -> None:
    launcher = ScriptedLauncher([CAPACITY, MEMORY, DONE])
    changes = {"fallback_instance_types": LARGE, "per_device_train_batch_size": 16, "spot": True}
    first = desk.attempts(launcher, **changes)
    for _ in range(looks):
        first.poll()
        desk.clock.sleep(20)

    again = desk.attempts(launcher, **changes)
    desk.follow(again)

    assert launcher.created == desk.names(3)
    assert [order.offer.instance_type for order in launcher.orders] == [SMALL, LARGE, LARGE]
    assert [order.batch.per_device_train_batch_size for order in launcher.orders] == [16, 16, 8]
    assert desk.metrics["billable_seconds"] == 3 * 36
    assert desk.metrics["cost_usd"] == pytest.approx(0.01 + 0.02 + 0.02)
    assert desk.metrics["f1"] == 0.75


class Choosing(ScriptedLauncher):
    """A service that uses the first available one of all types of a request."""

    def place(self, spec: JobSpec, *, account: bool = True) -> Mapping[str, Any]:
        return {"requests": dict.fromkeys(spec.instance_types(), 0)}


def test_a_job_is_billed_at_the_price_of_the_type_that_the_service_has_chosen(desk: Desk) -> None:
    launcher = Choosing([DONE])
    attempts = desk.attempts(launcher, fallback_instance_types=LARGE)
    assert attempts.current is not None
    attempts.current.chosen = launcher.jobs[launcher.created[0]].chosen = LARGE  # type: ignore[attr-defined]
    outcome = desk.follow(attempts)

    assert outcome.metrics["cost_usd"] == pytest.approx(PRICES[LARGE] * SECONDS / 3600)
    assert outcome.offer.instance_type == desk.tags["used_instance_type"] == LARGE
    assert desk.tags["price_usd_per_hour"] == "2"


def test_a_running_job_is_listed_with_the_type_that_it_runs_on(desk: Desk) -> None:
    attempts = desk.attempts(ScriptedLauncher([CAPACITY, ENDLESS]), fallback_instance_types=LARGE)
    while attempts.order.attempt == 1 or attempts.current is None:
        attempts.poll()

    (row,) = running_jobs(desk.tracking, lambda *_: attempts.record.workplace)

    assert (row["title"], row["where"]) == ("b16 lr5e-5 g5.2xlarge all-MiniLM-L6-v2", f"1 x {LARGE}")
    assert row["cost_usd"] == pytest.approx(PRICES[LARGE] * SECONDS / 3600)


def test_a_job_that_is_repeated_on_the_type_that_the_service_has_chosen_says_so(desk: Desk) -> None:
    launcher = Choosing([INTERNAL, DONE])
    attempts = desk.attempts(launcher, fallback_instance_types=LARGE)
    assert attempts.current is not None
    attempts.current.chosen = launcher.jobs[launcher.created[0]].chosen = LARGE  # type: ignore[attr-defined]
    desk.follow(attempts)

    assert (desk.tags["used_instance_type"], desk.tags["repeated"]) == (LARGE, "true")


def test_the_cost_so_far_of_a_running_job_is_not_its_cost_if_a_price_is_unknown(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = Choosing([DONE])
    monkeypatch.delitem(PRICES, LARGE)
    attempts = desk.attempts(launcher, fallback_instance_types=LARGE)
    while "cost_usd" not in desk.metrics:  # at the price of the first type
        attempts.poll()
        desk.clock.sleep(0.5)
    launcher.jobs[launcher.created[0]].chosen = LARGE  # type: ignore[attr-defined]
    outcome = desk.follow(desk.attempts(launcher, fallback_instance_types=LARGE))  # by another process

    assert "cost_usd" not in outcome.metrics
    recorded = desk.tracking.recorded(desk.run_id or "")
    assert recorded is not None
    assert recorded.cost_usd is None


def test_a_batch_that_was_made_smaller_stays_so_on_the_type_that_the_service_has_chosen(desk: Desk) -> None:
    class Full(Choosing):
        """Its first type has capacity only for the first attempt."""

        def submit(self, order: Order) -> Job:
            job = super().submit(order)
            self.jobs[order.job_name].chosen = SMALL if order.attempt == 1 else LARGE
            return job

    launcher = Full([MEMORY, MEMORY, DONE])
    desk.follow(desk.attempts(launcher, fallback_instance_types=LARGE, per_device_train_batch_size=16))

    assert [order.batch.per_device_train_batch_size for order in launcher.orders] == [16, 8, 4]
    assert desk.tags["used_per_device_train_batch_size"] == "4"


def test_types_that_were_all_in_one_request_are_not_tried_again_and_others_are(desk: Desk) -> None:
    class Two(ScriptedLauncher):
        def place(self, spec: JobSpec, *, account: bool = True) -> Mapping[str, Any]:
            return {"requests": {name: int(name == OTHER) for name in spec.instance_types()}}

    launcher = Two([CAPACITY, DONE])
    desk.follow(desk.attempts(launcher, fallback_instance_types=f"{LARGE},{OTHER}"))
    assert [order.offer.instance_type for order in launcher.orders] == [SMALL, OTHER]

    desk.run_id = None
    failed = desk.attempts(Choosing([CAPACITY]), fallback_instance_types=LARGE)
    while (end := failed.poll()) is None:
        desk.clock.sleep(0.5)
    assert end.ending == CAPACITY


def test_a_job_goes_on_after_an_internal_error_of_aws_at_most_twice(desk: Desk) -> None:
    launcher = ScriptedLauncher([INTERNAL, INTERNAL, INTERNAL, DONE])

    with pytest.raises(JobFailed, match="internal error"):
        desk.follow(desk.attempts(launcher))

    assert launcher.created == desk.names(3)
    assert [order.spent_seconds for order in launcher.orders] == [0, SECONDS, 2 * SECONDS]
    assert desk.metrics["billable_seconds"] == 3 * SECONDS


def test_an_attempt_that_aws_refuses_ends_the_job_with_what_was_paid(desk: Desk) -> None:
    launcher = ScriptedLauncher([MEMORY, LaunchRefused("quota")])
    attempts = desk.attempts(launcher, per_device_train_batch_size=16)

    with pytest.raises(LaunchRefused) as caught:
        desk.follow(attempts)
    attempts.end(caught.value)

    assert launcher.created == desk.names(1)
    assert desk.tags["failure_reason"] == "quota"
    assert desk.metrics["billable_seconds"] == 36


def test_a_job_that_does_not_say_it_has_stopped_is_not_waited_for_without_end(desk: Desk) -> None:
    launcher = ScriptedLauncher([ENDLESS])
    attempts = desk.attempts(launcher)
    assert isinstance(attempts.current, ScriptedJob)
    attempts.current.stop = lambda: None  # type: ignore[method-assign]  # AWS does not answer
    begun = desk.clock.monotonic()

    with pytest.raises(LostContact, match="sync"):
        attempts.end(Interrupted("interrupted by SIGINT"))

    assert STOP_PATIENCE_S <= desk.clock.monotonic() - begun < STOP_PATIENCE_S + 5
    assert desk.client.get_run(desk.run_id).info.status == "RUNNING"
    assert not desk.tags.get("watched_by")  # so that `sync` follows it


def test_a_job_whose_end_is_recorded_when_ctrl_c_comes_is_billed_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    attempts = desk.attempts(ScriptedLauncher([DONE]))
    assert attempts.poll() is None
    with monkeypatch.context() as ctrl_c:
        ctrl_c.setattr(Run, "end", interrupted)
        with pytest.raises(KeyboardInterrupt) as caught:
            attempts.poll()
    attempts.end(caught.value)

    assert desk.metrics["cost_usd"] == pytest.approx(0.01)
    assert desk.client.get_run(desk.run_id).info.status == "FINISHED"


def test_a_job_that_completes_before_it_can_be_stopped_leaves_no_checkpoints(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[str] = []
    monkeypatch.setattr(ScriptedJob, "clean_up", lambda job: cleaned.append(job.name))
    attempts = desk.attempts(ScriptedLauncher([DONE]))
    assert attempts.poll() is None

    end = attempts.end(Interrupted("interrupted by SIGINT"))

    assert end.has_completed
    assert cleaned == desk.names(1)


def test_a_job_that_cannot_be_looked_for_keeps_its_run_open(desk: Desk) -> None:
    class Deaf(ScriptedLauncher):
        def attach(self, job_name: str) -> Job | None:
            raise LaunchRefused("AWS does not answer")

    with pytest.raises(LostContact, match="sync"):
        desk.attempts(Deaf([DONE]))


def test_a_type_to_fall_back_on_must_fit_the_budget_too() -> None:
    spec = JobSpec(instance_type=SMALL, fallback_instance_types=OTHER, max_runtime_minutes=60.0, max_cost_usd=3.9)
    launcher = ScriptedLauncher([])

    for limit in (3.9, 0.1):  # the refusal names the most expensive type, even if the first one costs too much, too
        with pytest.raises(BudgetRefused, match=r"worst case 4\.00 USD"):
            admit(spec.replace(max_cost_usd=limit), launcher, {})

    assert admit(spec.replace(max_cost_usd=4.0), launcher, {}) == 4.0  # for the most expensive type
    with pytest.raises(BudgetRefused, match=r"the price of ml\.m5\.large in \S+ is not known"):
        admit(spec.replace(max_cost_usd=4.0, fallback_instance_types="ml.m5.large"), launcher, {})
    assert admit(spec.replace(max_cost_usd=None, fallback_instance_types="ml.m5.large"), launcher, {}) is None


def test_instances_of_an_attempt_without_memory_are_given_back_before_the_next_and_those_of_a_stopped_job_too(
    desk: Desk,
) -> None:
    launcher = ScriptedLauncher([MEMORY, ENDLESS])
    launcher.keeps = True
    job = desk.attempts(launcher)
    while len(launcher.created) < 2:
        job.poll()
    first, second = launcher.created
    assert (launcher.pools[first].is_kept, launcher.pools[second].is_kept) == (False, True)

    job.end(Interrupted("interrupted by SIGINT"))

    assert not launcher.pools[second].is_kept
    assert job.bill.cost_usd == pytest.approx((2 * SECONDS + 2 * 9) / 3600)


def test_kept_instances_that_aws_does_not_show_stay_promised_and_are_left_to_sync(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: ScriptedJob) -> None:
        raise LostContact("the AWS credentials have expired")

    monkeypatch.setattr(ScriptedJob, "warm_pool", refuse)
    job = desk.attempts(ScriptedLauncher([DONE]), sagemaker={"keep_alive_minutes": 30.0})
    desk.follow(job)

    assert job.bill.kept_usd == pytest.approx(0.5)
    assert desk.tags["warm_pool"] == "Available"


def test_a_trial_is_not_tried_again_with_a_smaller_batch_by_any_process(desk: Desk) -> None:
    launcher = ScriptedLauncher([MEMORY, DONE])
    desk.attempts(launcher, per_device_train_batch_size=16)
    plan = json.loads(desk.tracking.artifact_text(desk.run_id or "", PLAN) or "")
    desk.client.log_text(desk.run_id or "", json.dumps(plan | {"retries": ["capacity", "internal"]}), PLAN)

    with pytest.raises(OutOfMemory) as caught:
        desk.follow(desk.attempts(launcher, per_device_train_batch_size=16))  # another process

    assert launcher.created == desk.names(1)
    assert desk.metrics["cost_usd"] == pytest.approx(0.01)
    assert "with per-device batch 16; its study, which chooses the batches, does not try" in str(caught.value)
    assert "smallest" not in desk.tags["failure_reason"]


def test_a_run_names_the_commit_of_a_model_of_the_hub_and_each_attempt_trains_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def prepared(*_: Any, revision: str | None, **__: Any) -> JobInputs:
        asked.append(revision)
        return JobInputs()

    monkeypatch.setattr(ScriptedLauncher, "traits", replace(SAGEMAKER, files_travel=False))  # as for a shared disk
    job = desk.attempts(ScriptedLauncher([MEMORY, DONE]), per_device_train_batch_size=16)
    inputs = JobInputs(model=Path("models--google--bert", "snapshots", "0a1b2c"))
    job.record.describe(replace(job.record.plan, inputs=inputs, revision=inputs.revision))
    monkeypatch.setattr("paretune.jobs.plan.inputs_of", prepared)
    job.record.plan = replace(job.record.plan, inputs=None)
    desk.follow(job)

    assert asked == [desk.tags["model_revision"]] == ["0a1b2c"]
    again = desk.attempts(ScriptedLauncher([DONE]), per_device_train_batch_size=16)  # in another process
    assert again.record.plan.revision == "0a1b2c"


def test_recording_never_lowers_the_dollars_that_a_run_has(desk: Desk) -> None:
    launcher = ScriptedLauncher([DONE])
    desk.follow(desk.attempts(launcher))
    desk.client.log_metric(desk.run_id or "", "cost_usd", 0.5, step=9)  # another process has seen more

    desk.follow(desk.attempts(launcher))

    assert desk.metrics["cost_usd"] == 0.5


def test_a_report_cannot_lower_the_bill(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    lie = JobReport(metrics={"f1": 0.75, "cost_usd": -5.0, "billable_seconds": 0.0, "warm_pool_seconds": 0.0})
    monkeypatch.setattr(ScriptedJob, "report", lambda _: lie)

    desk.follow(desk.attempts(ScriptedLauncher([DONE])))

    assert (desk.metrics["cost_usd"], desk.metrics["billable_seconds"]) == (pytest.approx(0.01), SECONDS)
    assert "warm_pool_seconds" not in desk.metrics  # `sync` takes it as a sign that kept instances are recorded

    monkeypatch.delitem(PRICES, SMALL)
    desk.run_id = None
    desk.follow(desk.attempts(ScriptedLauncher([DONE])))
    assert "cost_usd" not in desk.metrics


def test_an_interruption_stops_the_attempt_that_runs_and_not_only_those_before_it(desk: Desk) -> None:
    launcher = ScriptedLauncher([MEMORY, ENDLESS])
    first = desk.attempts(launcher, per_device_train_batch_size=16)
    while len(launcher.created) < 2:
        first.poll()
    again = desk.attempts(launcher, per_device_train_batch_size=16)  # after a kill
    while again.order.attempt == 1:
        again.poll()

    again.end(Interrupted("interrupted by SIGINT"))

    assert again.current is not None
    assert (again.current.name, again.current.state()) == (desk.names(2)[1], JobState.STOPPED)
    assert again.bill.cost_usd == pytest.approx(0.02)
