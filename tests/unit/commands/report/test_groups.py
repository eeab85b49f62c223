"""Levels of a setting against each other, in means and ratios worked out by hand; tests and intervals are scipy's."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from paretune.commands.report.document import Section
from paretune.commands.report.groups import difference, groups_of, line, section_of
from paretune.commands.report.jobs import frame_of, records
from paretune.specification import metrics
from paretune.tracking.recorded_job import RecordedJob
from tests.recorded_jobs import on_p3, recorded

COUNTS = [1, 1, 2, 2, 4, 4]


def f1_at(values: list[float], counts: list[int] = COUNTS) -> list[RecordedJob]:
    return [job for count, value in zip(counts, values, strict=True) for job in on_p3(count, [100 / count], f1=value)]


def fitted(jobs: list[RecordedJob], quantity: str = metrics.F1, *, power_law: bool = False) -> tuple[str, pd.DataFrame]:
    """What was fitted, in words, and the effects by their terms."""
    result = line(frame_of(jobs), quantity, power_law=power_law)
    assert result is not None
    return result[0], result[1].set_index("term")


def test_a_line_is_that_of_scipy_also_with_an_f1_of_exactly_0() -> None:
    values = [0.91, 0.912, 0.905, 0.903, 0.89, 0.0]
    about, effects = fitted(f1_at(values))
    expected = stats.linregress(np.log2(COUNTS), values)

    assert effects.value.devices == pytest.approx(expected.slope)
    assert effects.p.devices == pytest.approx(expected.pvalue)
    assert about.startswith("f1 ~ log2(devices), least squares over 6 runs; ")


def series(blocks: dict[float, list[float]]) -> pd.Series:
    return pd.Series(
        [value for values in blocks.values() for value in values],
        [size for size, values in blocks.items() for _ in values],
    )


def test_intervals_are_those_of_the_t_test_also_of_a_ratio_by_its_logarithms() -> None:
    first, base = [80.0, 84.0, 81.0], [100.0, 104.0]
    values, others = series({1: first}), series({1: base})
    result, apart = np.exp(difference(np.log(values), np.log(others))), difference(values, others)
    logarithms = stats.ttest_ind(np.log(first), np.log(base)).confidence_interval(0.95)
    plain = stats.ttest_ind(first, base).confidence_interval(0.95)

    assert result == pytest.approx((stats.gmean(first) / stats.gmean(base), *np.exp(logarithms)))
    assert apart == pytest.approx((np.mean(first) - 102, plain.low, plain.high))
    assert np.isnan(difference(series({1: [80.0]}), series({1: [100.0]}))[1:]).all()


def test_runs_are_compared_within_their_data_size_by_least_squares() -> None:
    first, base = [0.9012, 0.9410, 0.9511], [0.9006, 0.9406, 0.9506]
    blocks = [
        series(dict(zip((1e5, 6e5, 1e6), ([value] for value in values), strict=True))) for values in (first, base)
    ]
    paired = stats.ttest_rel(first, base).confidence_interval(0.95)
    assert difference(*blocks) == pytest.approx((0.0005, paired.low, paired.high))


TORCH_COMPILE, COMPILED = "training_arguments.torch_compile", {"torch_compile": True}


def sections_of(
    jobs: list[RecordedJob], factor: str = "shape", view: str = "scaling"
) -> list[tuple[Section, list[dict[str, Any]]]]:
    groups = groups_of(frame_of(jobs, factor), factor, view)
    return [(section, records(frame)) for section, frame in (section_of(group, view) for group in groups)]


def cells(section: Section, about: str = "Means") -> dict[str, list[str]]:
    (table,) = (table for title, table in (*section.tables, *section.tests) if about in title)
    return {name: list(table[name]) for name in table}


def test_means_deviations_and_steps_are_those_worked_out_by_hand() -> None:
    ((section, (row, other)),) = sections_of([*on_p3(4, [3000, 3600]), *on_p3(1, [10_000, 10_400, 10_800])])

    assert cells(section) == {
        "shape": ["1 x ml.p3.2xlarge", "4 x ml.p3.2xlarge"],
        "devices": ["1", "4"],
        "billed time": ["2 h 53 m ± 6 m 40 s", "55 m ± 7 m 4 s"],  # 10,400 ± 400 and 3,300 ± 424.26 s
        "cost (USD)": ["10.40 ± 0.40", "13.20 ± 1.70"],
        "F1": ["0.9000 ± 0.0000", "0.9000 ± 0.0000"],
        "n": ["3", "2"],
        "billed time / first": ["", "0.316 (0.250 to 0.400)"],  # 3,300 / 10,400
        "cost / first": ["", "1.265 (1.000 to 1.599)"],
        "F1 - first": ["", "+0.0000"],
        "efficiency": ["100%", "79%"],  # 3.1515 / 4
    }
    assert row["billable_seconds_deviation"] == pytest.approx(400)
    assert other["speed_up"] == pytest.approx(10_400 / 3_300)
    assert cells(section, "Tukey")["difference"] == ["more than noise", "not told apart from noise"]
    assert any(text.startswith("Tukey's test of all pairs: cost ") for text in section.findings())
    assert [chart and chart.title for chart in section.charts] == [
        *("Time over devices (measured)", "F1 over devices (measured)"),
    ]


def test_origins_data_sets_models_and_notional_dollars_stand_apart() -> None:
    apart: list[dict[str, Any]] = [{}, {"tags": {"origin": "published"}}, {"dataset": "other.csv"}, {"model": "other"}]
    jobs = [job for also in apart for count in (1, 2) for job in on_p3(count, [100.0 / count], **also)]
    jobs += [recorded(instance_count=count, metrics={"billable_seconds": 9.0}) for count in (1, 2)]

    assert [section.heading for section, _ in sections_of(jobs)] == [
        "Measured: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes, by shape",
        "Measured: bundled:all-MiniLM-L6-v2 on other.csv, by shape",
        "Measured: other on bundled:rotten_tomatoes, by shape",
        "Measured, notional dollars: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes, by shape",
        "Published: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes, by shape",
    ]


def test_the_default_is_what_the_others_are_compared_with() -> None:
    jobs = [*on_p3(1, [80, 84], training_arguments=COMPILED), *on_p3(1, [100, 104])]
    ((section, (_, row)),) = sections_of(jobs, TORCH_COMPILE, "compare")
    table = cells(section)

    assert table[TORCH_COMPILE] == ["not set", "true"]
    assert table["billed time / first"][0] == ""
    assert table["billed time / first"][1].startswith("0.804 (")  # 82 / 102
    assert row["billable_seconds_ratio"] == pytest.approx(82 / 102, abs=1e-3)


def test_f1_is_compared_by_its_difference_and_what_else_differs_is_said() -> None:
    jobs = [
        *(job for f1 in (0.830, 0.836, 0.834) for job in on_p3(1, [80], f1=f1, fine_tuning="lora")),
        *(job for f1 in (0.844, 0.842) for job in on_p3(1, [100], f1=f1, seed=7, precision="fp16")),
    ]
    ((section, (_, row)),) = sections_of(jobs, "fine_tuning", "compare")

    assert row["f1_difference"] == pytest.approx(-0.0096667, abs=1e-6)
    assert row["f1_difference_high"] < 0
    assert cells(section)["F1 - first"][1].startswith("-0.0097 (")
    assert cells(section)["billed time / first"][1] == "0.800"
    assert section.sentences == [
        "fine_tuning is not all that differs between these runs: so does learning_rate (5e-05, 0.0005); "
        "precision (auto, fp16)."
    ]
    jobs = [*on_p3(1, [80], precision="fp16"), *(on_p3(1, [80], learning_rate=rate / 3e5)[0] for rate in range(4, 10))]
    ((section, _),) = sections_of(jobs, "precision", "compare")
    assert "learning_rate (7 values from 1.33333e-05 to 5e-05)." in section.sentences[0]
