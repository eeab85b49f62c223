"""What a job says in CloudWatch: each line once, in its order, and the right tail."""

import pytest
from botocore.exceptions import ClientError

from paretune.launchers.sagemaker.polling import LogReader
from paretune.specification.container import Event, read_event
from tests.unit.launchers.sagemaker.aws import Aws

JOB = "paretune-run-1"


@pytest.fixture
def reader(aws: Aws) -> LogReader:
    return LogReader(aws.client("logs"), JOB)


def event(step: int) -> str:
    return Event(time=100.0 + step, step=step, metrics={"train/loss": 1 / (step + 1)}).line()


def read_all(reader: LogReader) -> None:
    reader.find_streams(all_pages=True)
    for stream in reader.streams:
        while reader.read(stream):
            pass


def test_events_and_lines_are_told_apart_and_come_once(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", "hello", event(0), event(1))
    read_all(reader)
    aws.logs.say(f"{JOB}/algo-1-1", event(2), "bye")
    read_all(reader)
    read_all(reader)

    assert [report.step for report in reader.events] == [0, 1, 2]
    assert reader.tail(10) == ["hello", "bye"]


REAL_LINES = [  # of public jobs of 2020 to 2024
    "bash: cannot set terminal process group (-1): Inappropriate ioctl for device",
    "bash: no job control in this shell",
    "2024-06-09 15:44:29,209 sagemaker-training-toolkit INFO     Imported framework sagemaker_pytorch_container",
    "2024-06-09 15:44:29,316 sagemaker_pytorch_container.training INFO     Block until all host DNS lookups succeed.",
    "2020-05-27 12:17:39,277 sagemaker-containers INFO     Imported framework sagemaker_pytorch_container.training",
    "/opt/conda/bin/python3.10 -m pip install -r requirements.txt",
    'SM_HOSTS=["algo-1"]',
    "torchrun --nnodes 1 --nproc_per_node 8 run_fsdp_qlora.py --config /opt/ml/input/data/config/x.yaml",
    "[1,14]<stderr>:RuntimeError[1,14]<stderr>:: CUDA out of memory.",
    "Cannot connect to host algo-1",
    "\x1b[34m  0%|          | 0/100 [00:00<?, ?it/s]#015  1%|          | 1/100#011\x1b[0m",
    '{"train_runtime": 12.5, "epoch": 1.0}',
    "2021-06-10 16:46:16 Training - Training image download completed. Training in progress.bash: cannot set terminal",
    "2024-04-30 12:50:16,315 sagemaker-training-toolkit ERROR    Reporting training FAILURE",
]


def test_lines_of_real_jobs_stay_as_they_are_in_their_order(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", *REAL_LINES[:5], event(0), *REAL_LINES[5:])

    read_all(reader)

    assert reader.tail(100) == REAL_LINES
    assert [each.step for each in reader.events] == [0]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("bash: no job control in this shell", ""),
        ("  50%|#####     | 5/10 [00:01<00:01]\r", ""),
        ("Training in progress.", "#015"),
        ("[default0]:", ""),
        ("[1,0]<stdout>:", " "),
        ("\x1b[34m", "\x1b[0m"),
    ],
)
def test_an_event_behind_other_text_of_its_line_is_read_and_the_text_kept(
    aws: Aws, reader: LogReader, before: str, after: str
) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", f"{before}{event(3)}{after}")

    read_all(reader)

    assert [each.step for each in reader.events] == [3]
    assert reader.tail(1) == [before]


def test_a_project_s_lines_are_shown_from_its_first_one_also_behind_other_text(aws: Aws) -> None:
    reader = LogReader(aws.client("logs"), JOB, is_project=True)
    lines = ["bash: no job control in this shellparetune: the project's command starts", "f1=0.9#015"]
    aws.logs.say(f"{JOB}/algo-1-1", REAL_LINES[0], *lines)

    read_all(reader)

    assert list(reader.printed) == lines


def test_a_long_log_is_read_page_by_page_also_over_an_empty_page(aws: Aws, reader: LogReader) -> None:
    aws.logs.page_size = 7
    aws.logs.say(f"{JOB}/algo-1-1", *map(event, range(40)))
    aws.logs.gaps = {(f"{JOB}/algo-1-1", 14)}

    read_all(reader)

    assert [report.step for report in reader.events] == list(range(40))


def test_reading_goes_on_where_it_stopped_and_tells_when_there_is_no_more(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", event(0))
    reader.find_streams()
    stream = reader.streams[0]

    assert reader.read(stream)
    assert not reader.read(stream)
    assert not reader.read(stream)
    aws.logs.say(stream, event(1))
    assert reader.read(stream)
    assert [report.step for report in reader.events] == [0, 1]


def test_every_page_is_asked_for_from_the_head_as_cloudwatch_wants_it_with_a_token(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", "hello")
    read_all(reader)

    assert {call.parameters["startFromHead"] for call in aws.of("GetLogEvents")} == {True}


def test_a_token_that_cloudwatch_has_forgotten_means_reading_anew(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", event(0))
    read_all(reader)
    aws.refuse("GetLogEvents", "InvalidParameterException", "The specified nextToken is invalid.")
    reader.read(f"{JOB}/algo-1-1")
    aws.logs.say(f"{JOB}/algo-1-1", event(1))

    read_all(reader)

    assert {report.step for report in reader.events} == {0, 1}


def test_a_stream_that_was_deleted_is_left_alone(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", "hello")
    reader.find_streams()
    aws.logs.streams.clear()

    assert not reader.read(f"{JOB}/algo-1-1")


def test_before_the_first_job_of_an_account_there_is_no_log(aws: Aws, reader: LogReader) -> None:
    aws.refuse("DescribeLogStreams", "ResourceNotFoundException", "The specified log group does not exist.")

    reader.find_streams()

    assert reader.streams == []
    assert reader.tail(5) == []


def test_streams_of_restarts_come_in_their_order(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1000", event(2))
    aws.logs.say(f"{JOB}/algo-1-999", event(1))
    aws.logs.say(f"{JOB}/algo-10-999", "of another host")

    read_all(reader)

    assert reader.main_streams == [f"{JOB}/algo-1-999", f"{JOB}/algo-1-1000"]
    assert [report.step for report in reader.events] == [1, 2]


def test_an_old_stream_that_was_read_to_its_end_is_not_asked_for_again(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", event(1))
    aws.logs.say(f"{JOB}/algo-1-2", event(2))
    reader.find_streams()
    assert reader.unread == [f"{JOB}/algo-1-1", f"{JOB}/algo-1-2"]

    read_all(reader)

    assert reader.unread == [f"{JOB}/algo-1-2"]


def test_streams_of_many_hosts_are_all_found(aws: Aws, reader: LogReader) -> None:
    for host in range(1, 121):
        aws.logs.say(f"{JOB}/algo-{host}-1", f"host {host}")

    reader.find_streams()
    assert reader.main_streams == [f"{JOB}/algo-1-1"]  # one call finds the first host
    reader.find_streams(all_pages=True)

    assert len(reader.streams) == 120


def test_a_job_whose_name_begins_alike_is_another_one(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}0/algo-1-1", "not mine")

    read_all(reader)

    assert reader.streams == []


def test_the_tail_is_that_of_the_host_that_went_silent_first(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", "training", "training")
    aws.logs.say(f"{JOB}/algo-2-1", "training", "RuntimeError: this is it")
    aws.logs.say(f"{JOB}/algo-1-1", "peer closed the connection")

    read_all(reader)

    assert reader.tail(2) == ["training", "RuntimeError: this is it"]


def test_after_a_restart_the_tail_is_that_of_the_restart(aws: Aws, reader: LogReader) -> None:
    aws.logs.say(f"{JOB}/algo-1-1", "first life")
    aws.logs.say(f"{JOB}/algo-1-2", "second life")

    read_all(reader)

    assert reader.tail(5) == ["second life"]


def test_the_tail_leaves_out_shell_traces_empty_lines_and_events_but_no_table(aws: Aws, reader: LogReader) -> None:
    lines = ["+ cd code", "++ date", "", "+-----+", "| f1 |", "+0.5 better", event(1)]
    aws.logs.say(f"{JOB}/algo-1-1", *lines)

    read_all(reader)

    assert reader.tail(10) == ["+-----+", "| f1 |", "+0.5 better"]


def test_without_permission_the_tail_says_so(aws: Aws, reader: LogReader) -> None:
    aws.refuse("DescribeLogStreams", "AccessDeniedException", "User ada is not authorized", times=9)

    read_all(reader)

    assert reader.tail(5) == ["AWS does not allow this identity to read the log of a job: User ada is not authorized"]


def test_throttling_is_for_the_poller(aws: Aws, reader: LogReader) -> None:
    aws.refuse("DescribeLogStreams", "ThrottlingException")

    with pytest.raises(ClientError):
        reader.find_streams()


@pytest.mark.parametrize(
    "line",
    [
        '{"time"',
        '{"time": 1.0, "step": 1, "metrics": {"train/lo',
        '{"time": "2026-01-01T00:00:00", "step": 1, "message": "a log line of somebody else"}',
        '{"time": 1.0, "step": null}',
        '{"time": 1.0, "step": 1, "level": "info"}',
        '{"time": 1.0, "step": 1, "metrics": {"f1": "0.5"}}',
        '{"time": 1.0, "step": 1, "metrics": ["f1"]}',
        '{"time": 1.0, "step": 1, "message": {"a": 1}}',
        '{"time": 1.0}',
        ' {"time": 1.0, "step": 1}',
        "",
    ],
)
def test_a_line_that_only_looks_like_an_event_is_a_line(aws: Aws, reader: LogReader, line: str) -> None:
    assert read_event(line) is None
    aws.logs.say(f"{JOB}/algo-1-1", line, "after")

    read_all(reader)

    assert reader.events == []
    assert reader.tail(5)[-1] == "after"


def test_an_event_is_read_back_as_it_was_written() -> None:
    report = Event(time=1.5, step=3, metrics={"train/loss": 0.25}, message="half", total_steps=6)

    assert read_event(report.line()) == report
