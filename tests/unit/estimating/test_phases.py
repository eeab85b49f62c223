"""Phases of jobs on SageMaker: medians and intervals by kind of instance, and how they divide a predicted job."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from paretune.estimating.phases import Seconds, phases_of, usual
from paretune.specification.job import JobSpec
from paretune.specification.job_phases import PHASES

HOUR = Seconds(seconds=3600, seconds_low=3000, seconds_high=4320)


@pytest.fixture
def public_jobs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    sys.modules.pop("public_jobs", None)
    import public_jobs

    return public_jobs


def divide(total: Seconds = HOUR, *, instance_type: str = "ml.g5.xlarge", **more: Any) -> dict[str, Seconds]:
    return dict(phases_of(total, JobSpec(instance_type=instance_type), **more))


def test_the_billed_phases_add_up_to_the_seconds_of_the_job() -> None:
    phases = divide()
    assert tuple(phases) == PHASES
    assert sum(phases[phase].seconds for phase in PHASES[2:]) == pytest.approx(3600)
    assert phases["training"].seconds_high / phases["training"].seconds == pytest.approx(1.2)


def test_the_bytes_of_a_model_are_uploaded_in_addition() -> None:
    small, large = divide(uploaded_bytes=0), divide(uploaded_bytes=5e9)
    assert large["uploading"].seconds - small["uploading"].seconds == pytest.approx(25)  # 200 MB/s
    assert large["training"].seconds == pytest.approx(small["training"].seconds - 25)
    packed = divide(uploaded_bytes=1e8)
    assert packed["uploading"].seconds - small["uploading"].seconds == pytest.approx(10)  # 10 MB/s


def test_phases_follow_what_earlier_jobs_took_around_their_steps() -> None:
    assert divide(factor=2)["image"].seconds == pytest.approx(2 * usual("image", "gpu").seconds)
    assert divide(factor=2)["starting"] == usual("starting", "gpu")  # which is in no bill


def test_the_interval_of_a_repository_is_fitted_without_its_own_jobs(public_jobs: ModuleType) -> None:
    def job(repository: str, seconds: float) -> Any:
        return public_jobs.PublicJob(
            name="T", repository=repository, date="2024", kind="gpu", seconds={"seconds_starting": seconds}
        )

    jobs = [job(f"usual/{number}", 90.0 + number) for number in range(20)] + [job("slow/one", 9000.0)] * 20
    assert public_jobs.coverage(jobs, "seconds_starting")["slow/one"] == (0, 20)
