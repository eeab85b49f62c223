"""The tests that every launcher must pass, for authors of launchers. They need pytest.

Subclass `LauncherContract` in a test module, and define the fixture `place`, which returns a `Place`:

    class TestMyLauncher(LauncherContract):
        @pytest.fixture
        def place(self, tmp_path: Path) -> Place:
            launcher = MyLauncher(tmp_path)
            return Place(launcher=launcher, another=lambda: MyLauncher(tmp_path), order=order)

`order` makes the jobs of the tests, which run a program of yours instead of a training: see `Place`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import pytest

from paretune.launchers.base import Job, Launcher
from paretune.specification.container import Event, JobDocument, JobInputs
from paretune.specification.ending import COMPLETED, STOPPED, Cause, Ending, JobState, failed

FAILURE = failed(Cause.DISK_FULL, "the disk is full: of sand")  # how a `failing` job ends
LAST_STEP = 5  # the step of the last event of a `quick` job


class Order(Protocol):
    """Returns the document and inputs of a new job of this `kind`. `changes` are fields of its specification."""

    def __call__(self, kind: str, **changes: object) -> tuple[JobDocument, JobInputs]: ...


@dataclass(frozen=True, kw_only=True)
class Place:
    """A launcher under test, and the jobs that it can run.

    Attributes:
        launcher: the launcher under test.
        another: opens a second launcher for the same jobs, as another process would do.
        order: returns the document and inputs of a job with a new name, of one of these kinds:
            `quick` sends the event "started" at step 0 and {"train/loss": 1 / step} at steps 1 to LAST_STEP, prints
            "line 1" to "line 40", and ends with the report {"f1": 0.75} and the fact job_name;
            `failing` sends "started" and fails with FAILURE;
            `long` sends "started", runs until it is stopped, and sends "stopped" at step 1 before it ends.
        let_time_pass: called between two polls of a job.
        within_s: the longest time that a test waits for a job.
        shortest_runtime_minutes: a maximum runtime that a `long` job reaches within `within_s`.
        is_from_the_job: returns False for events that the launcher adds itself, such as a status.
    """

    launcher: Launcher
    another: Callable[[], Launcher]
    order: Order
    let_time_pass: Callable[[], None] = lambda: time.sleep(0.02)
    within_s: float = 30.0
    shortest_runtime_minutes: float = 0.5 / 60
    is_from_the_job: Callable[[Event], bool] = lambda event: True

    def submit(self, kind: str, **changes: object) -> Job:
        """Submit a new job."""
        return self.launcher.submit(*self.order(kind, **changes))

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait until a condition is true. Fail with `what` if it takes longer than `within_s`."""
        deadline = time.monotonic() + self.within_s
        while not true():
            assert time.monotonic() < deadline, f"not within {self.within_s:g} s: {what}"
            self.let_time_pass()

    def end(self, job: Job) -> JobState:
        """Wait for the job's end, and return its state."""
        self.until(lambda: job.state().is_terminal, f"{job.name} ends, is {job.state()}")
        return job.state()

    def events(self, job: Job) -> list[Event]:
        """Return the new events that the job itself sent."""
        return [event for event in job.events() if self.is_from_the_job(event)]

    def first_event(self, job: Job) -> list[Event]:
        """Wait until the job has sent an event, and return the events so far."""
        events: list[Event] = []

        def poll() -> bool:
            job.state()  # some launchers look at their jobs only in this call
            events.extend(self.events(job))
            return bool(events)

        self.until(poll, f"{job.name} sends an event")
        return events

    def attached(self, name: str) -> Job:
        """Find the job with a second launcher, and return it."""
        job = self.another().attach(name)
        assert job is not None
        return job


class LauncherContract:
    """The tests that every launcher must pass."""

    def test_a_job_of_the_same_name_is_adopted_and_not_started_again(self, place: Place) -> None:
        document, inputs = place.order("long")
        first = place.launcher.submit(document, inputs)
        place.first_event(first)

        again = place.launcher.submit(document, inputs)
        elsewhere = place.another().submit(document, inputs)

        assert again.name == elsewhere.name == first.name
        assert again.state() is elsewhere.state() is JobState.RUNNING
        first.stop()
        place.end(first)
        assert [event.message for event in place.events(again)] == ["started", "stopped"]

    @pytest.mark.parametrize(("kind", "ending"), [("quick", COMPLETED), ("failing", FAILURE)])
    def test_an_end_is_seen_from_another_launcher_first_and_no_stop_and_no_second_order_changes_it(
        self, place: Place, kind: str, ending: Ending
    ) -> None:
        document, inputs = place.order(kind)
        job = place.launcher.submit(document, inputs)
        seen = place.attached(job.name)
        assert place.end(seen) is ending.state  # although the first launcher never looks
        assert job.state() is ending.state
        status = job.status()
        assert status.ending == seen.status().ending == ending

        job.stop()
        place.let_time_pass()
        again = place.launcher.submit(document, inputs)

        for one in (job, place.attached(job.name), again):
            assert (one.state(), one.status()) == (ending.state, status)
        assert sum(event.message == "started" for event in place.events(again)) == 1

    def test_a_job_is_created_with_the_setup_that_was_made_when_it_was_checked(self, place: Place) -> None:
        document, inputs = place.order("quick")
        checked = place.launcher.check(document.spec)

        job = place.launcher.submit(document, inputs, place.launcher.check_inputs(checked, inputs))

        assert place.end(job) is JobState.COMPLETED
        assert checked.spec.spec_hash() == document.spec.spec_hash()  # it computes the same

    def test_a_job_belongs_to_the_run_that_has_ordered_it_first(self, place: Place) -> None:
        document, inputs = place.order("long")
        job = place.launcher.submit(replace(document, run_id="first"), inputs)
        place.first_event(job)

        again = place.another().submit(replace(document, run_id="second"), inputs)

        assert [each.run_id for each in (job, again, place.attached(job.name))] == ["first"] * 3
        job.stop()
        place.end(job)

    def test_attach_to_a_name_that_nobody_used_is_none(self, place: Place) -> None:
        assert place.launcher.attach("paretune-nobody-1") is None

    def test_events_come_once_each_and_in_order_and_the_rest_after_the_end(self, place: Place) -> None:
        job = place.submit("quick")
        seen = place.first_event(job)
        place.end(job)
        seen += place.events(job)

        assert seen[0].message == "started"
        assert [event.step for event in seen] == list(range(LAST_STEP + 1))
        assert [event.metrics["train/loss"] for event in seen[1:]] == [1 / step for step in range(1, LAST_STEP + 1)]
        assert place.events(job) == []
        assert place.events(place.attached(job.name)) == seen

    def test_only_a_completed_job_has_a_report_and_only_a_failed_one_a_cause(self, place: Place) -> None:
        running, quick, failing = place.submit("long"), place.submit("quick"), place.submit("failing")
        place.first_event(running)
        assert place.end(quick) is JobState.COMPLETED
        assert place.end(failing) is JobState.FAILED

        assert [job.status().report is None for job in (running, quick, failing)] == [True, False, True]
        assert [job.status().ending for job in (running, quick, failing)] == [None, COMPLETED, FAILURE]
        report = quick.status().report
        assert report is not None
        assert (report.metrics, report.facts) == ({"f1": 0.75}, {"job_name": quick.name})
        assert quick.status().model
        running.stop()
        place.end(running)
        assert (running.status().report, running.status().ending) == (None, STOPPED)

    @pytest.mark.parametrize("elsewhere", [False, True], ids=["by the submitter", "by another launcher"])
    def test_a_job_that_is_stopped_ends_in_stopped_with_its_last_events(self, place: Place, elsewhere: bool) -> None:
        job = place.submit("long")
        seen = place.first_event(job)

        for _ in range(2):  # a second stop changes nothing
            (place.attached(job.name) if elsewhere else job).stop()

        place.until(lambda: job.state() in {JobState.STOPPING, JobState.STOPPED}, "the job is about to stop")
        assert place.end(job) is JobState.STOPPED
        assert [event.message for event in seen + place.events(job)] == ["started", "stopped"]

    def test_seconds_grow_until_the_end_and_not_after_it(self, place: Place) -> None:
        job = place.submit("long")
        early = job.status().seconds
        place.until(lambda: job.status().seconds > early, "time passes")
        job.stop()
        place.end(job)

        end = job.status().seconds
        place.let_time_pass()

        assert end > early >= 0
        assert job.status().seconds == place.attached(job.name).status().seconds == end

    def test_the_log_tail_holds_the_last_lines_that_were_printed(self, place: Place) -> None:
        job = place.submit("quick")
        place.end(job)

        assert job.log_tail(3) == ["line 38", "line 39", "line 40"]
        assert len(job.log_tail()) == 15
        assert job.log_location()

    def test_a_job_ends_at_its_maximum_runtime_and_says_so(self, place: Place) -> None:
        job = place.submit("long", max_runtime_minutes=place.shortest_runtime_minutes)

        assert place.end(job) is JobState.STOPPED
        ending = job.status().ending
        assert ending is not None
        assert (ending.cause, bool(ending.sentence)) == (Cause.TIME_LIMIT, True)
