"""A split search over a training of the user's own: all that is searched may change its quality."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paretune.specification.container import JobReport
from paretune.specification.job import JobSpec
from paretune.studies.definition.space import Choices
from paretune.studies.results.trials import TrialStatus
from paretune.studies.search.driver import Driver
from paretune.studies.search.next_job import Split
from paretune.tracking import Tracking
from tests.scripted_study import Desk, QuickClock
from tests.unit.jobs.test_retrying_job import LARGE, PRICES, SMALL, ScriptedJob

LEAVES, RATE, THREADS = "training_arguments.leaves", "training_arguments.rate", "training_arguments.threads"
TYPES = (SMALL, LARGE)
SEARCH = {
    "instance_type": Choices(values=TYPES),
    THREADS: Choices(values=(1, 4)),
    LEAVES: Choices(values=(7, 15, 31)),
    RATE: Choices(values=(0.001, 0.01, 0.1)),
}


@pytest.fixture
def desk(workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    clock = QuickClock()
    made = Desk(tmp_path, clock, Tracking({}, clock))
    (tmp_path / "own.py").touch()
    monkeypatch.setattr(ScriptedJob, "seconds", lambda job: seconds_of(job.document.spec))
    yield made
    made.close()


def seconds_of(spec: JobSpec) -> float:
    report = spec.training_arguments
    return 900.0 / (4 if spec.instance_type == LARGE else 1) * (0.6 if report["threads"] == 4 else 1.0)


def loss_of(spec: JobSpec) -> float:
    report = spec.training_arguments
    return 2.0 + 0.5 * float((math.log10(report["rate"]) + 2) ** 2) + 0.02 * abs(report["leaves"] - 15)


def study_of(desk: Desk, monkeypatch: pytest.MonkeyPatch, sign: float, **terms: Any) -> Driver:
    """A study of cost against a loss, or against its negative."""
    direction = "minimize" if sign > 0 else "maximize"
    monkeypatch.setattr(ScriptedJob, "report", lambda job: JobReport(metrics={"x": sign * loss_of(job.document.spec)}))
    job = {"max_runtime_minutes": 20, "entry_script": str(desk.folder / "own.py")}
    standard: dict[str, Any] = {"job": job, "search": SEARCH, "sampler": None, "budget_usd": 20.0}
    standard |= {"name": direction, "objectives": {"cost_usd": "minimize", "x": direction}}
    return desk.driver(**{**standard, **terms})


@pytest.mark.slow
def test_the_best_quality_is_found_on_the_cheapest_cluster_by_a_part_of_the_trials_and_predicted(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = study_of(desk, monkeypatch, 1.0)
    assert driver.file.takes_split
    searching = Split(driver)
    driver.run(searching)

    assert all(trial.status is TrialStatus.COMPLETED for trial in driver.trials.values())
    assert (
        len(driver.trials) <= len(driver.file.search) * 5 < math.prod(len(entry.corners) for entry in SEARCH.values())
    )
    specs = [driver.file.spec_at(point) for point in driver.file.points_in_turn()]
    cheapest = min(seconds_of(spec) / 3600 * PRICES[spec.instance_type] for spec in specs)
    best = [trial for trial in driver.trials.values() if trial.values["x"] == 2.0]
    assert min(trial.values["cost_usd"] for trial in best) == pytest.approx(cheapest)
    assert driver.table.balance().spent_usd <= 20.0
    for trial in searching.forecast():  # in the metric's own direction
        low, high = trial.intervals["x"]
        assert 1.5 < low <= trial.values["x"] <= high
