"""Phases of jobs on SageMaker: medians and intervals by kind of instance, and how a predicted job divides into them."""

from typing import Any

import pytest

from paretune.estimating.phases import PHASES, Seconds, phases_of
from paretune.specification.catalog import instance

HOUR = Seconds(seconds=3600, seconds_low=3000, seconds_high=4320)


def divide(total: Seconds = HOUR, *, instance_type: str = "ml.g5.xlarge", **more: Any) -> dict[str, Seconds]:
    return dict(phases_of(total, None if instance_type == "local" else instance(instance_type), **more))


def test_no_billed_phase_takes_longer_than_the_whole_job_leaves_to_it() -> None:
    phases = divide(instance_type="ml.p5.48xlarge", upload_seconds=2400)

    assert phases["uploading"].seconds_high <= HOUR.seconds_high - phases["training"].seconds_low
    assert phases["uploading"].seconds_high >= phases["uploading"].seconds


def test_the_billed_phases_add_up_to_the_seconds_of_the_job_and_a_large_model_takes_longer_to_upload() -> None:
    phases, small, large = divide(), divide(upload_seconds=0), divide(upload_seconds=25)

    assert tuple(phases) == PHASES
    assert sum(phases[phase].seconds for phase in PHASES[2:]) == pytest.approx(3600)
    assert phases["training"].seconds_high / phases["training"].seconds == pytest.approx(1.2)
    assert large["uploading"].seconds - small["uploading"].seconds == pytest.approx(25)
    assert large["training"].seconds == pytest.approx(small["training"].seconds - 25)
