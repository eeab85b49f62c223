"""Phases and bills of real jobs. `describe_answers/` has public answers of DescribeTrainingJob, with their sources."""

import json
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from paretune.specification.job_phases import read_phases

_FILES = sorted((Path(__file__).parent / "describe_answers").glob("*.json"))
_ANSWERS = {path.stem: json.loads(path.read_text()) for path in _FILES}
_COMPLETED = {name: answer for name, answer in _ANSWERS.items() if answer["TrainingJobStatus"] == "Completed"}
_STARTING = sorted(set(_ANSWERS) - set(_COMPLETED))


def _job(*transitions: tuple[str, float, float | None]) -> dict[str, Any]:
    entries = [{"Status": status, "StartTime": begin, "EndTime": end} for status, begin, end in transitions]
    return {"SecondaryStatusTransitions": entries}


def test_there_are_as_many_public_answers_as_the_docs_say() -> None:
    assert (len(_ANSWERS), len(_COMPLETED)) == (23, 20)


@pytest.mark.parametrize("name", [name for name in _COMPLETED if "TrainingTimeInSeconds" in _COMPLETED[name]])
def test_the_bill_of_a_real_job_follows_from_its_transitions_to_the_second(name: str) -> None:
    phases = read_phases(_COMPLETED[name])
    assert phases.billed_seconds == _COMPLETED[name]["TrainingTimeInSeconds"]
    assert phases.has_ended
    assert phases.faults == ()


@pytest.mark.parametrize("name", sorted(_COMPLETED))
def test_the_phases_of_a_real_job_fill_its_life(name: str) -> None:
    answer = _COMPLETED[name]
    phases = read_phases(answer)
    first, last = (answer["SecondaryStatusTransitions"][at] for at in (0, -1))
    whole = read_phases(_job(("Training", _at(first["StartTime"]), _at(last["StartTime"])))).seconds["training"]
    assert set(phases.seconds) == {"starting", "downloading", "training", "uploading"}
    assert sum(phases.seconds.values()) == pytest.approx(whole)


@pytest.mark.parametrize("name", _STARTING)
def test_a_job_that_still_starts_has_no_bill(name: str) -> None:
    begin = _at(_ANSWERS[name]["SecondaryStatusTransitions"][0]["StartTime"])
    phases = read_phases(_ANSWERS[name], now=begin + 30)
    assert phases.seconds == {"starting": 30}
    assert phases.billed_seconds == 0
    assert not phases.has_ended


@pytest.mark.parametrize("name", sorted(_ANSWERS))
@pytest.mark.parametrize("damage", ["status", "begin", "end", "shape", "unknown", "none", "first"])
def test_a_damaged_answer_is_read_as_far_as_it_goes(name: str, damage: str) -> None:
    answer = deepcopy(_ANSWERS[name])
    entries = answer["SecondaryStatusTransitions"]
    changes: dict[str, Any] = {
        "status": entries[0] | {"Status": None},
        "begin": entries[0] | {"StartTime": "yesterday"},
        "end": entries[0] | {"EndTime": "1970-01-01T00:00:00"},
        "shape": "Starting",
        "unknown": entries[0] | {"Status": "Meditating"},
    }
    if damage == "none":
        answer["SecondaryStatusTransitions"] = 7
    elif damage == "first":
        answer["SecondaryStatusTransitions"] = entries[:1]
    else:
        entries[0] = changes[damage]
    phases = read_phases(answer)
    assert (phases.faults != ()) == (damage != "first")
    assert all(seconds >= 0 for seconds in phases.seconds.values())
    if damage not in {"none", "first"} and name in _COMPLETED:
        assert phases.billed_seconds == read_phases(_COMPLETED[name]).billed_seconds


def test_an_unknown_status_is_named_and_counts_as_the_phase_before_it() -> None:
    phases = read_phases(_job(("Downloading", 0, 10), ("Meditating", 10, 25), ("Training", 25, 40), ("Failed", 40, 40)))
    assert phases.seconds == {"downloading": 25, "training": 15}
    assert phases.faults == ("secondary status Meditating is unknown: its seconds count as downloading",)


def test_waits_for_capacity_are_told_apart_and_not_billed() -> None:
    job = _job(("Starting", 0, 10), ("Pending", 10, 70), ("Downloading", 70, 80), ("Training", 80, 100))
    job["SecondaryStatusTransitions"] += _job(
        ("Interrupted", 100, 160), ("Starting", 160, 170), ("Downloading", 170, 175), ("Training", 175, 180)
    )["SecondaryStatusTransitions"]
    job["SecondaryStatusTransitions"] += _job(("Uploading", 180, 190), ("Completed", 190, 190))[
        "SecondaryStatusTransitions"
    ]
    phases = read_phases(job)
    assert phases.seconds == {"starting": 20, "waiting": 120, "downloading": 15, "training": 25, "uploading": 10}
    assert phases.billed_seconds == 50


def test_a_stopped_job_is_billed_to_the_end_of_its_upload() -> None:
    job = _job(("Downloading", 0, 5), ("Training", 5, 9), ("Stopping", 9, 12), ("Uploading", 12, 20))
    assert read_phases(job).billed_seconds == 20
    assert read_phases(job | {"TrainingJobStatus": "Stopped"}).seconds["training"] == 7


def test_a_status_that_begins_before_its_predecessor_is_named() -> None:
    phases = read_phases(_job(("Starting", 0, 10), ("Training", 50, 60), ("Uploading", 20, 65), ("Completed", 65, 65)))
    assert phases.seconds == {"starting": 50, "training": 0, "uploading": 15}
    assert phases.faults == ("Uploading begins before Training, which precedes it: Training has 0 s",)


def test_a_job_that_completed_without_training_is_named() -> None:
    assert read_phases(_job(("Starting", 0, 10), ("Completed", 10, 10))).faults


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
