"""Trials of a shared job, each as a job of its own: their shares, their ends, and what one job can train together."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.base import Job, JobState, Trials
from paretune.launchers.shared_jobs import SharedJob, SharedJobs, attach
from paretune.specification.container import (
    Event,
    FailureKind,
    JobDocument,
    JobInputs,
    JobReport,
    MemberEnd,
    TrialQueue,
)
from paretune.specification.job import JobSpec
from tests.unit.jobs.test_retrying_job import MEMORY, ScriptedJob, ScriptedLauncher

SPEC = JobSpec(instance_type="ml.g5.xlarge", trials_per_job=3)
DONE = MemberEnd(seconds=100.0, report=JobReport(metrics={"f1": 0.75}))


@dataclass
class Whole(ScriptedJob):
    """A shared job of three trials that is billed so much, and ends as it is told to."""

    now: JobState = JobState.RUNNING
    billed: float = 400.0
    asked: list[str] = field(default_factory=list)

    def state(self) -> JobState:
        return self.now

    @property
    def trials(self) -> Trials:
        return Trials(3, self.asked.append, members=lambda: "abc")

    def billable_seconds(self) -> float:
        return self.billed

    def stop(self) -> None:
        self.asked.append("all")


def ended(key: str, end: MemberEnd, at: float = 9.0) -> Event:
    return Event(time=at, step=1, member=key, ended=end.as_json())


def whole(*event: Event, ending: object = "done") -> Whole:
    document = JobDocument(job_name="paretune-a-1", spec=SPEC, plan=SPEC.plan())
    return Whole(name="paretune-a-1", document=document, ending=ending, told=list(event))  # type: ignore[arg-type]


def test_shares_add_up_to_what_the_job_is_billed() -> None:
    quick = MemberEnd(seconds=40.0, report=JobReport(metrics={}))
    job = whole(ended("a", DONE), ended("b", quick), ended("c", DONE))
    job.now = JobState.COMPLETED
    shared = SharedJob(job.name, job=job)
    shares = [shared.trial(key).billable_seconds() for key in "abc"]

    around = (400.0 - 240.0) / 3
    assert shares == pytest.approx([100 + around, 40 + around, 100 + around])
    assert sum(shares) == pytest.approx(job.billed)


@pytest.mark.parametrize("billed", [0.0, 1.0, 239.0])
def test_shares_add_up_also_where_the_clocks_of_trials_and_bill_differ(billed: float) -> None:
    job = whole(ended("a", DONE), ended("b", DONE))
    job.billed = billed
    shared = SharedJob(job.name, job=job)

    assert sum(shared.trial(key).billable_seconds() for key in "abc") == pytest.approx(billed)


def test_a_trial_that_the_job_does_not_have_takes_no_share() -> None:
    job = whole(ended("a", DONE), ended("made up", DONE), Event(time=9.0, step=1, member="else"))
    shared = SharedJob(job.name, job=job)

    assert sum(shared.trial(key).billable_seconds() for key in "abc") == pytest.approx(job.billed)


def test_a_trial_that_a_job_that_searches_does_not_have_takes_no_share() -> None:
    joined = JobDocument(job_name="paretune-a-1.b", spec=SPEC, plan=SPEC.plan())
    queues = [TrialQueue(), TrialQueue(version=2, members=(joined,))]

    @dataclass
    class Searching(Whole):
        @property
        def trials(self) -> Trials:
            return Trials(1, queue=lambda: queues[-1], members=lambda: "a")

    job = Searching(**vars(whole(ended("a", DONE), ended("made up", DONE), ended("b", DONE))))
    shared = SharedJob(job.name, job=job, queue=queues[0])  # another driver lets b join

    assert [shared.trial(key).billable_seconds() for key in "ab"] == [pytest.approx(job.billed / 2)] * 2


def test_a_trial_ends_with_its_job_as_it_has_ended_itself() -> None:
    failed = MemberEnd(seconds=1.0, failure=(FailureKind.DIVERGED, "the loss is not a finite number"))
    job = whole(ended("a", DONE), ended("b", failed), ended("c", MemberEnd(seconds=1.0)))
    shared = SharedJob(job.name, job=job)
    members = [shared.trial(key) for key in "abc"]
    assert [member.state() for member in members] == [JobState.RUNNING] * 3

    job.now = JobState.COMPLETED
    assert [member.state() for member in members] == [JobState.COMPLETED, JobState.FAILED, JobState.STOPPED]
    report = members[0].report()
    assert report is not None
    assert report.metrics == {"f1": 0.75}
    assert members[1].failure() == failed.failure
    assert members[2].failure() is None
    assert members[2].report() is None


def test_what_ends_the_job_is_the_failure_of_the_trial_it_met_and_of_no_other() -> None:
    job = whole(ended("a", DONE), Event(time=9.0, step=3, member="b", metrics={"train/loss": 1.0}), ending=MEMORY)
    shared = SharedJob(job.name, job=job)
    done, met, later = (shared.trial(key) for key in "abc")
    job.now = JobState.FAILED

    assert (done.state(), met.state(), later.state()) == (JobState.COMPLETED, JobState.FAILED, JobState.FAILED)
    assert met.failure() == MEMORY
    failure = later.failure()
    assert failure is not None
    assert failure[0] is FailureKind.UNTRIED


def test_trials_side_by_side_that_ran_out_of_memory_may_each_fit_by_itself() -> None:
    steps = [Event(time=9.0, step=3, member=key, metrics={"train/loss": 1.0}) for key in "bc"]
    job = whole(ended("a", DONE), *steps, ending=MEMORY)
    job.now = JobState.FAILED
    shared = SharedJob(job.name, job=job)

    assert shared.trial("a").failure() is None
    for key in "bc":
        failure = shared.trial(key).failure()
        assert failure is not None
        assert failure == (FailureKind.CROWDED, f"beside 1 other trials: {MEMORY[1]}")


def test_each_trial_is_told_its_own_events_and_those_of_the_job_once() -> None:
    status = Event(time=1.0, step=0, message="Downloading")
    custom = Event(time=2.0, step=1, member="b", metrics={"train/loss": 0.5})
    shared = SharedJob("g", job=whole(status, custom))
    first, second = shared.trial("a"), shared.trial("b")

    assert first.events() == [status]
    assert [event.metrics for event in second.events()] == [{}, {"train/loss": 0.5}]
    assert first.events() == second.events() == []


def test_one_trial_is_stopped_by_itself_and_the_job_with_the_last_of_them() -> None:
    job = whole(ended("a", DONE))
    shared = SharedJob(job.name, job=job)
    second, third = shared.trial("b"), shared.trial("c")
    second.stop()
    assert job.asked == ["b"]
    assert (second.state(), third.state()) == (JobState.STOPPING, JobState.RUNNING)

    third.stop()
    assert job.asked == ["b", "all"]


def jobs_of(launcher: ScriptedLauncher, specs: list[JobSpec], at_a_time: int = 9) -> tuple[SharedJobs, list[Job]]:
    shared = SharedJobs(launcher, at_a_time, lambda: None)
    made = []
    for number, spec in enumerate(specs):
        name = shared.name_for(spec, f"run{number}")
        made.append(shared.submit(JobDocument(job_name=name, spec=spec, plan=spec.plan()), JobInputs()))
    shared.create_jobs()
    return shared, made


def test_trials_that_differ_in_more_than_their_training_have_jobs_of_their_own() -> None:
    changes: list[dict[str, object]] = [
        {"learning_rate": 1e-4},
        {"seed": 1, "num_train_epochs": 2.0, "per_device_train_batch_size": 4},
        {"instance_type": "ml.g5.2xlarge"},
        {"max_train_samples": 100},
        {"fine_tuning": "lora"},
    ]
    launcher = ScriptedLauncher(["done"] * 9)
    jobs_of(launcher, [SPEC, *(SPEC.replace(**change) for change in changes)])

    sizes = [len(job.document.members) for job in launcher.jobs.values()]
    assert sizes == [3, 1, 1, 1]


def test_a_job_has_no_more_trials_than_were_asked_for_and_time_for_all_of_them() -> None:
    launcher = ScriptedLauncher(["done"] * 9)
    jobs_of(launcher, [SPEC.replace(learning_rate=rate) for rate in (1e-5, 2e-5, 3e-5, 4e-5)])

    first, second = (job.document for job in launcher.jobs.values())
    assert [len(first.members), len(second.members)] == [3, 1]
    assert first.max_seconds == 3 * SPEC.max_runtime_minutes * 60
    assert [item.member for item in first.members] == ["run0", "run1", "run2"]


def test_only_so_many_jobs_run_at_a_time() -> None:
    launcher = ScriptedLauncher(["endless", "done"])
    shared, made = jobs_of(launcher, [SPEC, SPEC.replace(seed=1), SPEC.replace(fine_tuning="lora")], at_a_time=1)
    assert len(launcher.created) == 1
    assert made[2].state() is JobState.RUNNING
    assert made[2].billable_seconds() == 0.0

    launcher.jobs[launcher.created[0]].stopped = True
    shared.create_jobs()
    assert len(launcher.created) == 2


def test_a_trial_stopped_before_its_job_is_created_is_not_trained() -> None:
    launcher = ScriptedLauncher(["done", "done"])
    shared, made = jobs_of(launcher, [SPEC, SPEC.replace(seed=1), SPEC.replace(fine_tuning="lora")], at_a_time=0)
    made[1].stop()
    made[2].stop()
    shared._at_a_time = 9
    shared.create_jobs()

    (created,) = launcher.jobs.values()
    assert [item.member for item in created.document.members] == ["run0"]
    assert [job.state() for job in made[1:]] == [JobState.STOPPED] * 2


def test_why_a_job_was_refused_is_told_to_each_of_its_trials() -> None:
    _, made = jobs_of(ScriptedLauncher([LaunchRefused("no quota")]), [SPEC, SPEC.replace(seed=1)])
    for job in made:
        with pytest.raises(LaunchRefused, match="no quota"):
            job.state()


def test_a_trial_is_found_again_by_its_name() -> None:
    launcher = ScriptedLauncher(["done"])
    _, made = jobs_of(launcher, [SPEC, SPEC.replace(seed=1)])
    job = attach(launcher, made[1].name)

    assert job is not None
    assert job.name == made[1].name == "paretune-run0-1.run1"
    assert attach(launcher, "paretune-else-1.run1") is None


def test_the_model_of_a_trial_is_a_folder_in_that_of_the_job(tmp_path: Path) -> None:
    job = whole(ended("a", DONE))
    job.now = JobState.COMPLETED
    job.model_location = lambda: str(tmp_path)  # type: ignore[method-assign]

    assert SharedJob(job.name, job=job).trial("a").model_location() == str(tmp_path / "members" / "a")


def test_a_queue_after_one_that_may_have_been_sent_is_newer_than_both() -> None:
    """A job ignores a queue of the version that it has."""
    sent: list[TrialQueue] = []

    def send(queue: TrialQueue) -> None:
        sent.append(queue)
        if len(sent) == 1:
            raise LostContact("no answer")

    @dataclass
    class Searching(Whole):
        @property
        def trials(self) -> Trials:
            return Trials(1, self.asked.append, send, TrialQueue)

    job = Searching(**vars(whole()))
    shared = SharedJob(job.name, job=job, queue=TrialQueue(order=(("a", 2),)))
    with pytest.raises(LostContact):
        shared.direct([("a", 4)], is_complete=False)
    shared.direct([("a", 2)], is_complete=True)
    shared.direct([("a", 2)], is_complete=True)

    assert [queue.version for queue in sent] == [2, 3]
    assert shared.queue == sent[1]
