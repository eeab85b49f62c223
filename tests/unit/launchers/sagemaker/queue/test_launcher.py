"""Jobs in a queue: submitted once, followed from their place in it to their end."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from paretune.core.errors import LaunchRefused, LostContact
from paretune.launchers.base import Job, JobState
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.launchers.sagemaker.queue import ServiceJobs
from paretune.specification.container import FailureKind, JobDocument, JobInputs
from paretune.tracking import RecordedRun, schema
from paretune.tracking.recorded_job import RecordedJob
from tests.unit.launchers.sagemaker.aws import Aws, FakeClock, error
from tests.unit.launchers.sagemaker.queue.conftest import QUEUE
from tests.unit.launchers.sagemaker.queue.playing import Players

Order = Callable[..., JobDocument]
Make = Callable[..., SageMakerLauncher]


def submit(launcher: SageMakerLauncher, document: JobDocument) -> Job:
    return launcher.submit(document, JobInputs())


def attached(launcher: SageMakerLauncher, name: str = "paretune-run1-1") -> Job:
    job = launcher.attach(name)
    assert job is not None
    return job


def play(players: Players, job: Job, seconds: int = 30) -> JobState:
    """Look at a job each second, to its end or for so long."""
    for _ in range(seconds):
        if job.state().is_terminal:
            break
        players.second()
    return job.state()


def waiting(launcher: SageMakerLauncher, aws: Aws, order: Order, **changes: Any) -> Job:
    """A job behind another one, in a queue that has room for one."""
    aws.queues.add(QUEUE, capacity=1)
    submit(launcher, order("long", "paretune-first-1"))
    job = submit(launcher, order("quick", **changes))
    assert job.state() is JobState.RUNNING
    return job


def test_a_job_is_one_service_job_whose_payload_is_the_create_training_job_request(
    launcher: SageMakerLauncher, aws: Aws, order: Order
) -> None:
    aws.queues.add(QUEUE, schedulingPolicyArn="arn:aws:batch:us-east-1:123456789012:scheduling-policy/fair")
    submit(launcher, order(share_identifier="search", scheduling_priority=0, tags={"team": "search"}))

    (call,) = aws.of("SubmitServiceJob")
    payload = json.loads(call.parameters.pop("serviceRequestPayload"))
    assert call.parameters == {
        "jobName": "paretune-run1-1",
        "jobQueue": QUEUE,
        "serviceJobType": "SAGEMAKER_TRAINING",
        "clientToken": "paretune-run1-1",
        "retryStrategy": {"attempts": 1},
        "tags": {"paretune:run": "run1", "paretune:spec": order().spec.spec_hash(), "team": "search"},
        "shareIdentifier": "search",
        "schedulingPriority": 0,
    }
    assert payload == {name: value for name, value in launcher.last_request.items() if name != "Tags"}
    assert aws.count("CreateTrainingJob") == 0  # which is the queue's to call


def test_a_preempted_job_is_not_put_back_by_aws_batch(launcher: SageMakerLauncher, order: Order) -> None:
    request = launcher.preview(order(quota_share_name="search"), JobInputs())

    assert request["quotaShareName"] == "search"
    assert request["preemptionConfiguration"] == {"preemptionRetriesBeforeTermination": 0}
    assert request["serviceRequestPayload"]["ResourceConfig"]["InstanceType"] == "ml.m5.large"


def test_a_driver_killed_after_submit_service_job_has_started_one_job_which_the_next_one_adopts(
    make: Make, aws: Aws, order: Order, players: Players, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ServiceJobs, "_watch", killed)
        with pytest.raises(KeyboardInterrupt):
            submit(make(), order("quick"))

    again = submit(make(), order("quick"))

    assert play(players, again) is JobState.COMPLETED
    assert (len(aws.queues.service_jobs()), len(players.begun), aws.count("SubmitServiceJob")) == (1, 1, 1)


def test_an_answer_that_was_lost_is_no_second_job(
    make: Make, aws: Aws, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = ServiceJobs.submit

    def lost(*arguments: Any) -> Any:
        carry_out(*arguments)
        raise error("ServerException", "Internal error", 500)

    monkeypatch.setattr(ServiceJobs, "submit", lost)

    assert submit(make(), order()).state() is JobState.RUNNING
    assert len(aws.queues.service_jobs()) == 1


def test_two_drivers_that_submit_the_same_name_at_once_have_one_job(make: Make, aws: Aws, order: Order) -> None:
    first = submit(make(), order())
    aws.queues.hidden_lists = 3  # one lists before the other has submitted, and two soon after

    second = submit(make(), order())

    assert aws.count("SubmitServiceJob") == 2
    assert len(aws.queues.service_jobs()) == 1
    assert first.state() is second.state() is JobState.RUNNING


def test_a_refused_submission_is_told_within_seconds_and_leaves_nothing(
    launcher: SageMakerLauncher, aws: Aws, order: Order, clock: FakeClock
) -> None:
    aws.queues.add(QUEUE, state="DISABLED")
    before = clock.time

    with pytest.raises(LaunchRefused, match="AWS would not submit the job to the queue team: Job queue team does not"):
        submit(launcher, order())

    assert aws.queues.service_jobs() == []
    assert clock.time - before < 10


def test_a_waiting_job_runs_costs_nothing_and_says_that_it_waits(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players
) -> None:
    job = waiting(launcher, aws, order)
    for _ in range(20):
        players.second()
        assert job.state() is JobState.RUNNING

    assert job.detail() == "Waiting in the queue team (RUNNABLE)"
    assert [event.message for event in job.events()] == [job.detail()]
    assert job.events() == []
    assert (job.seconds(), job.billable_seconds(), job.report(), job.failure()) == (0, 0, None, None)
    assert len(players.begun) == 1


def test_a_job_runs_when_the_one_before_it_has_ended_and_its_record_tells_how_long_it_waited(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players
) -> None:
    job = waiting(launcher, aws, order)
    for _ in range(20):
        players.second()
    attached(launcher, "paretune-first-1").stop()

    assert play(players, job) is JobState.COMPLETED

    facts = job.facts()
    assert 20 <= int(facts["queue_seconds"]) <= 25
    assert facts["service_job"] == aws.queues.service_jobs()[1]["jobArn"]
    assert "training-job/AWSBatchparetune-run1-1" in facts["job_arn"]
    assert job.seconds() < 10  # the waiting is not among them
    assert job.billable_seconds() >= 1


def test_a_waiting_job_that_is_stopped_leaves_the_queue_without_a_cent(
    make: Make, aws: Aws, order: Order, players: Players
) -> None:
    launcher = make()
    job = waiting(launcher, aws, order)

    job.stop()

    seen = attached(make())  # another process
    assert play(players, job) is seen.state() is JobState.STOPPED
    assert job.failure() is seen.failure() is None
    assert job.billable_seconds() == seen.billable_seconds() == 0
    attached(launcher, "paretune-first-1").stop()
    for _ in range(10):
        players.second()
    assert len(aws.sagemaker.jobs) == 1  # that of the first


def test_a_job_that_somebody_else_has_taken_out_of_the_queue_has_failed_with_the_reason(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players
) -> None:
    job = waiting(launcher, aws, order)
    job_id = aws.queues.service_jobs()[1]["jobId"]
    aws.client("batch").terminate_service_job(jobId=job_id, reason="quarter's end")

    assert play(players, job) is JobState.FAILED
    before = "it ended in the queue team, before a training job was created"
    assert job.failure() == (FailureKind.ERROR, f"{before}: quarter's end")
    assert job.detail() == "Ended in the queue team (FAILED: quarter's end)"
    assert job.log_location() == f"aws batch describe-service-job --job-id {job_id} --region us-east-1"


def test_a_request_that_sagemaker_refuses_is_a_failure_that_costs_nothing(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise error("ValidationException", "no such image")

    monkeypatch.setattr(aws.sagemaker, "create_training_job", refuse)

    job = submit(launcher, order())

    assert play(players, job) is JobState.FAILED
    failure = job.failure()
    assert failure is not None
    assert "no such image" in failure[1]
    assert (job.billable_seconds(), job.seconds()) == (0, 0)


def test_a_job_without_capacity_waits_for_the_next_training_job_of_aws_batch(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players
) -> None:
    job = submit(launcher, order("quick"))
    (first,) = aws.sagemaker.jobs
    assert job.state() is JobState.RUNNING
    aws.queues.add(QUEUE, capacity=0)
    aws.sagemaker.end(first, "Failed", FailureReason="CapacityError: Unable to provision requested ML compute capacity")

    assert play(players, job, seconds=5) is JobState.RUNNING
    assert job.detail() == "Waiting in the queue team (RUNNABLE)"
    assert job.billable_seconds() == 0
    aws.queues.add(QUEUE, capacity=1)
    assert play(players, job) is JobState.COMPLETED
    assert list(aws.sagemaker.jobs) != [first]
    assert len(aws.queues.service_jobs()) == 1


def test_a_spot_job_in_a_queue_that_has_waited_too_long_has_no_capacity_so_that_the_next_type_is_tried(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players
) -> None:
    job = submit(launcher, order("quick", spot=True))
    aws.sagemaker.end(*aws.sagemaker.jobs, "Stopped", "MaxWaitTimeExceeded")

    assert play(players, job) is JobState.STOPPED
    failure = job.failure()
    assert failure is not None
    assert failure[0] is FailureKind.CAPACITY


def test_a_job_that_is_stopped_while_it_waits_for_capacity_is_stopped_and_has_not_failed(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players
) -> None:
    job = submit(launcher, order("quick"))
    job.state()
    aws.queues.add(QUEUE, capacity=0)
    aws.sagemaker.end(*aws.sagemaker.jobs, "Failed", FailureReason="CapacityError: Unable to provision")
    play(players, job, seconds=3)

    job.stop()

    assert play(players, job) is JobState.STOPPED
    assert job.failure() is None


def test_a_preempted_job_has_lost_its_capacity(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players
) -> None:
    job = submit(launcher, order())
    players.second()
    job.state()
    aws.queues.preempt(job.name)

    play(players, job)

    failure = job.failure()
    assert failure is not None
    assert failure[0] is FailureKind.CAPACITY
    assert failure[1].startswith("preempted: the queue has given its instances")


def test_a_training_job_that_goes_on_after_its_service_job_was_stopped_is_stopped_too(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(launcher, order())
    players.second()
    job.state()
    with monkeypatch.context() as patch:
        patch.setattr(aws.sagemaker, "stop_training_job", lambda **_: {})
        job.stop()
    (service_job,) = aws.queues._jobs.values()
    service_job.end("FAILED", "", aws.clock.time)

    assert play(players, job) is JobState.STOPPED
    assert aws.count("StopTrainingJob") >= 1


def test_a_higher_priority_comes_first(launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players) -> None:
    waiting(launcher, aws, order)
    urgent = submit(launcher, order("quick", "paretune-urgent-1", scheduling_priority=9))
    players.second()
    attached(launcher, "paretune-first-1").stop()

    assert play(players, urgent) is JobState.COMPLETED
    assert [name.partition("paretune-")[2][:5] for name in players.begun[:2]] == ["first", "urgen"]


def test_aws_batch_is_asked_no_more_often_than_allowed_and_not_while_a_job_trains(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players
) -> None:
    launcher._jobs._service_jobs._calls.per_second = 1.0  # as by default
    aws.queues.add(QUEUE, capacity=1)
    jobs = [submit(launcher, order("long", f"paretune-run{number}-1")) for number in range(30)]
    for _ in range(10):
        players.second()
        assert {job.state() for job in jobs} == {JobState.RUNNING}
    before = aws.count("DescribeServiceJob")
    for _ in range(60):
        players.second()
        for job in jobs:
            job.state()

    result = aws.of("DescribeServiceJob")[before:]
    assert 50 <= len(result) <= 60
    assert aws.queues.service_jobs()[0]["jobId"] not in {call.parameters["jobId"] for call in result}


@pytest.mark.parametrize("operation", ["DescribeServiceJob", "TerminateServiceJob"])
def test_throttling_is_waited_out(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players, operation: str
) -> None:
    job = waiting(launcher, aws, order)
    aws.refuse(operation, "ThrottlingException", times=2)

    job.stop()

    assert job.state() in {JobState.STOPPING, JobState.STOPPED}
    assert play(players, job) is JobState.STOPPED


@pytest.mark.parametrize(
    ("operation", "message"),
    [("DescribeServiceJob", "look at the queue team"), ("TerminateServiceJob", "aws batch terminate-service-job")],
)
def test_without_the_right_to_ask_contact_is_lost_and_the_next_step_is_said(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players, operation: str, message: str
) -> None:
    job = waiting(launcher, aws, order)
    aws.refuse(operation, "AccessDeniedException", "not you", times=9)

    players.second()
    ask = job.stop if operation == "TerminateServiceJob" else job.state

    with pytest.raises(LostContact, match=message):
        ask()


def test_a_service_job_that_aws_batch_has_forgotten_is_over(
    launcher: SageMakerLauncher, aws: Aws, order: Order, players: Players
) -> None:
    job = waiting(launcher, aws, order)
    aws.refuse("DescribeServiceJob", "ClientException", "does not exist", times=10)
    assert play(players, job, seconds=5) is JobState.RUNNING  # of a moment's trouble

    aws.refuse("DescribeServiceJob", "ClientException", "does not exist", times=999)

    assert play(players, job, seconds=90) is JobState.FAILED
    failure = job.failure()
    assert failure is not None
    assert "no longer knows" in failure[1]


DAYS = 86_400.0


@pytest.mark.parametrize("kind", ["quick", "failing"])
def test_a_job_that_aws_batch_has_forgotten_is_found_in_sagemaker_and_not_paid_twice(
    make: Make, aws: Aws, order: Order, players: Players, clock: FakeClock, kind: str
) -> None:
    submit(make(), order("quick", "paretune-run1-2"))  # another attempt, whose training job's name begins alike
    before = submit(make(), order(kind))
    state = play(players, before)
    aws.queues._jobs.clear()
    clock.time += 8 * DAYS

    again = submit(make(), order(kind))

    assert (again.name, again.state()) == (before.name, state)
    assert again.billable_seconds() == before.billable_seconds() > 0
    assert again.facts()["job_arn"] == before.facts()["job_arn"]
    assert again.failure() == before.failure()
    assert (aws.count("SubmitServiceJob"), len(aws.sagemaker.jobs)) == (2, 2)


def test_a_job_of_which_nothing_is_left_is_neither_submitted_again_nor_said_to_be_none(
    make: Make, aws: Aws, order: Order, clock: FakeClock
) -> None:
    submit(make(), order())
    aws.queues._jobs.clear()
    aws.sagemaker.jobs.clear()
    clock.time += 6 * DAYS

    for look in (lambda: make().attach("paretune-run1-1"), lambda: submit(make(), order())):
        with pytest.raises(LostContact, match=r"6 days ago.*not submitted again.*list-training-jobs --name-contains"):
            look()
    assert aws.count("SubmitServiceJob") == 1


def test_a_job_that_was_refused_is_submitted_whenever_it_is_asked_for_again(
    make: Make, aws: Aws, order: Order, clock: FakeClock
) -> None:
    aws.queues.add(QUEUE, state="DISABLED")
    with pytest.raises(LaunchRefused):
        submit(make(), order())
    clock.time += 6 * DAYS
    aws.queues.add(QUEUE)

    assert submit(make(), order()).state() is JobState.RUNNING


def test_a_job_is_looked_for_also_before_there_is_a_bucket(make: Make, aws: Aws) -> None:
    aws.s3.buckets.clear()

    assert make().attach("paretune-run1-1") is None


def test_attach_does_not_take_a_name_that_only_begins_alike_or_is_in_another_queue(
    make: Make, aws: Aws, order: Order
) -> None:
    aws.queues.add("other")
    submit(make(), order(name="paretune-run1-11"))

    assert make().attach("paretune-run1-1") is None
    assert make("other").attach("paretune-run1-11") is None
    assert make().attach("paretune-run1-11") is not None


def test_the_queue_is_recorded_and_found_again_from_the_record(launcher: SageMakerLauncher, order: Order) -> None:
    location = launcher.location_tags()
    assert location["queue"] == QUEUE

    tags = {f"{schema.PREFIX}{name}": text for name, text in location.items()}
    recorded_run = RecordedRun(run_id="1", params={}, tags={schema.COMMAND: order().spec.command(), **tags})
    project = RecordedRun(
        run_id="2", params={}, tags={schema.LOGGING: "collect", "paretune.instance_type": "ml.m5.large"} | tags
    )

    assert RecordedJob(recorded_run).request.spec().queue == RecordedJob(project).request.spec().queue == QUEUE
