"""Estimates beside what was measured, by sums worked out by hand."""

import pytest

from paretune.commands.report.accuracy import accuracy, estimate_errors
from paretune.tracking import RecordedJob, RecordedRun


def run(origin: str = "measured", state: str = "Completed", **metrics: float) -> RecordedJob:
    return RecordedJob(RecordedRun("r", {}, {"paretune.origin": origin, "paretune.state": state}, metrics))


def seconds(predicted: float, measured: float, low: float | None = None, high: float | None = None) -> RecordedJob:
    bounds = {"estimated_seconds_low": low, "estimated_seconds_high": high}
    reference = {name: value for name, value in bounds.items() if value is not None}
    return run(estimated_seconds=predicted, billable_seconds=measured, **reference)


def test_an_error_is_a_share_of_what_was_measured() -> None:
    (error,) = estimate_errors([seconds(90, 100, 80, 99)])

    assert error.error == pytest.approx(-0.1)
    assert error.is_inside is False


def test_every_quantity_that_was_estimated_and_measured_is_compared() -> None:
    all_three = run(
        estimated_seconds=1,
        billable_seconds=2,
        estimated_cost_usd=1,
        cost_usd=2,
        estimated_memory_gib=1,
        peak_memory_gib=2,
    )

    assert [error.quantity for error in estimate_errors([all_three])] == ["seconds", "cost_usd", "memory_gib"]
    assert estimate_errors([run(estimated_seconds=1), run(billable_seconds=1), run()]) == []
    assert estimate_errors([run(estimated_cost_usd=1, cost_usd=0)]) == []


@pytest.mark.parametrize("state", ["Failed", "Stopped", "Running"])
def test_a_job_that_did_not_complete_says_nothing_of_its_estimate(state: str) -> None:
    assert estimate_errors([run(state=state, estimated_seconds=1, billable_seconds=2)]) == []


def test_the_summary_has_mean_absolute_error_and_the_share_inside_the_interval() -> None:
    runs = [seconds(90, 100, 80, 110), seconds(130, 100, 120, 140), seconds(100, 100)]
    (summary,) = accuracy(estimate_errors(runs))

    assert summary.jobs == 3
    assert summary.mean_absolute == pytest.approx((0.1 + 0.3 + 0) / 3)
    assert summary.inside == 0.5  # of the two that have an interval


def test_without_any_interval_no_share_is_told() -> None:
    assert accuracy(estimate_errors([seconds(1, 2)]))[0].inside is None


def test_origins_and_quantities_are_never_averaged_together() -> None:
    simulated = run("simulated", estimated_seconds=1, billable_seconds=2)
    cost = run(estimated_cost_usd=1, cost_usd=2)

    result = accuracy(estimate_errors([seconds(1, 2), simulated, cost]))

    assert [(item.origin, item.quantity) for item in result] == [
        ("measured", "seconds"),
        ("simulated", "seconds"),
        ("measured", "cost_usd"),
    ]
