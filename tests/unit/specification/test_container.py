"""What the launching and the training side exchange, written and read back."""

import errno
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paretune.specification.container import Event, EventReader, JobFolder, JobReport, measurements_of, read_event
from paretune.specification.ending import Cause, failed

# Every character that a user's data may contain, including line ends and control characters, but no lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
metrics = st.dictionaries(texts, numbers, max_size=4)
steps = st.integers(0, 10**9)
events = st.builds(
    Event, time=st.floats(0, 4e9), step=steps, metrics=metrics, message=texts, total_steps=st.none() | steps
)


@given(events)
def test_an_event_survives_being_a_line(event: Event) -> None:
    line = event.line()

    assert line.splitlines() == [line]
    assert line.isascii()  # whatever the encoding of the job's output
    assert Event.model_validate_json(line) == event


def test_the_first_reason_of_a_failure_is_kept_and_the_text_of_another_program_is_an_error(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    assert folder.read_failure() is None

    folder.write_failure(Cause.OUT_OF_MEMORY, "the GPU is full")
    folder.write_failure(Cause.ERROR, "the other process has gone")
    assert folder.read_failure() == failed(Cause.OUT_OF_MEMORY, "the GPU is full")

    folder.failure.write_bytes(b"AlgorithmError: exit code 1: \xff\n")
    assert folder.read_failure() == failed(Cause.ERROR, "AlgorithmError: exit code 1: \N{REPLACEMENT CHARACTER}")


def test_a_full_disk_has_no_room_for_a_reason_and_hides_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = JobFolder(tmp_path)
    monkeypatch.setattr(Path, "open", full)

    folder.write_failure(Cause.ERROR, "no progress for 30 minutes")

    assert folder.read_failure() is None


def test_lines_of_an_events_file_that_are_no_events_hide_no_others(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first, last = (Event(time=1.0, step=step, metrics={"train/loss": 0.5}) for step in (1, 2))
    lies = b'\xff\xfe\nTraceback\n[1]\n{"time": 1.0, "step": 1e300}\n{"time": 1.0, "st\n'
    path.write_bytes(first.line().encode() + b"\n" + lies + last.line().encode() + b"\n" + b'{"time": 1.0')

    reader = EventReader(path)
    assert list(reader.new()) == [each.model_copy(update={"is_from_job": True}) for each in (first, last)]
    with path.open("a") as file:
        file.write(', "step": 3}\n')
    assert [(event.time, event.step) for event in reader.new()] == [
        (1.0, 3)
    ]  # each event once, when its line is complete


def test_progress_is_believed_of_the_runner_of_the_job_only_and_only_if_it_can_be_true() -> None:
    def sent(job: str, done: float) -> Event | None:
        progress = {"unit": "epoch", "done": done, "total": 52, "seconds": 90.5}
        return read_event(json.dumps({"time": 1.0, "step": 0, "progress": progress, "job": job}))

    (event,) = measurements_of(filter(None, (sent("mine", 3.0), sent("another", 50.0), sent("", 51.0))), "mine")
    assert event.progress is not None
    assert event.progress.evidence == "epoch 3 of 52"
    assert [sent("mine", done) for done in (-1.0, math.inf, math.nan, 1e300)] == [None] * 4


@pytest.mark.parametrize(
    "content",
    [
        *(b"\xff\x00", b"[1]", b'{"metrics": {"f1": 0.'),
        b'{"metrics": {"f1": "good"}, "facts": {}, "labels": [], "confusion_matrix": []}',
        b'{"metrics": ' + b"[" * 100_000,
        b'{"metrics": {}, "facts": {}, "labels": ["a"], "confusion_matrix": [[1, 2]]}',
        b'{"metrics": {}, "facts": {}, "labels": ["a"], "label_counts": [[1, 2, 3, 4], [1, 2, 3, 4]]}',
    ],
)
def test_what_is_no_report_is_none(content: bytes) -> None:
    assert JobReport.read_json(content) is None
    assert JobReport.read_json('{"metrics": {"f1": NaN, "loss": 0.5}}') == JobReport(metrics={"loss": 0.5})
