"""One setting against another: ratios, intervals, curves over dollars."""

import math

import pytest
from scipy import stats

from paretune.commands.report.comparison import Comparison, comparisons, loss_curves
from paretune.commands.report.observations import observations
from paretune.commands.report.spread import difference, ratio
from paretune.core.errors import BadInput
from paretune.tracking import RecordedJob
from tests.recorded_jobs import on_p3

TORCH_COMPILE, COMPILED = "training_arguments.torch_compile", {"torch_compile": True}


def compared(jobs: list[RecordedJob], by: str = TORCH_COMPILE) -> Comparison:
    (result,), _ = comparisons(observations(jobs), by)
    return result


def test_the_default_is_what_the_others_are_compared_with() -> None:
    jobs = [*on_p3(1, [80, 84], training_arguments=COMPILED), *on_p3(1, [100, 104])]
    comparison = compared(jobs)
    table = comparison.table()
    cells = {name: [row[number].text for row in table.cells] for number, name in enumerate(table.headers)}

    assert cells[TORCH_COMPILE] == ["not set", "true"]
    assert cells["billed time / first"][0] == ""
    assert cells["billed time / first"][1].startswith("0.804 (")  # 82 / 102
    assert comparison.rows()[1]["billable_seconds_ratio"] == pytest.approx(82 / 102)


def test_a_ratio_s_interval_is_welch_s_on_logarithms() -> None:
    first, base = [80.0, 84.0, 81.0], [100.0, 104.0]
    result = ratio({None: first}, {None: base})
    assert result is not None
    welch = stats.ttest_ind([math.log(x) for x in first], [math.log(x) for x in base], equal_var=False)
    interval = welch.confidence_interval(0.95)

    assert (result.low, result.high) == (pytest.approx(math.exp(interval.low)), pytest.approx(math.exp(interval.high)))


def test_an_f1_is_compared_by_its_difference_with_welch_s_interval() -> None:
    first, base = [0.830, 0.836, 0.834], [0.844, 0.842]
    jobs = [
        *(job for f1 in first for job in on_p3(1, [80], f1=f1, fine_tuning="lora")),
        *(job for f1 in base for job in on_p3(1, [100], f1=f1)),
    ]
    comparison = compared(jobs, "fine_tuning")
    interval = stats.ttest_ind(first, base, equal_var=False).confidence_interval(0.95)

    row = comparison.rows()[1]
    assert row["f1_difference"] == pytest.approx(-0.0096667, abs=1e-6)
    assert row["f1_difference_low"] == pytest.approx(interval.low)
    assert row["f1_difference_high"] == pytest.approx(interval.high)
    (message,) = [sentence for sentence in comparison.findings() if "F1" in sentence]
    assert message.startswith(
        f"lora against full: F1 -0.0097 (95% interval {interval.low:+.4f} to {interval.high:+.4f})"
    )
    assert message.endswith("differs from 0 by more than noise.")


def test_one_run_each_has_a_ratio_and_no_interval() -> None:
    comparison = compared([*on_p3(1, [80], training_arguments=COMPILED), *on_p3(1, [100])])

    assert any(
        "billed time x 0.800; too few repeats to tell it from 1" in sentence for sentence in comparison.findings()
    )


def test_what_else_differs_is_said() -> None:
    jobs = [*on_p3(1, [80], training_arguments=COMPILED, per_device_train_batch_size=32), *on_p3(1, [100])]

    assert any("so does per_device_train_batch_size (16, 32)" in sentence for sentence in compared(jobs).findings())


def test_shapes_stand_apart() -> None:
    jobs = [job for count in (1, 2) for kind in ({}, COMPILED) for job in on_p3(count, [100], training_arguments=kind)]
    result, _ = comparisons(observations(jobs), TORCH_COMPILE)

    assert [item.kind.apart for item in result] == ["1 x ml.p3.2xlarge", "2 x ml.p3.2xlarge"]


def test_one_value_is_refused() -> None:
    with pytest.raises(
        BadInput, match=rf"at least two values of {TORCH_COMPILE}, got .* 2 runs, all with {TORCH_COMPILE} not set"
    ):
        comparisons(observations(on_p3(1, [100, 101])), TORCH_COMPILE)


def test_dollars_of_a_curve_are_those_of_the_time_since_the_run_began() -> None:
    jobs = [*on_p3(1, [1000], started=5000.0), *on_p3(1, [1000], started=5000.0, training_arguments=COMPILED)]
    curve = [(10, 5100.0, 0.9), (20, 5500.0, 0.5), (30, 7000.0, 0.4)]
    result = loss_curves(compared(jobs), {jobs[0].run_id: curve})

    ((points,),) = result.values()
    assert points == [(10, pytest.approx(0.1), 0.9), (20, pytest.approx(0.5), 0.5), (30, 1.0, 0.4)]  # never above cost


def test_dollars_of_a_simulated_curve_follow_its_steps() -> None:
    tags = {"origin": "simulated"}
    jobs = [*on_p3(1, [1000], tags=tags), *on_p3(1, [1000], tags=tags, training_arguments=COMPILED)]
    result = loss_curves(compared(jobs), {jobs[0].run_id: [(10, 1.0, 0.9), (40, 2.0, 0.5)]})

    ((points,),) = result.values()
    assert [dollars for _, dollars, _ in points] == [0.25, 1.0]


def test_runs_are_compared_within_their_data_size() -> None:
    first, base = [0.9012, 0.9410, 0.9511], [0.9006, 0.9406, 0.9506]
    blocks = [dict(zip((1e5, 6e5, 1e6), ([value] for value in values), strict=True)) for values in (first, base)]
    paired = stats.ttest_rel(first, base).confidence_interval(0.95)
    apart = difference({None: first}, {None: base})
    together = difference(*blocks)

    assert together.value == pytest.approx(0.0005)
    assert (together.low, together.high) == (pytest.approx(paired.low), pytest.approx(paired.high))
    assert together.low is not None
    assert together.low > 0
    assert apart.low is not None
    assert apart.low < -0.05  # the sizes differ by more than the two values of the setting
    assert ratio(*blocks).low == pytest.approx(
        math.exp(
            difference(
                *[{size: [math.log(item) for item in block] for size, block in both.items()} for both in blocks]
            ).low
        )
    )


def test_repeats_and_sizes_together_are_the_least_squares_of_their_blocks() -> None:
    import statsmodels.api as sm

    values, base = {1.0: [3.0, 3.2, 2.9], 2.0: [5.1]}, {1.0: [2.0, 2.3], 2.0: [4.0, 4.4], 3.0: [9.0]}
    rows = [(1.0, size == 2.0, item) for size, block in values.items() for item in block]
    rows += [(0.0, size == 2.0, item) for size, block in base.items() if size in values for item in block]
    design = [[level, 1.0, float(second)] for level, second, _ in rows]
    fit = sm.OLS([item for *_, item in rows], design).fit()
    within = difference(values, base)

    assert within.value == pytest.approx(fit.params[0])
    assert (within.low, within.high) == tuple(pytest.approx(end) for end in fit.conf_int(0.05)[0])
