"""What is learnt of a point's seconds."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from paretune.commands.recur.file import RecurFile
from paretune.commands.recur.history import TRY, Night, NightJob
from paretune.commands.recur.points import Points, _longest_s
from paretune.specification.job import JobSpec
from paretune.studies.search.trial_history import hash_without_seed

POINT = {"learning_rate": 3e-5}
SPEC = JobSpec(learning_rate=3e-5)


def night(*jobs: tuple[str, float]) -> Night:
    """A night of jobs, each with its state and its seconds."""
    made = [
        NightJob(
            run_id=str(number),
            night="n0",
            part=TRY,
            point=POINT,
            state=state,
            value=0.9 if state == "Completed" else None,
            usd=1.0,
            seconds=seconds,
            started=float(number),
        )
        for number, (state, seconds) in enumerate(jobs)
    ]
    return Night(name="n0", number=0, jobs=made)


@pytest.mark.parametrize(
    ("jobs", "longest"),
    [
        ([("Completed", 100.0)], 100.0),
        ([("Completed", 100.0), ("Stopped", 300.0)], 300.0),  # it was cut off, and would have taken longer
        ([("Completed", 100.0), ("Failed", 20.0)], 100.0),
        ([("Stopped", 30.0)], None),  # it says nothing about how long it takes
    ],
)
def test_a_job_that_was_cut_off_raises_the_next_limit(jobs: list[tuple[str, float]], longest: float | None) -> None:
    result = _longest_s([POINT], [SPEC], [night(*jobs)])

    assert result == ({} if longest is None else {hash_without_seed(SPEC): longest})


NIGHTLY = """
name: nightly
job: {launcher: simulated, learning_rate: 3e-5, num_train_epochs: 2, max_train_samples: 1000, dataset: "s3://b/{night}.csv"}
search: {learning_rate: {choices: [2e-5, 3e-5]}}
floor: {f1: 0.9}
"""
BEFORE = night(("Completed", 100.0)).jobs[0]


def points_of(folder: Path, text: str, night: str = "n1") -> Points:
    """The points of a file on a night, without estimates."""
    path = folder / "nightly.yaml"
    path.write_text(text)
    file = RecurFile.read(str(path), {}).dated(night)
    points, none = file.points(), cast("Any", None)
    specs = [file.spec_at(point) for point in points]
    return Points(file=file, workplace=none, points=points, specs=specs, policy=none, worst=none)


@pytest.mark.parametrize(
    ("old", "new", "number"),
    [
        ("max_train_samples: 1000", "max_train_samples: 2000", 0),
        ("floor: {f1: 0.9}", "floor: {f1: 0.8}", 0),
        ("{learning_rate: {", "{num_train_epochs: {choices: [2, 3]}, learning_rate: {", 0),
        ("launcher: simulated", "launcher: simulated, model: bert-base-uncased", None),
        ("num_train_epochs: 2", "num_train_epochs: 4", None),
    ],
)
def test_a_night_counts_for_the_point_of_the_same_job_whatever_is_searched_and_for_no_other_job(
    tmp_path: Path, old: str, new: str, number: int | None
) -> None:
    job = replace(BEFORE, identity=points_of(tmp_path, NIGHTLY, "n0").identities[0])

    assert points_of(tmp_path, NIGHTLY).number_of(job) == 0
    assert points_of(tmp_path, NIGHTLY.replace(old, new)).number_of(job) == number


def test_a_night_of_an_earlier_version_is_found_by_its_point(tmp_path: Path) -> None:
    assert points_of(tmp_path, NIGHTLY).number_of(BEFORE) == 0
    assert points_of(tmp_path, NIGHTLY).number_of(replace(BEFORE, point={"learning_rate": 9e-5})) is None
