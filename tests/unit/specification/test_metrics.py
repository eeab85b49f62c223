"""Metrics of jobs: the digits that are recorded."""

import math

import pytest

from paretune.specification import metrics


def test_metrics_of_paretune_have_the_digits_that_one_job_can_know() -> None:
    assert metrics.to_known_digits(
        {
            "cost_usd": 1181.6552974245158,
            "job_seconds": 348.55360514,
            "throughput_samples_per_second": 12345.678,
            "estimated_seconds_low": 123.456789,
            "hypervolume": 96154577.2,
        }
    ) == {
        "cost_usd": 1181.655,
        "job_seconds": 348.55,
        "throughput_samples_per_second": 12350.0,
        "estimated_seconds_low": 123.5,
        "hypervolume": 96150000.0,
    }


def test_metrics_of_other_names_and_infinite_ones_are_recorded_as_they_are() -> None:
    values = {"f1": 2 / 3, "estimated_reward": 123.456789, "train/loss": 1 / 3, "mfu": math.inf}

    assert metrics.to_known_digits(values) == values


@pytest.mark.parametrize("usd", [1 / 7, 100 / 7, 7000 / 8])
def test_recorded_dollars_of_a_job_are_within_a_tenth_of_a_cent(usd: float) -> None:
    assert metrics.to_known_digits({"cost_usd": usd})["cost_usd"] == pytest.approx(usd, abs=0.001, rel=0)
