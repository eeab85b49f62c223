"""One training job as the launching side sees it, through every way in which it can end."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError

from paretune.core.errors import LostContact
from paretune.launchers.base import Job, WarmPoolStatus
from paretune.launchers.sagemaker.launcher import SageMakerLauncher
from paretune.specification.container import Command, Event, JobInputs, JobReport, UserCode
from paretune.specification.ending import Cause, JobState, cut_off, failed
from paretune.specification.order import Order
from tests.support.fake_clock import FakeClock
from tests.support.stand_ins.aws import BUCKET, Aws, error

NAME = "paretune-run1-1"
REPORT = JobReport(metrics={"f1": 0.75})


@pytest.fixture
def job(launcher: SageMakerLauncher, order: Callable[..., Order]) -> Job:
    return launcher.submit(order())


def leave(aws: Aws, files: Mapping[str, str]) -> None:
    """Put a job's results into S3."""
    for name, text in files.items():
        aws.put(f"paretune/jobs/{NAME}/output/data/{name}", text.encode())


def line(step: int, time: float = 1000.0) -> str:
    return Event(time=time + step, step=step, metrics={"train/loss": 1 / (step + 1)}).line()


def look(job: Job, clock: FakeClock, seconds: float = 30) -> JobState:
    """Return the state after some time."""
    for _ in range(int(seconds)):
        job.state()
        clock.sleep(1)
    return job.state()


def test_a_job_that_completes_without_a_report_has_failed_and_says_so(aws: Aws, job: Job, clock: FakeClock) -> None:
    leave(aws, {"events.jsonl": line(1)})
    aws.end(NAME)

    assert look(job, clock) is JobState.FAILED
    assert job.status().ending == failed(Cause.ERROR, "it ended without a report.json that can be read")
    assert job.status().report is None


def test_a_job_whose_bucket_has_been_deleted_has_ended_with_its_bill_and_without_results(
    aws: Aws, job: Job, clock: FakeClock, tmp_path: Path
) -> None:
    aws.enter(NAME, "Training")
    look(job, clock)
    aws.end(NAME)
    aws.refuse("ListObjectsV2", error("NoSuchBucket", "The specified bucket does not exist", 404), times=9)

    assert look(job, clock, 65) is JobState.FAILED
    assert job.status().ending == failed(Cause.ERROR, "it ended without a report.json that can be read")
    assert job.status().billable_seconds > 0
    assert not job.fetch_output("mlruns", tmp_path).exists()


def test_a_report_of_another_version_of_paretune_is_read_all_the_same(aws: Aws, job: Job, clock: FakeClock) -> None:
    leave(aws, {"report.json": json.dumps(json.loads(REPORT.model_dump_json()) | {"predictions": []})})
    aws.end(NAME)

    assert look(job, clock) is JobState.COMPLETED
    assert job.status().report == REPORT


def test_results_that_s3_does_not_give_just_now_are_no_failure(aws: Aws, job: Job, clock: FakeClock) -> None:
    leave(aws, {"report.json": REPORT.model_dump_json()})
    aws.refuse("GetObject", EndpointConnectionError(endpoint_url="https://s3"), times=40)
    aws.end(NAME)

    assert look(job, clock, 20) is JobState.RUNNING
    assert job.status().ending is None
    assert look(job, clock, 40) is JobState.COMPLETED
    assert job.status().report == REPORT


def test_an_empty_answer_is_no_proof_that_a_job_is_gone_or_has_left_nothing(
    aws: Aws, job: Job, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(aws, {"report.json": REPORT.model_dump_json()})
    aws.end(NAME)
    with monkeypatch.context() as empty:
        empty.setitem(aws._own, "ListObjectsV2", lambda _: {})
        assert look(job, clock) is JobState.RUNNING
    assert look(job, clock) is JobState.COMPLETED
    assert job.status().report == REPORT


@pytest.mark.parametrize(
    ("secondary", "cause"),
    [
        ("MaxRuntimeExceeded", Cause.TIME_LIMIT),
        ("MaxWaitTimeExceeded", Cause.CAPACITY),
    ],
)
def test_a_limit_of_time_is_a_stop_with_a_reason(
    aws: Aws, job: Job, clock: FakeClock, secondary: str, cause: Cause
) -> None:
    aws.end(NAME, "Stopped", secondary)

    assert look(job, clock) is JobState.STOPPED
    ending = job.status().ending
    assert ending is not None
    assert (ending.cause, bool(ending.sentence)) == (cause, True)


def test_a_job_that_stopped_itself_at_its_deadline_gives_its_own_reason(aws: Aws, job: Job, clock: FakeClock) -> None:
    reason = (
        "the job stopped itself 56.7 minutes after its container started, to leave time to save and upload within its "
        "worst case"
    )
    aws.end(NAME, "Failed", reason=f"AlgorithmError: time_limit: {reason}, exit code: 1")

    assert look(job, clock) is JobState.STOPPED
    assert job.status().ending == cut_off(reason)


def test_a_job_deleted_without_results_has_failed_and_is_billed_at_most_up_to_then(
    aws: Aws, job: Job, clock: FakeClock
) -> None:
    aws.enter(NAME, "Training")
    look(job, clock)
    del aws.training.jobs[NAME]

    assert look(job, clock, 400) is JobState.FAILED
    assert job.status().ending == failed(Cause.ERROR, "it was deleted in AWS, and has left no report")
    assert 30 < job.status().billable_seconds <= 400
    clock.sleep(1000)
    assert job.status().billable_seconds <= 400


def test_one_answer_that_a_job_is_not_found_is_no_proof(aws: Aws, job: Job, clock: FakeClock) -> None:
    aws.enter(NAME, "Training")
    look(job, clock)
    # Only Describe does not find it, for however long: List shows the job.
    aws.refuse("DescribeTrainingJob", "ValidationException", "Requested resource not found.", times=20)
    assert look(job, clock, 200) is JobState.RUNNING

    hidden = aws.training.jobs.pop(NAME)  # now neither shows it, for less than a minute
    assert look(job, clock, 50) is JobState.RUNNING
    aws.training.jobs[NAME] = hidden
    leave(aws, {"report.json": REPORT.model_dump_json()})
    aws.end(NAME, BillableTimeInSeconds=250)

    assert look(job, clock, 30) is JobState.COMPLETED
    assert job.status().billable_seconds == 250


def test_a_new_job_that_aws_does_not_know_yet_is_asked_to_stop_until_it_does(
    aws: Aws, job: Job, clock: FakeClock
) -> None:
    aws.refuse("StopTrainingJob", "ValidationException", "Requested resource not found.", times=2)
    aws.refuse("DescribeTrainingJob", "ValidationException", "Requested resource not found.", times=2)

    job.stop()

    assert look(job, clock, 30) is JobState.STOPPING
    assert aws.training.jobs[NAME].status == "Stopping"


def test_stop_that_is_not_allowed_says_how_to_stop_it(aws: Aws, job: Job) -> None:
    aws.refuse("StopTrainingJob", "AccessDeniedException", "no")

    with pytest.raises(LostContact, match=f"aws sagemaker stop-training-job --training-job-name {NAME}"):
        job.stop()


def test_events_of_log_and_results_and_statuses_come_once_and_in_order_of_time(
    aws: Aws, job: Job, clock: FakeClock
) -> None:
    look(job, clock)
    aws.enter(NAME, "Training")
    began = clock.now()
    lines = [line(step, began) for step in range(1, 6)]
    aws.say(f"{NAME}/algo-1-1", *lines[:2])
    look(job, clock)
    seen = job.events()
    aws.say(f"{NAME}/algo-1-1", *lines[2:4])  # the last one never reaches the log
    leave(aws, {"report.json": REPORT.model_dump_json(), "events.jsonl": "\n".join(lines) + "\n"})
    aws.end(NAME)
    look(job, clock)
    seen += job.events()

    assert [event.step for event in seen if event.metrics] == [1, 2, 3, 4, 5]
    messages = [event.message for event in seen if event.message]
    assert [text.partition(":")[0] for text in messages] == ["Starting", "Training", "Completed"]
    assert [event.time for event in seen] == sorted(event.time for event in seen)
    assert job.events() == []


def test_a_job_that_was_attached_a_moment_ago_has_the_events_of_its_log(
    aws: Aws, job: Job, launcher: SageMakerLauncher, clock: FakeClock
) -> None:
    aws.enter(NAME, "Training")
    aws.say(f"{NAME}/algo-1-1", line(1, clock.now()), line(2, clock.now()))

    attached = launcher.attach(NAME)

    assert attached is not None
    assert [event.step for event in attached.events() if event.metrics] == [1, 2]


def test_events_beyond_any_size_that_a_training_leaves_are_not_read(
    aws: Aws, job: Job, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paretune.launchers.sagemaker.storage.LARGEST_READ", 1000)
    leave(aws, {"report.json": REPORT.model_dump_json(), "events.jsonl": "\n".join(map(line, range(1, 999)))})
    leave(aws, {f"profile/{number}": "x" for number in range(3)})  # none of them is ours
    aws.end(NAME)

    assert look(job, clock) is JobState.COMPLETED
    steps = [event.step for event in job.events() if event.metrics]
    assert steps == [*range(1, len(steps) + 1)]
    assert 5 < len(steps) < 50
    assert job.profile() == {}


def test_the_bill_is_what_aws_says_and_spot_shows_what_was_saved(aws: Aws, job: Job, clock: FakeClock) -> None:
    aws.enter(NAME, "Training")
    clock.sleep(100)
    aws.end(
        NAME,
        "Stopped",
        TrainingTimeInSeconds=100,
        BillableTimeInSeconds=30,
        EnableManagedSpotTraining=True,
    )
    look(job, clock)

    assert job.status().billable_seconds == 30
    assert job.status().facts["spot_saving"] == "70%"
    assert job.status().facts["training_seconds"] == "100"


@pytest.mark.parametrize(("reported", "within_s", "billed"), [(30, 25, 30), (None, 75, 100)])
def test_billed_seconds_that_aws_reports_late_are_waited_for_and_otherwise_all_seconds_count(
    aws: Aws, job: Job, clock: FakeClock, reported: int | None, within_s: int, billed: int
) -> None:
    aws.enter(NAME, "Training")
    clock.sleep(100)
    leave(aws, {"report.json": REPORT.model_dump_json()})
    aws.end(NAME, BillableTimeInSeconds=None, EnableManagedSpotTraining=reported is not None)
    assert look(job, clock, 25) is JobState.RUNNING

    aws.overrides[NAME]["BillableTimeInSeconds"] = reported

    assert look(job, clock, within_s) is JobState.COMPLETED
    assert job.status().billable_seconds == billed


def test_instances_of_whose_status_aws_says_nothing_are_given_back_and_not_kept_for_ever(
    aws: Aws, launcher: SageMakerLauncher, order: Callable[..., Order], clock: FakeClock
) -> None:
    job = launcher.submit(order(sagemaker={"keep_alive_minutes": 10.0}))
    aws.enter(NAME, "Training")
    leave(aws, {"report.json": REPORT.model_dump_json()})
    aws.end(NAME, WarmPoolStatus=None)
    assert look(job, clock) is JobState.COMPLETED
    pool = job.warm_pool()
    assert pool is not None
    assert pool.is_kept

    job.release_warm_pool()

    assert aws.count("UpdateTrainingJob") == 1
    clock.sleep(700)
    assert job.warm_pool() == WarmPoolStatus(status="Expired", is_kept=False, seconds=None)


@pytest.fixture
def kept(aws: Aws, launcher: SageMakerLauncher, order: Callable[..., Order], clock: FakeClock) -> Job:
    """Return a job that has ended, with instances that are kept for up to ten minutes."""
    job = launcher.submit(order(sagemaker={"keep_alive_minutes": 10.0}))
    aws.enter(NAME, "Training")
    clock.sleep(100)
    leave(aws, {"report.json": REPORT.model_dump_json()})
    aws.end(NAME)
    assert look(job, clock) is JobState.COMPLETED
    return job


def test_kept_instances_are_asked_about_until_they_are_not_kept_any_more(aws: Aws, kept: Job, clock: FakeClock) -> None:
    pool = kept.warm_pool()
    assert pool is not None
    assert (pool.status, pool.is_kept) == ("Available", True)
    message = {"Status": "Reused", "ResourceRetainedBillableTimeInSeconds": 42}
    aws.overrides[NAME]["WarmPoolStatus"] = message
    clock.sleep(60)

    assert kept.warm_pool() == WarmPoolStatus(status="Reused", is_kept=False, seconds=42.0)
    request = aws.count("DescribeTrainingJob")
    kept.warm_pool()
    assert aws.count("DescribeTrainingJob") == request
    assert kept.state() is JobState.COMPLETED


def test_an_empty_answer_about_kept_instances_does_not_give_them_back(
    aws: Aws, kept: Job, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(aws._own, "DescribeTrainingJob", lambda _: {})
    clock.sleep(60)

    pool = kept.warm_pool()

    assert pool is not None
    assert pool.is_kept


def test_kept_instances_of_a_job_that_was_deleted_have_unknown_seconds_and_its_end_stays(
    aws: Aws, kept: Job, clock: FakeClock
) -> None:
    del aws.training.jobs[NAME]
    clock.sleep(700)
    kept.warm_pool()

    pool = kept.warm_pool()
    assert pool is not None
    assert (pool.is_kept, pool.seconds) == (False, None)
    assert kept.state() is JobState.COMPLETED


def test_kept_instances_are_given_back(aws: Aws, kept: Job) -> None:
    kept.release_warm_pool()

    (call,) = aws.of("UpdateTrainingJob")
    assert call.parameters == {"TrainingJobName": NAME, "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}
    pool = kept.warm_pool()
    assert pool is not None
    assert (pool.status, pool.is_kept) == ("Terminated", False)
    kept.release_warm_pool()
    assert aws.count("UpdateTrainingJob") == 1


def test_instances_that_may_not_be_given_back_are_reported_with_the_command_that_does(aws: Aws, kept: Job) -> None:
    aws.refuse("UpdateTrainingJob", "AccessDeniedException", "no")
    with pytest.raises(
        LostContact, match=f"(?s)billed for up to sagemaker.keep_alive_minutes.*update-training-job .*{NAME}"
    ):
        kept.release_warm_pool()


@pytest.mark.parametrize("below", ["", "data/", "output/", "output/data/"])
def test_the_results_of_a_job_are_its_files_wherever_sagemaker_puts_them(
    aws: Aws,
    launcher: SageMakerLauncher,
    order: Callable[..., Order],
    clock: FakeClock,
    tmp_path: Path,
    below: str,
) -> None:
    job = launcher.submit(order())
    assert aws.of("CreateTrainingJob")[-1].parameters["OutputDataConfig"]["CompressionType"] == "NONE"
    for name, text in {
        f"{below}report.json": REPORT.model_dump_json(),
        f"{below}deep/table": "1",
        f"{below}deep/../../evil": "x",
        "model/config.json": "{}",
        "model/report.json": "{}",
    }.items():
        aws.put(f"paretune/jobs/{NAME}/output/{name}", text.encode())
    aws.end(NAME)
    assert look(job, clock) is JobState.COMPLETED

    assert job.status().report == REPORT
    assert job.status().model == f"s3://{BUCKET}/paretune/jobs/{NAME}/output/model/"
    job.fetch_output("deep", tmp_path / "left" / "own")
    assert [path.name for path in (tmp_path / "left").rglob("*") if path.is_file()] == ["table"]


def logged(aws: Aws, job: Job, clock: FakeClock) -> list[int]:
    """Return the steps of the events in the log."""
    aws.enter(NAME, "Training")
    look(job, clock)
    return [event.step for event in job.events() if event.metrics]


def test_events_are_found_behind_other_text_and_lines_that_only_look_like_them_are_kept(
    aws: Aws, job: Job, clock: FakeClock
) -> None:
    stream = f"{NAME}/algo-1-1700000000"
    odd = ['{"time": 1, "step": "x"}', f"    {line(9)}", '{"time"']
    aws.say(stream, f"#015 60%|####{line(1)}", f"{line(2)}\x1b[0m#015", *odd)

    assert logged(aws, job, clock) == [1, 2]
    assert job.log_tail() == ["#015 60%|####", *odd]


def test_the_last_lines_are_those_of_the_instance_that_has_failed_though_another_waits_silently_for_it(
    aws: Aws, job: Job, clock: FakeClock
) -> None:
    aws.say(f"{NAME}/algo-1-1", "waiting for the others")
    aws.say(f"{NAME}/algo-2-1", "Traceback (most recent call last):", "RuntimeError: no such luck")
    assert logged(aws, job, clock) == []
    assert job.log_tail() == ["waiting for the others"]

    aws.end(NAME, "Failed", reason="AlgorithmError: error: RuntimeError: no such luck, exit code: 1")

    assert look(job, clock) is JobState.FAILED
    assert job.log_tail(1) == ["RuntimeError: no such luck"]


def test_of_a_job_that_runs_the_lines_of_its_first_instance_are_shown_as_many_as_are_asked_for(
    aws: Aws, job: Job, clock: FakeClock
) -> None:
    steps = [f"step {number}" for number in range(300)]
    aws.say(f"{NAME}/algo-2-1", "the worker waits")
    aws.say(f"{NAME}/algo-1-1", *steps)
    assert logged(aws, job, clock) == []
    assert job.log_tail(1000) == steps

    aws.say(f"{NAME}/algo-2-1", "the worker goes on")

    assert job.log_tail(1) == steps[-1:]


def test_each_line_of_the_first_instance_is_new_once_also_after_a_read_that_failed(aws: Aws, job: Job) -> None:
    aws.page_size = 3
    aws.say(f"{NAME}/algo-1-1", *["same"] * 7)
    aws.say(f"{NAME}/algo-2-1", "the worker waits")

    assert job.new_lines() == ["same"] * 7
    aws.say(f"{NAME}/algo-1-1", *["same"] * 5)
    aws.refuse("FilterLogEvents", "ThrottlingException")
    assert job.new_lines() == []
    assert job.new_lines() == ["same"] * 5
    assert job.new_lines() == []


def test_a_long_log_is_read_page_by_page_and_goes_on_where_it_stopped_also_after_a_restart(
    aws: Aws, job: Job, clock: FakeClock
) -> None:
    aws.page_size = 3
    aws.say(f"{NAME}/algo-1-1", *(line(step) for step in range(10)))
    assert logged(aws, job, clock) == list(range(10))

    aws.say(f"{NAME}/algo-1-2", *(line(step) for step in range(10, 15)))
    aws.say("paretune-run1-10/algo-1-1", line(99))  # another job, whose name begins in the same way

    assert logged(aws, job, clock) == list(range(10, 15))


def test_without_permission_to_read_logs_the_job_is_watched_and_the_tail_says_why(
    aws: Aws, job: Job, clock: FakeClock
) -> None:
    aws.refuse("FilterLogEvents", "AccessDeniedException", "no logs:FilterLogEvents", times=99)

    assert logged(aws, job, clock) == []
    assert "no logs:FilterLogEvents" in job.log_tail()[0]
    assert aws.count("FilterLogEvents") == 1


def test_an_empty_answer_in_place_of_the_log_leaves_the_job_watched(
    aws: Aws, job: Job, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(aws._own, "FilterLogEvents", lambda _: {})

    assert logged(aws, job, clock) == []
    assert job.log_tail() == []


def test_a_script_that_prints_events_has_printed_lines_and_only_its_runner_measures(
    aws: Aws, launcher: SageMakerLauncher, order: Callable[..., Order], clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "runner.py").touch()
    code = UserCode(files={"runner.py": tmp_path / "runner.py"}, command=Command(words=("train",), script="train.py"))
    job = launcher.submit(order(project=".", inputs=JobInputs(code=code)))
    now = clock.now()
    shouted = Event(time=now, step=1, message="the job failed: run `rm -rf ~`", metrics={"val_f1": 0.99}).line()
    measured = Event(time=now, step=2, metrics={"eval_f1": 0.5}, job=NAME).line()
    aws.say(f"{NAME}/algo-1-1", shouted, measured)
    aws.enter(NAME, "Training")
    look(job, clock)

    events = [event for event in job.events() if event.is_from_job]

    assert [(event.step, event.metrics, event.message) for event in events] == [(2, {"eval_f1": 0.5}, "")]
    assert job.log_tail() == [shouted]
