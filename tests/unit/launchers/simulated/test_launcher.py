"""The simulated launcher: the contract, and what only jobs on a virtual clock can do."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from paretune.core.clock import Clock
from paretune.core.errors import BadInput
from paretune.launchers.base import Job
from paretune.launchers.deadlines import output_of
from paretune.launchers.offers import limits_of, order_of
from paretune.launchers.simulated.jobs import VirtualClock
from paretune.launchers.simulated.launcher import SimulatedLauncher
from paretune.launchers.simulated.timeline import STOP_SECONDS, Timeline
from paretune.specification.container import Event, JobInputs, JobReport
from paretune.specification.ending import Cause, JobState
from paretune.specification.job import JobSpec
from paretune.specification.parallelism import BatchPlan
from paretune.testing import FAILURE, LAST_STEP, LauncherContract, Place, planned

STARTED = (0.0, Event(time=0.0, step=0, message="started"))
LOSSES = tuple((float(step), Event(time=0.0, step=step, metrics={"train/loss": 1 / step})) for step in range(1, 6))
assert LAST_STEP == 5


def timeline_of(spec: JobSpec, batch: BatchPlan, attempt: int) -> Timeline:
    """Return the timelines of the contract suite's jobs; the name of the model is the kind of a job."""
    if spec.model == "quick":
        return Timeline(
            phases=(("Training", 6.0),),
            events=(STARTED, *LOSSES),
            report=JobReport(metrics={"f1": 0.75}, facts={"seed": spec.seed}),
            log=tuple(f"line {number}" for number in range(1, 41)),
        )
    if spec.model == "failing":
        return Timeline(phases=(("Training", 3.0),), events=(STARTED,), failure=(Cause.DISK_FULL, FAILURE.sentence))
    if spec.model == "waiting":
        return Timeline(
            phases=(
                ("Starting", 100.0),
                ("Downloading", 20.0),
                ("Interrupted", 40.0),
                ("Training", 80.0),
            ),
            events=((100.0, STARTED[1]),),
            report=JobReport(metrics={}),
        )
    return Timeline(phases=(("Training", math.inf),), events=(STARTED,))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def clock(home: Path) -> VirtualClock:
    return VirtualClock(home)


def job_of(kind: str, **changes: object) -> tuple[JobSpec, JobInputs]:
    return JobSpec(model=kind, launcher="simulated", **changes), JobInputs()  # type: ignore[arg-type]


@pytest.fixture
def place(home: Path, clock: VirtualClock) -> Place:
    def another() -> SimulatedLauncher:
        return SimulatedLauncher(home, VirtualClock(home), {}, timeline_of)

    return Place(
        launcher=SimulatedLauncher(home, clock, {}, timeline_of),
        another=another,
        job=job_of,
        let_time_pass=lambda: clock.sleep(0.5),
    )


class TestSimulatedLauncherKeepsTheContract(LauncherContract):
    """Runs the contract with the fixture `place`."""


def follow(clock: Clock, *jobs: Job) -> list[float]:
    """Follow jobs to their ends, and return the virtual moments at which somebody had to poll."""
    looks = []
    while not all(job.state().is_terminal for job in jobs):
        clock.sleep(0.5)
        looks.append(clock.now())
    return looks


def test_no_sleep_passes_over_the_event_of_another_job(place: Place, clock: VirtualClock) -> None:
    start = clock.now()
    first = place.submit("waiting")
    clock.sleep(0.5)
    second = place.submit("quick")
    looks = follow(clock, first, second)

    assert [moment - start for moment in looks[:6]] == pytest.approx([101, 102, 103, 104, 105, 106])


@pytest.mark.parametrize(
    ("limit_minutes", "state", "seconds", "billed"),
    [
        (60.0, JobState.COMPLETED, 240, 100),
        (0.5, JobState.STOPPED, 100 + 20 + 40 + 10 + STOP_SECONDS, 30 + STOP_SECONDS),
    ],
)
def test_waiting_and_interruptions_are_not_billed_and_do_not_count_in_the_maximum_runtime(
    place: Place, clock: VirtualClock, limit_minutes: float, state: JobState, seconds: float, billed: float
) -> None:
    job = place.submit("waiting", max_runtime_minutes=limit_minutes)
    follow(clock, job)

    assert job.state() is state
    assert job.status().seconds == pytest.approx(seconds)
    assert job.status().billable_seconds == pytest.approx(billed)


def test_nothing_is_created_for_a_job_that_cannot_be_answered(home: Path, clock: VirtualClock) -> None:
    def unknown(spec: JobSpec, batch: BatchPlan, attempt: int) -> Timeline:
        raise BadInput(["not in the table"])

    launcher = SimulatedLauncher(home, clock, {}, unknown)
    spec, _ = job_of("quick")
    with pytest.raises(BadInput):
        launcher.submit(order_of(spec, job_name="paretune-test-1"))
    with pytest.raises(BadInput, match="not in the table"):
        launcher.place(spec)

    assert launcher.attach("paretune-test-1") is None


def test_the_course_of_a_job_is_computed_once_for_check_dry_run_and_job(home: Path, clock: VirtualClock) -> None:
    asked = list[int]()

    def counted(spec: JobSpec, batch: BatchPlan, attempt: int) -> Timeline:
        asked.append(attempt)
        return timeline_of(spec, batch, attempt)

    launcher = SimulatedLauncher(home, clock, {}, counted)
    order = planned(launcher, *job_of("quick"))

    assert launcher.preview(order)["metrics"] == {"f1": 0.75}
    assert launcher.submit(order).state() is JobState.RUNNING
    assert asked == [1]
    launcher.submit(order.next(attempt=2, spent_s=1.0))
    assert asked == [1, 2]


def test_what_happens_to_a_job_is_decided_when_it_is_created(place: Place, home: Path) -> None:
    order = place.order("waiting")
    place.launcher.submit(order)

    def not_asked(spec: JobSpec, batch: BatchPlan, attempt: int) -> Timeline:
        raise AssertionError("the table may have gone by now")

    later = SimulatedLauncher(home, VirtualClock(home), {}, not_asked)
    adopted = later.submit(order)
    follow(later._clock, adopted)

    assert adopted.state() is JobState.COMPLETED
    assert adopted.status().billable_seconds == 100


def test_the_worst_case_is_that_of_sagemaker_and_an_upload_is_outside_the_limit(
    home: Path, clock: VirtualClock
) -> None:
    phases = (("Training", 50.0), ("Uploading", 30.0))
    timeline = Timeline(phases=phases, report=JobReport(metrics={}))
    launcher = SimulatedLauncher(home, clock, {}, lambda *_: timeline)
    spec = JobSpec(launcher="simulated", instance_type="ml.g5.xlarge", max_runtime_minutes=1.0)
    job = launcher.submit(planned(launcher, spec))
    clock.sleep(100.0)

    assert limits_of(spec, launcher, {}).billed_after_s == output_of(spec, {}).billed_after_limit_s
    assert limits_of(spec.replace(instance_type="local"), launcher, {}).billed_after_s == STOP_SECONDS
    assert job.state() is JobState.COMPLETED
    assert job.status().billable_seconds == pytest.approx(80.0)


def test_a_job_that_fails_by_chance_still_says_which_metrics_it_would_have(home: Path, clock: VirtualClock) -> None:
    launcher = SimulatedLauncher(home, clock, {}, timeline_of)
    spec, inputs = job_of("quick")
    order = planned(launcher, spec.replace(simulation=spec.simulation.replace(failure_rate=1.0)), inputs)
    fails = replace(order, place={"timeline": {**order.place["timeline"], "report": None}})

    assert launcher.preview(fails)["metrics"] == {"f1": 0.75}
