"""Jobs with `finish_by`: the policy, the plan, and what follows from it while the job runs or its driver is killed."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from paretune.core.clock import SystemClock
from paretune.core.errors import BadInput, LostContact
from paretune.estimating.forecast import Forecast
from paretune.estimating.phases import Seconds
from paretune.estimating.time_estimate import TimeEstimate
from paretune.jobs.deadline import On, Plan, as_planned, choose, plan_job, probability, seconds_at, starting_s
from paretune.jobs.launch import launch, run_job
from paretune.jobs.record import JobRecord
from paretune.jobs.retrying_job import RetryingJob
from paretune.jobs.workplace import Workplace
from paretune.launchers.base import Job
from paretune.pricing.prices import Price
from paretune.specification.container import Event, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.limits import finish_moment
from paretune.tracking import Tracking, schema
from tests.unit.jobs.test_retrying_job import (
    CAPACITY,
    DONE,
    SMALL,
    Clock,
    Ending,
    ScriptedJob,
    ScriptedLauncher,
    first_document,
)
from tests.workplaces import make_workplace

HOUR = 3600.0


def exactly(seconds: float) -> Seconds:
    return Seconds(seconds=seconds, seconds_low=seconds, seconds_high=seconds)


def about(seconds: float, factor: float) -> Seconds:
    return Seconds(seconds=seconds, seconds_low=seconds / factor, seconds_high=seconds * factor)


CERTAIN = {"starting": exactly(100.0), "data": exactly(50.0), "image": exactly(50.0), "uploading": exactly(30.0)}
"""With 195 s of the training's, a start takes 395 s."""


def with_training(training: Seconds) -> dict[str, Seconds]:
    return {**CERTAIN, "training": training}


def test_the_seconds_left_are_those_of_the_phases_with_the_start_paid_again() -> None:
    phases = with_training(exactly(4000.0))

    assert seconds_at(phases, 0.0, 0.0) == pytest.approx(4230.0)
    assert seconds_at(phases, 0.5, 0.0) == pytest.approx(230.0 + 195.0 + 3805.0 / 2)


def test_seconds_at_a_confidence_add_the_deviations_of_the_phases_in_squares() -> None:
    phases = {**CERTAIN, "starting": about(100.0, 2.0), "training": about(4000.0, 1.1)}
    z = 1.2816  # 90 %: the upper end of an interval that holds 80 %
    deviations = math.hypot(100.0, 0.1 * 3805.0)

    assert seconds_at(phases, 0.0, z) == pytest.approx(4230.0 + deviations)
    assert probability(phases, 0.0, 4230.0 + deviations) == pytest.approx(0.9, abs=1e-3)


def test_spot_is_waited_for_until_a_lost_start_and_the_training_on_demand_just_fit() -> None:
    phases = with_training(exactly(4 * HOUR))
    need = 230.0 + 4 * HOUR + 395.0 + 60.0  # on demand, a start on spot, half of the time between two checkpoints
    early, late = (
        choose(phases, On.NOTHING, left_s=need + spare, progress=0.0, confidence=0.95) for spare in (500.0, -1.0)
    )

    assert (early.spot, early.review_s) == (True, pytest.approx(500.0))
    assert not late.spot


def test_a_higher_confidence_changes_to_on_demand_earlier() -> None:
    phases = with_training(about(4 * HOUR, 1.2))
    waits = [
        choose(phases, On.NOTHING, left_s=8 * HOUR, progress=0.0, confidence=each).review_s
        for each in (0.8, 0.95, 0.99)
    ]

    assert waits == sorted(waits, reverse=True)


def test_a_job_that_trains_on_spot_stays_there_while_it_could_start_again_or_if_it_no_longer_can() -> None:
    phases = with_training(exactly(4 * HOUR))

    assert choose(phases, On.SPOT, left_s=700.0, progress=0.98, confidence=0.95).spot
    assert choose(phases, On.SPOT, left_s=4.3 * HOUR, progress=0.0, confidence=0.95).spot
    assert not choose(phases, On.SPOT, left_s=4 * HOUR + 330.0, progress=0.0, confidence=0.95).spot


def test_a_job_goes_back_to_spot_only_for_a_long_wait_and_a_long_training() -> None:
    phases = with_training(exactly(4 * HOUR))

    assert choose(phases, On.DEMAND, left_s=6 * HOUR, progress=0.1, confidence=0.95).spot
    assert not choose(phases, On.DEMAND, left_s=4.2 * HOUR, progress=0.1, confidence=0.95).spot
    assert not choose(phases, On.DEMAND, left_s=6 * HOUR, progress=0.6, confidence=0.95).spot


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6h", 6 * HOUR),
        ("90m", 1.5 * HOUR),
        ("1d12h", 36 * HOUR),
        ("1970-01-01T02:00+01:00", HOUR),
        ("1970-01-02T00:00Z", 86_400),
    ],
)
def test_a_time_needs_its_zone_and_a_duration_its_unit(text: str, seconds: float) -> None:
    assert finish_moment(text, 0.0) == seconds


@pytest.mark.parametrize("text", ["1 h", "tomorrow", "2026-11-24T08:00", "0h", "29d", "6", "h", "٦h"])
def test_what_is_no_duration_and_no_time_with_a_zone_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(BadInput, match="finish_by must be a duration such as 6h"):
        JobSpec(finish_by=text)


def test_all_faults_of_a_deadline_are_reported_at_once() -> None:
    with pytest.raises(BadInput) as refused:
        JobSpec(finish_by="tomorrow", finish_confidence=1.0, instance_type=SMALL, spot=True)

    assert len(refused.value.faults) == 3


@dataclass
class Setting:
    """A workplace with a scripted launcher, on a clock that the test moves."""

    clock: Clock
    launcher: ScriptedLauncher
    workplace: Workplace

    def plan(self, spec: JobSpec, hours: float = 2.0, scaling: float = 1.0) -> tuple[JobSpec, Plan]:
        return plan_job(spec, self.workplace, lambda job: self.estimate(job, hours / job.instance_count**scaling))

    def estimate(self, spec: JobSpec, hours: float) -> TimeEstimate:
        price = Price(usd_per_hour=1.0, region="r", as_of="2026-01-01", source="test")
        return TimeEstimate(spec=spec, measured_here=1, time=about(hours * HOUR, 1.1), price=price, basis="a test")

    def job(self, spec: JobSpec, plan: Plan | None, run_id: str | None = None) -> RetryingJob:
        """A driver of the job; the first one records the plan, a later one reads it."""
        run = None if run_id is None else self.workplace.tracking.run(run_id)
        record = JobRecord(spec, self.workplace, run=run)
        if plan is not None:
            record.describe(JobInputs(), deadline=plan)
            record.run.flush()
        else:
            record.adopt()
        made = RetryingJob(record, first_document(record), lambda _: None, JobInputs)
        made.begin()
        return made


@pytest.fixture
def setting(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    endings: list[Ending | Exception] = ["endless", DONE]
    clock, launcher = Clock(), ScriptedLauncher(endings)
    monkeypatch.setattr(ScriptedJob, "detail", lambda job: "Pending" if job.document.spec.spot else "Training")
    place = make_workplace(launcher=launcher, tracking=Tracking({}, SystemClock()), clock=clock)
    return Setting(clock, launcher, place)


LONG = JobSpec(instance_type=SMALL, finish_by="6h", max_runtime_minutes=300)


def test_a_job_that_gets_no_spot_instances_changes_to_on_demand_when_the_plan_says(setting: Setting) -> None:
    spec, plan = setting.plan(LONG)
    job = setting.job(spec, plan)
    while len(setting.launcher.created) < 2:
        assert job.poll() is None
        setting.clock.sleep(10.0)
    spot, on_demand = setting.launcher.documents

    assert (spot.spec.spot, on_demand.spec.spot) == (True, False)
    assert setting.clock.now() == pytest.approx(plan.on_demand_at, abs=60.0)
    assert spot.spec.spec_hash() == on_demand.spec.spec_hash()  # they share their checkpoints
    assert (spot.spec.max_wait_minutes or 0) == pytest.approx(360.0)
    while (end := job.poll()) is None:
        setting.clock.sleep(10.0)
    assert end.completed is not None
    note = job.record.run.tags()[schema.NOTE]
    shown = "\n".join(note.splitlines()[:4])  # by MLflow, before a click on "Show more"
    assert "early after 1 change between spot and on demand. Plan: finish by" in shown


def test_a_driver_that_is_killed_before_its_stop_is_followed_by_one_that_goes_on_with_its_decision(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(job: Job) -> None:
        raise SystemExit

    spec, plan = setting.plan(LONG)
    job = setting.job(spec, plan)
    stop = ScriptedJob.stop
    monkeypatch.setattr(ScriptedJob, "stop", killed)
    setting.clock.time = plan.on_demand_at + 1
    with pytest.raises(SystemExit):
        job.poll()
    monkeypatch.setattr(ScriptedJob, "stop", stop)
    setting.clock.time -= 600.0  # not what makes the next one change
    again = setting.job(spec, None, job.record.run.run_id)
    while (end := again.poll()) is None:
        setting.clock.sleep(10.0)

    assert end.completed is not None
    assert [document.spec.spot for document in setting.launcher.documents] == [True, False]
    assert len(set(setting.launcher.created)) == 2


def test_a_stop_that_aws_does_not_answer_is_asked_for_again(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, stop = [], ScriptedJob.stop

    def unanswered_once(job: ScriptedJob) -> None:
        asked.append(job.name)
        if len(asked) == 1:
            raise LostContact("no answer")
        stop(job)

    spec, plan = setting.plan(LONG)
    job = setting.job(spec, plan)
    monkeypatch.setattr(ScriptedJob, "stop", unanswered_once)
    setting.clock.time = plan.on_demand_at + 1
    for _ in range(9):
        job.poll()

    assert len(asked) == 2
    assert [document.spec.spot for document in setting.launcher.documents] == [True, False]


@pytest.mark.parametrize("moment", [0.0, 9e10])
def test_progress_counts_from_no_time_outside_the_life_of_the_job(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, moment: float
) -> None:
    """The clock of a job may be wrong, or a job may lie."""
    spec, plan = setting.plan(LONG.replace(finish_by="4h"), hours=3.0)
    job = setting.job(spec, replace(plan, instances={1: False}))
    deadline = job.record.deadline
    event = Event(time=moment, step=100, total_steps=1000)
    monkeypatch.setattr(ScriptedJob, "events", lambda _: [event])
    job.poll()

    assert deadline is not None
    assert deadline._progress_at(setting.clock.now()) == pytest.approx(0.1, abs=0.01)
    hour = HOUR / plan.phases["training"].seconds_high
    assert deadline._progress_at(setting.clock.now() + HOUR) == pytest.approx(0.1 + hour, abs=0.01)


def test_a_job_whose_spot_request_aws_refuses_goes_on_on_demand(setting: Setting) -> None:
    setting.launcher.endings[:] = [CAPACITY, DONE]
    job = setting.job(*setting.plan(LONG))
    while (end := job.poll()) is None:
        setting.clock.sleep(1.0)

    assert end.completed is not None
    assert [document.spec.spot for document in setting.launcher.documents] == [True, False]


def test_progress_that_shows_a_faster_training_takes_the_job_back_to_spot(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, plan = setting.plan(LONG.replace(finish_by="4h", max_runtime_minutes=600), hours=3.0)
    plan = replace(plan, instances={1: False})
    job = setting.job(spec, plan)
    begun = setting.clock.now() + 400.0
    for step in (10, 40, 100):  # of 1,000 in 9,000 s, and in 3,000 s in truth
        setting.clock.time = begun + 8.0 * step
        event = Event(time=setting.clock.now(), step=step, total_steps=1000)
        monkeypatch.setattr(ScriptedJob, "events", lambda _, event=event: [event])
        job.poll()

    assert job.record.deadline is not None
    assert dict(job.record.deadline.plan.instances) == {1: False, 2: True}


def test_the_same_command_adopts_the_job_on_the_larger_cluster_of_its_plan(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    launcher, spec = setting.launcher, LONG.replace(finish_by="80m")
    launcher.endings[:] = ["endless"]
    launcher.reads_inputs = False
    monkeypatch.setattr(Forecast, "time_of", lambda _, job, *__: setting.estimate(job, 2.0 / job.instance_count**0.9))
    with monkeypatch.context() as dying:
        dying.setattr(RetryingJob, "wait", killed)
        dying.setattr(
            "paretune.jobs.launch._leave_or_abandon", lambda *_: None
        )  # a process that is killed does nothing
        with pytest.raises(SystemExit):
            run_job(spec, setting.workplace, lambda _: None)
    (job,) = launcher.jobs.values()
    (run,) = setting.workplace.tracking.unfinished()
    setting.workplace.tracking.run(run.run_id).set_tags({schema.WATCHED_BY: ""})
    job.ending = DONE
    setting.clock.time += 1800.0  # a new plan would have another cluster
    result = run_job(spec, setting.workplace, lambda _: None)

    assert len(launcher.created) == 1
    assert (result.run_id, result.params["instance_count"]) == (run.run_id, "4")
    assert setting.workplace.tracking.run(run.run_id).tags()[schema.COMMAND] == spec.command()


def test_a_larger_cluster_is_planned_where_the_time_needs_it_and_with_the_same_global_batch(setting: Setting) -> None:
    spec, plan = setting.plan(LONG.replace(finish_by="80m"), hours=2.0, scaling=0.9)

    assert spec.instance_count == plan.instance_count == 4  # two would be in time on demand only
    assert plan.instances == {1: True}
    assert spec.plan().global_batch_size == LONG.plan().global_batch_size
    assert as_planned(LONG, plan).instance_count == 4
    assert setting.plan(LONG, hours=2.0)[0].instance_count == 1


def test_a_deadline_that_no_cluster_can_meet_and_a_limit_that_is_too_low_are_refused_together(setting: Setting) -> None:
    with pytest.raises(BadInput) as refused:
        setting.plan(LONG.replace(finish_by="10m", max_runtime_minutes=30), hours=3.0)

    late, limit = refused.value.faults
    assert late.startswith("finish_by=10m leaves 10 m, and start-up, training and upload on 1 x ml.g5.xlarge take 3 h")
    assert JobSpec(finish_by=late.partition(": set ")[2].split()[0]).finish_by  # the time can be pasted
    assert limit.startswith("max_runtime_minutes must be at least ")


def test_the_limit_has_to_cover_spot_instances_that_are_lost_once(setting: Setting) -> None:
    estimate = setting.estimate(LONG, 2.0)
    phases = {name: part for name, part in estimate.phases.items() if name != "waiting"}
    once = seconds_at(phases, 0.0, 1.645) - phases["starting"].seconds
    twice = once + starting_s(phases) + 120.0

    with pytest.raises(BadInput, match=f"at least {math.ceil(twice / 60)} for .* spot instances that are lost once"):
        setting.plan(LONG.replace(max_runtime_minutes=math.ceil(once / 60) + 1), scaling=0.0)
    with pytest.raises(BadInput, match=f"at least {math.ceil(once / 60)} for finish_by with probability 0.95, got"):
        setting.plan(LONG.replace(max_runtime_minutes=100, finish_by="140m"), scaling=0.0)
    assert setting.plan(LONG.replace(max_runtime_minutes=math.ceil(twice / 60)))[1].instances == {1: True}


def test_a_local_job_has_a_plan_without_instances(setting: Setting) -> None:
    _, plan = setting.plan(JobSpec(finish_by="3h", max_runtime_minutes=180))

    assert plan.instances == {1: False}
    assert plan.sentence().endswith("with probability 0.95: 1 instance on demand, 2 USD")


def test_a_dry_run_shows_the_plan_and_the_request_of_its_first_attempt(workplace: Path) -> None:
    spec = JobSpec(
        launcher="simulated", instance_type=SMALL, max_train_samples=400_000, max_runtime_minutes=300, finish_by="6h"
    )
    preview = launch(spec, dry_run=True)

    assert "with probability 0.95: 1 instance on spot, about " in preview.document["finish_by"]
    assert len(preview.document["finish_by"]) < 160
    assert preview.summary["plan"] == preview.document["finish_by"]


def test_a_time_in_the_past_is_refused(setting: Setting) -> None:
    with pytest.raises(BadInput, match="finish_by=2020-01-01T08:00Z is over"):
        setting.plan(LONG.replace(finish_by="2020-01-01T08:00Z"))


def test_a_plan_survives_its_tag(setting: Setting) -> None:
    _, plan = setting.plan(LONG)

    assert Plan.read({schema.DEADLINE: plan.as_json()}) == plan
    assert Plan.read({}) is None
