"""The poller: few calls however many jobs there are, and no end of a job that is missed."""

import pytest
from botocore.exceptions import EndpointConnectionError, UnauthorizedSSOTokenError

from paretune.core.errors import LostContact
from paretune.launchers.sagemaker.account import Account
from paretune.launchers.sagemaker.polling import CALLS_PER_MINUTE, Poller, Watched
from paretune.specification.container import Event
from tests.unit.launchers.sagemaker.aws import Aws, FakeClock

WATCHING = ("ListTrainingJobs", "DescribeTrainingJob", "DescribeLogStreams", "GetLogEvents")


@pytest.fixture
def poller(account: Account, clock: FakeClock) -> Poller:
    return Poller(account, clock)


def begin(aws: Aws, poller: Poller, count: int, name: str = "paretune-run{}-1") -> list[Watched]:
    """Jobs that have just been created."""
    names = [name.format(number) for number in range(count)]
    for job in names:
        aws.sagemaker.begin(job)
    return [poller.watch(job, None) for job in names]


def pass_time(poller: Poller, clock: FakeClock, seconds: float) -> None:
    """Look twice a second."""
    for _ in range(int(seconds * 2)):
        poller.look()
        clock.sleep(0.5)


@pytest.mark.parametrize("count", [1, 10, 100])
def test_the_calls_a_minute_stay_within_the_rate_whatever_the_jobs_do(
    aws: Aws, poller: Poller, clock: FakeClock, count: int
) -> None:
    jobs = begin(aws, poller, count)
    for minute in range(1, 6):
        before = aws.count()
        for second in range(60):
            for job in jobs[second % 7 :: 7]:
                aws.sagemaker.enter(job.name, "Training")
                aws.logs.say(f"{job.name}/algo-1-1", f"line {minute} {second}")
            pass_time(poller, clock, 1)
        made = aws.count() - before
        assert made <= CALLS_PER_MINUTE + (10 if minute == 1 else 2), f"{made} calls in minute {minute}"
        assert {call.operation for call in aws.calls} <= set(WATCHING)


@pytest.mark.parametrize(("count", "within_s"), [(1, 7), (10, 20), (100, 130)])
def test_every_end_is_seen(aws: Aws, poller: Poller, clock: FakeClock, count: int, within_s: float) -> None:
    jobs = begin(aws, poller, count)
    pass_time(poller, clock, 120)
    for job in jobs:
        aws.sagemaker.enter(job.name, "Training")
        aws.logs.say(f"{job.name}/algo-1-1", "hello")
    pass_time(poller, clock, 300)

    for job in jobs:
        aws.sagemaker.end(job.name)
    pass_time(poller, clock, within_s)

    assert [job.name for job in jobs if not job.has_ended] == []


@pytest.mark.parametrize("calls_per_minute", [3, 6, 60, 6000])
def test_an_end_is_seen_at_any_rate(aws: Aws, account: Account, clock: FakeClock, calls_per_minute: float) -> None:
    poller = Poller(account, clock, calls_per_minute)
    (job,) = begin(aws, poller, 1)
    pass_time(poller, clock, 400)
    aws.sagemaker.enter(job.name, "Training")
    pass_time(poller, clock, 400)
    aws.sagemaker.end(job.name)

    pass_time(poller, clock, 400)

    assert job.has_ended
    assert aws.count() <= calls_per_minute * 20 + 10


def test_an_end_is_seen_within_seconds_when_there_is_one_job(aws: Aws, poller: Poller, clock: FakeClock) -> None:
    (job,) = begin(aws, poller, 1)
    pass_time(poller, clock, 600)
    aws.sagemaker.end(job.name)

    pass_time(poller, clock, 7)

    assert job.has_ended


@pytest.mark.parametrize("skew", [-7200.0, -90.0, 90.0, 7200.0])
def test_a_wrong_clock_of_this_machine_hides_no_end(aws: Aws, poller: Poller, clock: FakeClock, skew: float) -> None:
    clock.skew = skew
    (job,) = begin(aws, poller, 1)
    pass_time(poller, clock, 60)
    aws.sagemaker.end(job.name)

    pass_time(poller, clock, 7)

    assert job.has_ended


def test_an_end_while_this_machine_slept_is_seen_at_once(aws: Aws, poller: Poller, clock: FakeClock) -> None:
    first, second = begin(aws, poller, 2)
    pass_time(poller, clock, 60)
    clock.time += 600
    aws.sagemaker.end(first.name)
    clock.time += 6 * 3600
    aws.sagemaker.enter(second.name, "Training")

    pass_time(poller, clock, 7)

    assert first.has_ended
    assert second.description["SecondaryStatus"] == "Training"


def test_two_changes_at_the_same_moment_are_both_seen(aws: Aws, poller: Poller, clock: FakeClock) -> None:
    (job,) = begin(aws, poller, 1)
    pass_time(poller, clock, 30)
    aws.sagemaker.enter(job.name, "Uploading")
    moment = aws.sagemaker.jobs[job.name]["LastModifiedTime"]
    pass_time(poller, clock, 10)
    aws.sagemaker.end(job.name, LastModifiedTime=moment)

    pass_time(poller, clock, 10)

    assert job.has_ended


def test_a_change_that_no_list_shows_is_seen_after_five_minutes(aws: Aws, poller: Poller, clock: FakeClock) -> None:
    aws.sagemaker.begin("paretune-run-1")
    described = aws.sagemaker.describe_training_job("paretune-run-1")
    job = poller.watch("paretune-run-1", described)
    pass_time(poller, clock, 60)
    aws.sagemaker.jobs[job.name] |= {"TrainingJobStatus": "Completed", "LastModifiedTime": described["CreationTime"]}
    aws.sagemaker.jobs[job.name] |= {"SecondaryStatus": "Starting"}
    aws.sagemaker.list_training_jobs = lambda **_: {"TrainingJobSummaries": []}  # type: ignore[method-assign]

    pass_time(poller, clock, 310)

    assert job.has_ended


def test_jobs_of_others_cost_pages_but_hide_nothing(aws: Aws, poller: Poller, clock: FakeClock) -> None:
    aws.sagemaker.page_size = 3
    (job,) = begin(aws, poller, 1)
    for number in range(20):
        aws.sagemaker.begin(f"paretune-other{number}-1")
    pass_time(poller, clock, 60)
    for number in range(20):
        aws.sagemaker.enter(f"paretune-other{number}-1", "Training")
    aws.sagemaker.end(job.name)
    before = aws.count()

    pass_time(poller, clock, 60)

    assert job.has_ended
    assert aws.count() - before <= CALLS_PER_MINUTE + 2


def test_only_jobs_that_changed_are_described(aws: Aws, poller: Poller, clock: FakeClock) -> None:
    jobs = begin(aws, poller, 10)
    pass_time(poller, clock, 60)
    before = aws.count("DescribeTrainingJob")
    aws.sagemaker.enter(jobs[3].name, "Downloading")

    pass_time(poller, clock, 60)

    assert [call.parameters for call in aws.of("DescribeTrainingJob")[before:]] == [{"TrainingJobName": jobs[3].name}]


def test_throttling_in_the_middle_of_a_list_passes_and_the_list_is_read_again(
    aws: Aws, poller: Poller, clock: FakeClock
) -> None:
    aws.sagemaker.page_size = 2
    jobs = begin(aws, poller, 6)
    pass_time(poller, clock, 60)
    for job in jobs:
        aws.sagemaker.end(job.name)
    aws.refuse("ListTrainingJobs", "ThrottlingException", "Rate exceeded", after=1, times=2)

    pass_time(poller, clock, 60)

    assert all(job.has_ended for job in jobs)


@pytest.mark.parametrize("operation", WATCHING)
@pytest.mark.parametrize("trouble", ["ThrottlingException", "connection"])
def test_passing_trouble_passes(aws: Aws, poller: Poller, clock: FakeClock, operation: str, trouble: str) -> None:
    (job,) = begin(aws, poller, 1)
    pass_time(poller, clock, 30)
    aws.sagemaker.enter(job.name, "Training")
    aws.logs.say(f"{job.name}/algo-1-1", "hello")
    error = trouble if trouble != "connection" else EndpointConnectionError(endpoint_url="https://aws")
    aws.refuse(operation, error, times=3)

    pass_time(poller, clock, 60)

    assert job.description["SecondaryStatus"] == "Training"
    assert job.log.tail(5) == ["hello"]


@pytest.mark.parametrize("trouble", ["ExpiredTokenException", "AccessDeniedException", "sso"])
def test_trouble_that_stays_is_lost_sight_and_names_the_jobs_that_go_on(
    aws: Aws, poller: Poller, clock: FakeClock, trouble: str
) -> None:
    finished, running = begin(aws, poller, 2)
    pass_time(poller, clock, 30)
    aws.sagemaker.end(finished.name)
    pass_time(poller, clock, 30)
    aws.refuse("ListTrainingJobs", trouble if trouble != "sso" else UnauthorizedSSOTokenError())

    with pytest.raises(LostContact) as caught:
        pass_time(poller, clock, 30)

    assert running.name in str(caught.value)
    assert finished.name not in str(caught.value)
    assert "`paretune sync`" in str(caught.value)


def test_a_job_that_aws_does_not_know_yet_is_asked_for_again(aws: Aws, poller: Poller, clock: FakeClock) -> None:
    (job,) = begin(aws, poller, 1)
    aws.refuse("DescribeTrainingJob", "ValidationException", "Requested resource not found.", times=3)

    pass_time(poller, clock, 20)

    assert not job.has_ended
    assert job.description["TrainingJobStatus"] == "InProgress"


def test_a_job_that_is_deleted_has_ended_and_the_others_are_watched_on(
    aws: Aws, poller: Poller, clock: FakeClock
) -> None:
    deleted, other = begin(aws, poller, 2)
    pass_time(poller, clock, 30)
    del aws.sagemaker.jobs[deleted.name]
    aws.sagemaker.enter(other.name, "Training")

    pass_time(poller, clock, 310)

    assert deleted.has_ended
    assert other.description["SecondaryStatus"] == "Training"


def test_without_permission_to_read_logs_the_job_is_watched_all_the_same(
    aws: Aws, poller: Poller, clock: FakeClock
) -> None:
    (job,) = begin(aws, poller, 1)
    aws.sagemaker.enter(job.name, "Training")
    aws.refuse("DescribeLogStreams", "AccessDeniedException", "not authorized to perform logs:...", times=100)
    pass_time(poller, clock, 60)
    aws.sagemaker.end(job.name, "Failed", FailureReason="AlgorithmError: ")
    pass_time(poller, clock, 60)
    poller.drain(job.name)

    assert job.has_ended
    assert aws.count("DescribeLogStreams") <= 2
    assert "does not allow this identity to read the log" in job.log.tail(5)[0]


def test_what_a_job_says_is_read_while_it_runs_and_each_line_once(aws: Aws, poller: Poller, clock: FakeClock) -> None:
    (job,) = begin(aws, poller, 1)
    aws.sagemaker.enter(job.name, "Training")
    for number in range(60):
        aws.logs.say(f"{job.name}/algo-1-1", f"line {number}")
        pass_time(poller, clock, 2)
    pass_time(poller, clock, 7)

    assert job.log.tail(100) == [f"line {number}" for number in range(60)]


def test_with_many_jobs_each_log_gets_its_turn(aws: Aws, poller: Poller, clock: FakeClock) -> None:
    jobs = begin(aws, poller, 30)
    for job in jobs:
        aws.sagemaker.enter(job.name, "Training")
        aws.logs.say(f"{job.name}/algo-1-1", "hello")

    pass_time(poller, clock, 300)

    assert [job.name for job in jobs if job.log.tail(1) != ["hello"]] == []


def test_jobs_whose_names_have_nothing_in_common_are_watched_together(
    aws: Aws, poller: Poller, clock: FakeClock
) -> None:
    first, second = begin(aws, poller, 1, "alpha-{}") + begin(aws, poller, 1, "beta-{}")
    pass_time(poller, clock, 30)
    aws.sagemaker.end(first.name)
    aws.sagemaker.end(second.name)

    pass_time(poller, clock, 10)

    assert first.has_ended
    assert second.has_ended


def test_after_a_restart_the_new_stream_is_found_and_read_after_the_old_one(
    aws: Aws, poller: Poller, clock: FakeClock
) -> None:
    (job,) = begin(aws, poller, 1)
    aws.sagemaker.enter(job.name, "Training")
    aws.logs.say(f"{job.name}/algo-1-999", event_line(1))
    pass_time(poller, clock, 30)
    aws.logs.say(f"{job.name}/algo-1-999", event_line(2))
    aws.logs.say(f"{job.name}/algo-1-1000", event_line(3))

    pass_time(poller, clock, 90)

    assert [event.step for event in job.log.events] == [1, 2, 3]


def event_line(step: int) -> str:
    return Event(time=1.0 + step, step=step, metrics={"train/loss": 0.5}).line()
