"""Phases and bills of real jobs. `describe_answers/` has public answers of DescribeTrainingJob, with their sources."""

import json
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


def test_an_unknown_status_counts_as_the_phase_before_it() -> None:
    phases = read_phases(_job(("Downloading", 0, 10), ("Meditating", 10, 25), ("Training", 25, 40), ("Failed", 40, 40)))
    assert phases.seconds == {"downloading": 25, "training": 15}


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


def test_a_status_that_begins_before_its_predecessor_begins_with_it() -> None:
    phases = read_phases(_job(("Starting", 0, 10), ("Training", 50, 60), ("Uploading", 20, 65), ("Completed", 65, 65)))
    assert phases.seconds == {"starting": 50, "training": 0, "uploading": 15}


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
