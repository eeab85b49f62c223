"""Seconds of trainings of the user's own, from jobs that have run."""

import pytest

from paretune.estimating.forecast import OwnTrainingTimes
from paretune.pricing.prices import ML_M5_LARGE
from paretune.specification.job import JobSpec

PRICE = ML_M5_LARGE


def job(rows: int = 1000, **changes: object) -> JobSpec:
    """A job of a project whose seconds grow with `rows`."""
    arguments = {"project_parameters": {"rows": rows, "alpha": 0.1}} | changes
    return JobSpec(project="mine", **arguments)  # type: ignore[arg-type]  # names of its fields


def test_nothing_is_known_before_one_has_run_there() -> None:
    elsewhere = job(instance_type="ml.m5.large")
    others = [job(entry_point="other.py"), elsewhere, JobSpec(project="another", project_parameters={"rows": 1000})]

    assert OwnTrainingTimes().predict(job(), PRICE) is None
    assert OwnTrainingTimes(runs=[(spec, 10.0) for spec in others]).predict(job(), PRICE) is None


def test_only_equal_jobs_count_whatever_their_seed() -> None:
    runs = [(job(1000, seed=7), 14.0), (job(4000), 44.0)]
    prediction = OwnTrainingTimes(runs=runs).predict(job(), PRICE)

    assert prediction is not None
    assert prediction.measured_here == 1
    assert prediction.time.seconds == pytest.approx(14)
