"""Least squares against sums worked out by hand and against scipy."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from paretune.commands.report.observations import observations
from paretune.commands.report.regression import line, tukey
from paretune.commands.report.scaling import scalings
from paretune.specification import metrics
from paretune.tracking import RecordedJob
from tests.recorded_jobs import on_p3

COUNTS = [1, 1, 2, 2, 4, 4]


def f1_at(values: list[float], counts: list[int] = COUNTS) -> list[RecordedJob]:
    return [job for count, value in zip(counts, values, strict=True) for job in on_p3(count, [100 / count], f1=value)]


def test_a_line_is_that_of_scipy_with_its_intervals() -> None:
    values = [0.91, 0.912, 0.905, 0.903, 0.89, 0.893]
    fit = line(observations(f1_at(values)), metrics.F1)
    assert fit is not None
    expected = stats.linregress(np.log2(COUNTS), values)
    margin = stats.t.ppf(0.975, 4) * expected.stderr

    slope = fit.terms[1]
    assert (slope.name, slope.estimate) == ("devices", pytest.approx(expected.slope))
    assert (slope.low, slope.high) == (pytest.approx(expected.slope - margin), pytest.approx(expected.slope + margin))
    assert slope.p == pytest.approx(expected.pvalue)
    assert fit.formula == "f1 ~ log2(devices)"
    mean, low, high = fit.predict([[2.0]])
    assert mean[0] == pytest.approx(expected.intercept + expected.slope)
    assert low[0] < mean[0] < high[0]


def test_lack_of_fit_is_tested_against_the_scatter_of_repeats() -> None:
    values = [0.90, 0.902, 0.95, 0.952, 0.90, 0.902]
    fit = line(observations(f1_at(values)), metrics.F1)
    assert fit is not None
    assert fit.lack_of_fit is not None
    # Means 0.901, 0.951, 0.901; pure error 3 x 2 x 0.001^2 with 3 degrees; the line of means misses the rest.
    logarithms = np.log2(COUNTS)
    expected = stats.linregress(logarithms, values)
    missed = sum((np.array(values) - expected.intercept - expected.slope * logarithms) ** 2)
    pure = 6e-6

    assert fit.lack_of_fit.f == pytest.approx((missed - pure) / 1 / (pure / 3))
    assert (fit.lack_of_fit.missed, fit.lack_of_fit.repeated) == (1, 3)
    assert fit.verdict == "does not hold"


def by_size(f1_of: Callable[[int, int], float]) -> list[RecordedJob]:
    """Two runs that scatter by 0.002 on each of 1, 4 and 16 devices with each of three data sizes."""
    return [
        job
        for count, size in itertools.product((1, 4, 16), (1000, 4000, 32_000))
        for noise in (-0.001, 0.001)
        for job in on_p3(count, [100.0], f1=f1_of(count, size) + noise, max_train_samples=size)
    ]


def test_the_effect_of_devices_may_depend_on_the_data_size() -> None:
    rows = [(math.log2(count), math.log2(size)) for count, size in itertools.product((1, 4, 16), (1000, 4000, 32_000))]
    devices, sizes = np.mean(rows, axis=0)
    jobs = by_size(lambda count, size: 0.9 + 0.01 * math.log2(count) * (math.log2(size) - 16) / 8)
    fit = line(observations(jobs), metrics.F1)
    assert fit is not None
    constant, by_devices, by_rows, by_both = fit.terms

    assert fit.formula == "f1 ~ log2(devices) * log2(data_size)"
    assert (by_devices.name, by_rows.name, by_both.name) == ("devices", "data size", "devices x data size")
    assert fit.centre == {"devices": pytest.approx(2**devices), "data size": pytest.approx(2**sizes)}
    assert by_both.estimate == pytest.approx(0.01 / 8)
    assert by_devices.estimate == pytest.approx(0.01 * (sizes - 16) / 8)  # at the middle of the data sizes
    assert by_rows.estimate == pytest.approx(0.01 * devices / 8)
    assert constant.estimate == pytest.approx(np.mean([job.f1 for job in jobs]))
    assert fit.predict([[16.0, 1000.0]])[0][0] == pytest.approx(0.9 + 0.04 * (math.log2(1000) - 16) / 8)
    assert fit.verdict == "fits"
    assert fit.lack_of_fit is not None
    assert (fit.lack_of_fit.missed, fit.lack_of_fit.repeated) == (9 - 4, 9)


def test_with_too_few_runs_to_tell_an_interaction_the_line_has_none() -> None:
    jobs = by_size(lambda count, size: 0.9 - 0.001 * count + size / 1e6)
    fit = line(observations([jobs[0], jobs[5], jobs[6], jobs[17]]), metrics.F1)

    assert fit is not None
    assert fit.formula == "f1 ~ log2(devices) + log2(data_size)"


def test_a_line_that_misses_no_more_than_repeats_scatter_holds() -> None:
    fit = line(observations(f1_at([0.91, 0.90, 0.893, 0.897, 0.874, 0.886])), metrics.F1)

    assert fit is not None
    assert fit.verdict == "fits"


def test_without_repeats_nothing_is_said_of_the_fit() -> None:
    fit = line(observations(f1_at([0.9, 0.91, 0.88], [1, 2, 4])), metrics.F1)

    assert fit is not None
    assert (fit.verdict, fit.has_repeats) == ("cannot be tested with so few repeats", False)


def test_a_power_law_of_seconds_gives_its_exponent() -> None:
    jobs = [job for count in (1, 2, 4, 8) for job in on_p3(count, [1000 / count**0.8, 1010 / count**0.8])]
    fit = line(observations(jobs), metrics.BILLABLE_SECONDS, power_law=True)

    assert fit is not None
    assert fit.terms[1].estimate == pytest.approx(-0.8, abs=1e-6)
    assert fit.predict([[2.0]])[0][0] == pytest.approx(1005 / 2**0.8, rel=1e-3)


@pytest.mark.parametrize(
    "jobs",
    [
        f1_at([0.9, 0.8], [1, 2]),  # as many runs as coefficients
        f1_at([0.9, 0.8, 0.7], [1, 1, 1]),  # nothing varies
        f1_at([0.9, 0.9, 0.9], [1, 2, 4]),  # exactly on the line
        [],
    ],
)
def test_where_there_is_nothing_to_fit_there_is_no_line(jobs: list[RecordedJob]) -> None:
    assert line(observations(jobs), metrics.F1) is None


def test_a_run_that_decides_the_line_alone_is_named() -> None:
    fit = line(observations(f1_at([0.9, 0.901, 0.902, 0.7], [1, 1, 2, 8])), metrics.F1)

    assert fit is not None
    assert len(fit.influential) == 1
    assert fit.influential[0][1] > 1


def test_unequal_scatter_is_found() -> None:
    random = np.random.default_rng(1)
    counts = [1] * 12 + [8] * 12
    values = [0.9 + random.normal() * (0.0001 if count == 1 else 0.01) for count in counts]
    fit = line(observations(f1_at(values, counts)), metrics.F1)

    assert fit is not None
    assert fit.breusch_pagan is not None
    assert fit.breusch_pagan < 0.05


def test_tukey_is_that_of_scipy() -> None:
    groups = {1: [100.0, 104, 102], 2: [60.0, 63], 4: [58.0, 61, 60]}
    (scaling,), _ = scalings(observations([job for count, seconds in groups.items() for job in on_p3(count, seconds)]))
    result = {(pair.first[0], pair.second[0]): pair for pair in tukey(scaling.levels, metrics.BILLABLE_SECONDS)}
    expected = stats.tukey_hsd(*groups.values())

    assert result["1", "2"].p == pytest.approx(expected.pvalue[0, 1], abs=1e-4)
    assert result["2", "4"].p == pytest.approx(expected.pvalue[1, 2], abs=1e-4)
    assert result["2", "4"].p > 0.05 > result["1", "4"].p
    interval = expected.confidence_interval(0.95)
    assert result["1", "2"].low == pytest.approx(-interval.high[0, 1], rel=1e-3)


def test_without_repeats_tukey_says_nothing() -> None:
    (scaling,), _ = scalings(observations([*on_p3(1, [100]), *on_p3(2, [60])]))

    assert tukey(scaling.levels, metrics.BILLABLE_SECONDS) == []


def test_a_fit_whose_test_is_almost_significant_is_in_doubt() -> None:
    fit = line(observations(f1_at([0.90, 0.902, 0.9035, 0.9055, 0.90, 0.902])), metrics.F1)

    assert fit is not None
    assert fit.lack_of_fit is not None
    assert 0.05 < fit.lack_of_fit.p < 0.25
    assert fit.verdict == "is in doubt"
