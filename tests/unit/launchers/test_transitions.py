"""The phases of jobs that have run, as SageMaker describes them."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from paretune.launchers.transitions import read_phases


def _job(*transitions: tuple[str, float, float | None]) -> dict[str, Any]:
    entries = [{"Status": status, "StartTime": begin, "EndTime": end} for status, begin, end in transitions]
    return {"SecondaryStatusTransitions": entries}


def test_the_phases_of_public_jobs_fill_their_lives() -> None:
    files = sorted((Path(__file__).parent / "describe_answers").glob("*.json"))
    assert len(files) == 23  # as documented
    for answer in (json.loads(path.read_text()) for path in files):
        begin, end = (
            datetime.fromisoformat(answer["SecondaryStatusTransitions"][at]["StartTime"]).timestamp() for at in (0, -1)
        )
        if answer["TrainingJobStatus"] == "Completed":
            phases = read_phases(answer)
            assert set(phases) == {"starting", "downloading", "training", "uploading"}
            assert sum(phases.values()) == pytest.approx(end - begin)
        else:
            assert read_phases(answer, now=begin + 30) == {"starting": 30}


def test_an_unknown_status_counts_as_the_phase_before_it() -> None:
    phases = read_phases(_job(("Downloading", 0, 10), ("Meditating", 10, 25), ("Training", 25, 40), ("Failed", 40, 40)))
    assert phases == {"downloading": 25, "training": 15}


def test_waits_for_capacity_are_distinguished() -> None:
    begun = [("Starting", 0, 10), ("Pending", 10, 70), ("Downloading", 70, 80), ("Training", 80, 100)]
    again = [("Interrupted", 100, 160), ("Starting", 160, 170), ("Downloading", 170, 175), ("Training", 175, 180)]
    phases = read_phases(_job(*begun, *again, ("Uploading", 180, 190), ("Completed", 190, 190)))
    assert phases == {"starting": 20, "waiting": 120, "downloading": 15, "training": 25, "uploading": 10}


def test_a_status_that_begins_before_its_predecessor_begins_with_it() -> None:
    phases = read_phases(_job(("Starting", 0, 10), ("Training", 50, 60), ("Uploading", 20, 65), ("Completed", 65, 65)))
    assert phases == {"starting": 50, "training": 0, "uploading": 15}
