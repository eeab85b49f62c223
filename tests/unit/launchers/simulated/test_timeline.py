"""Timelines of simulated jobs: from a table, from an estimate, and with the failures that `simulation` sets."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.estimating.estimator import Estimate
from paretune.estimating.memory import MemoryPrediction
from paretune.estimating.phases import usual
from paretune.estimating.timing import Prediction
from paretune.launchers.simulated.timeline import CAPACITY_SECONDS, Timeline, TimelineFactory
from paretune.specification.ending import Cause
from paretune.specification.job import JobSpec

SMALL = "ml.g5.xlarge"
TABLE = """instance_type,instance_count,per_device_train_batch_size,learning_rate,\
billable_seconds,f1,status
ml.g5.xlarge,1,16,5e-5,1320,0.8,
ml.g5.xlarge,1,32,5e-5,1020,0.7,
ml.g5.xlarge,1,64,5e-5,130,,OutOfMemory
ml.g5.xlarge,1,8,5e-5,400,,Failed
"""


def not_asked(*_: object) -> None:
    raise AssertionError("the table answers")


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "runs.csv"
    path.write_text(TABLE)
    return str(path)


STARTING = usual("starting", "gpu").seconds  # not billed


def job(table: str | None, simulation: Mapping[str, Any] | None = None, **changes: Any) -> JobSpec:
    return JobSpec(
        launcher="simulated",
        simulation={**(simulation or {}), "runs": table},
        **{"instance_type": SMALL, "num_train_epochs": 2.0, **changes},
    )


def factory(**parts: Any) -> TimelineFactory:
    return TimelineFactory(**{"predict": not_asked, **parts})


def play(table: str | None, simulation: Mapping[str, Any] | None = None, **changes: Any) -> Timeline:
    spec = job(table, simulation, **changes)
    return factory()(spec, spec.plan())


@pytest.mark.parametrize(("batch", "seconds", "kind"), [(64, 130, Cause.OUT_OF_MEMORY), (8, 400, Cause.ERROR)])
def test_a_row_that_did_not_complete_does_not_complete(table: str, batch: int, seconds: float, kind: Cause) -> None:
    timeline = play(table, per_device_train_batch_size=batch)

    assert timeline.failure is not None
    assert timeline.failure[0] is kind
    assert timeline.billable_seconds() == pytest.approx(seconds)
    assert timeline.report is None


def test_only_a_job_that_completes_uploads_its_results(table: str) -> None:
    completed, failed = (play(table, {"failure_rate": rate}, per_device_train_batch_size=16) for rate in (0, 1))

    names = [name for name, _ in completed.phases]
    assert names == ["Starting", "Downloading", "Training", "Uploading"]
    assert completed.billable_seconds() == pytest.approx(1320)
    assert "Uploading" not in [name for name, _ in failed.phases]
    assert failed.billable_seconds() < 1320


def test_trouble_comes_at_the_rate_that_was_asked_for_and_the_same_again(table: str) -> None:
    rates = {"failure_rate": 0.3}

    def kinds() -> list[Cause | None]:
        timelines = [play(table, rates, seed=seed) for seed in range(100)]
        return [timeline.failure[0] if timeline.failure else None for timeline in timelines]

    result = kinds()
    assert result == kinds()
    assert result.count(Cause.ERROR) / 100 == pytest.approx(0.3, abs=0.1)
    assert result != [
        timeline.failure[0] if (timeline := play(table, {**rates, "seed": 1}, seed=seed)).failure else None
        for seed in range(100)
    ]


def test_no_capacity_is_not_billed_and_the_next_attempt_may_find_some(table: str) -> None:
    spec = job(table, {"capacity_error_rate": 0.5})
    result = [factory()(spec, spec.plan(), attempt) for attempt in range(1, 40)]
    without = [timeline for timeline in result if timeline.failure]

    assert 5 < len(without) < 35
    assert {timeline.failure[0] for timeline in without if timeline.failure} == {Cause.CAPACITY}
    assert {(timeline.seconds, timeline.billable_seconds()) for timeline in without} == {(CAPACITY_SECONDS, 0)}


TIME = Prediction(
    seconds=620.0, seconds_low=500.0, seconds_high=700.0, startup_seconds=120.0, step_seconds=0.5, steps=1000
)
ESTIMATE = Estimate(
    spec=JobSpec(),
    plan=JobSpec().plan(),
    measured_here=0,
    time=TIME,
    memory=MemoryPrediction(gib=9.5, gib_low=9.0, gib_high=10.0, usable_gib=16.0),
    price=None,
    basis="data sheets",
)


def test_a_table_without_seconds_gives_f1_and_the_estimate_seconds(tmp_path: Path) -> None:
    path = tmp_path / "f1.csv"
    path.write_text(
        "instance_type,instance_count,per_device_train_batch_size,learning_rate,f1\nml.g5.xlarge,1,16,5e-5,0.8\n"
    )
    timeline = factory(predict=lambda *_: ESTIMATE)(job(str(path)), job(str(path)).plan())

    assert timeline.report is not None
    assert timeline.seconds == pytest.approx(STARTING + 620)
    assert timeline.report.metrics["f1"] == 0.8
    assert timeline.facts == {"basis": "seconds from the estimate (data sheets), F1 from the recorded run in line 2"}


def test_what_the_estimate_does_not_fit_runs_out_of_memory() -> None:
    full = MemoryPrediction(gib=9.5, gib_low=9.0, gib_high=10.0, usable_gib=9.4)
    timeline = factory(predict=lambda *_: replace(ESTIMATE, memory=full))(job(None), job(None).plan())

    assert timeline.failure is not None
    assert timeline.failure[0] is Cause.OUT_OF_MEMORY
    assert timeline.billable_seconds() == pytest.approx(120)


def test_a_job_that_cannot_be_estimated_is_refused() -> None:
    with pytest.raises(BadInput, match=r"simulation\.runs"):
        factory(predict=lambda *_: None)(job(None), job(None).plan())
