"""Levels of a setting compared with each other, in means, steps and ratios worked out by hand."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from paretune.commands.report.scaling import confidence
from paretune.commands.report.tables import Report, groups_report
from paretune.tracking.recorded_run import RecordedRun
from tests.support.recorded_jobs import on_p3, recorded

TORCH_COMPILE, COMPILED = "training_arguments.torch_compile", {"torch_compile": True}


def tables_of(jobs: list[RecordedRun], factor: str = "shape") -> tuple[list[dict[str, list[str]]], Report]:
    """Return the tables of a report as columns of texts, and the report."""
    report = groups_report(jobs, factor)
    return [{name: list(section.table[name]) for name in section.table} for section in report.sections], report


def test_means_deviations_and_steps_are_those_worked_out_by_hand() -> None:
    (table,), report = tables_of([*on_p3(4, [3000, 3600]), *on_p3(1, [10_000, 10_400, 10_800])])

    assert table == {
        "shape": ["1 x ml.p3.2xlarge", "4 x ml.p3.2xlarge"],
        "devices": ["1", "4"],
        "billed time": ["2 h 53 m ± 6 m 40 s", "55 m ± 7 m 4 s"],  # 10,400 ± 400 and 3,300 ± 424.26 s
        "cost (USD)": ["10.40 ± 0.40", "13.20 ± 1.70"],
        "F1": ["0.9000 ± 0.0000", "0.9000 ± 0.0000"],
        "n": ["3", "2"],
        "saved by this step": ["", "1 h 58 m"],  # 10,400 - 3,300 s
        "dollars of this step": ["", "+2.80"],
        "efficiency": ["100%", "79%"],  # 3.1515 / 4
        "billed time / first": ["1.000", "0.317"],
        "cost / first": ["1.000", "1.269"],
        "F1 - first": ["+0.0000", "+0.0000"],
    }
    assert report.rows[0]["billable_seconds_deviation"] == pytest.approx(400)


def test_origins_data_sets_models_and_notional_dollars_stand_apart() -> None:
    apart: list[dict[str, Any]] = [{}, {"tags": {"origin": "published"}}, {"dataset": "other.csv"}, {"model": "other"}]
    jobs = [job for also in apart for count in (1, 2) for job in on_p3(count, [100.0 / count], **also)]
    jobs += [recorded(instance_count=count, metrics={"billable_seconds": 9.0}) for count in (1, 2)]

    assert [section.heading.partition(", by")[0] for section in tables_of(jobs)[1].sections] == [
        "Measured: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes",
        "Measured: bundled:all-MiniLM-L6-v2 on other.csv",
        "Measured: other on bundled:rotten_tomatoes",
        "Measured, notional dollars: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes",
        "Published: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes",
    ]


def test_trainings_of_ones_own_stand_apart_by_script_and_have_no_default_of_ours(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('acc: 1')")
    (tmp_path / "other.py").write_text("print('acc: 1')")
    scripts = [{"entry_script": str(tmp_path / name)} for name in ("train.py", "other.py")]
    logged = {"acc": 0.8, "eval/acc": 0.7, "job_seconds": 9.0}
    jobs = [
        job
        for own in [*scripts, {}]
        for count in (1, 2)
        for job in on_p3(count, [100.0 / count], metrics=logged, **own)
    ]
    report = tables_of(jobs)[1]

    assert [section.heading.partition(", by")[0] for section in report.sections] == [
        "Measured: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes",
        f"Measured: {tmp_path}/other.py",
        f"Measured: {tmp_path}/train.py",
    ]
    assert {row["dataset"] for row in report.rows if row["script"]} == {""}
    assert {row["acc_mean"] for row in report.rows if row["script"]} == {0.8}
    of_ours, *of_scripts = (section.table for section in report.sections)
    assert [[*table["acc"]] for table in of_scripts] == [["0.80000"] * 2] * 2
    assert not {"acc", "eval/acc", "job_seconds"} & {*of_ours}


@pytest.mark.parametrize(
    ("factor", "values", "heading"),
    [
        ("model", ["distilbert-base-uncased", "roberta-base"], "Measured: bundled:rotten_tomatoes, 1 x ml.p3.2xlarge"),
        ("dataset", ["a.csv", "b.csv"], "bundled:all-MiniLM-L6-v2, 1 x ml.p3.2xlarge"),
        ("task", ["classification", "multi-label"], "bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes, "),
        ("entry_script", ["other.py", "train.py"], "1 x ml.p3.2xlarge"),
    ],
)
def test_what_is_trained_can_be_compared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: str, values: list[str], heading: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "other.py"):
        (tmp_path / name).write_text("print('acc: 1')")
    jobs = [
        job
        for value, seconds in zip(values, (80.0, 40.0), strict=True)
        for job in on_p3(1, [seconds], **{factor: value})
    ]
    (table,), report = tables_of(jobs, factor)

    assert table[factor] == values
    assert table["billed time / first"] == ["1.000", "0.500"]
    assert heading in report.sections[0].heading
    assert [row["level"] for row in report.rows] == values
    if factor in report.rows[0]:
        assert [row[factor] for row in report.rows] == values


def test_metrics_of_ones_own_are_shown_whatever_their_names(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('precision: 0.9')")
    logged = {"precision": 0.9, "recall": 0.8, "rate": 0.3, "n": 5.0}
    jobs = [
        job
        for precision in ("bf16", "fp32")
        for job in on_p3(1, [80.0], metrics=logged, precision=precision, entry_script=str(tmp_path / "train.py"))
    ]
    (table,), report = tables_of(jobs, "precision")

    assert table["precision"] == ["bf16", "fp32"]
    assert [table[name] for name in ("precision (logged)", "recall", "rate", "n (logged)", "n")] == [
        *(["0.90000"] * 2, ["0.80000"] * 2, ["0.30000"] * 2, ["5.0000"] * 2, ["1"] * 2)
    ]
    assert {name: report.rows[0][f"{name}_mean"] for name in logged} == logged


def test_the_default_is_what_the_others_are_compared_with() -> None:
    jobs = [*on_p3(1, [80, 84], training_arguments=COMPILED), *on_p3(1, [100, 104])]
    (table,), _ = tables_of(jobs, TORCH_COMPILE)

    assert table[TORCH_COMPILE] == ["not set", "true"]
    assert table["billed time / first"][0] == "1.000"
    assert table["billed time / first"][1] == "0.804"  # 82 / 102


def test_f1_is_compared_by_its_difference_and_what_else_differs_is_said() -> None:
    jobs = [
        *(job for f1 in (0.830, 0.836, 0.834) for job in on_p3(1, [80], f1=f1, fine_tuning="lora")),
        *(job for f1 in (0.844, 0.842) for job in on_p3(1, [100], f1=f1, seed=7, precision="fp16")),
    ]
    (table,), report = tables_of(jobs, "fine_tuning")

    assert table["F1 - first"][1] == "-0.0097"  # 0.83333 - 0.843
    assert table["billed time / first"][1] == "0.800"
    assert report.findings == [
        "These runs differ not only in fine_tuning, but also in learning_rate (5e-05, 0.0005); precision (auto, fp16)."
    ]


def test_intervals_take_one_deviation_from_all_repeats_and_are_unknown_without_any() -> None:
    # Two degrees of freedom: t is 4.303, and the standard deviations of (1, 3) and (5, 7) are both 1.414.
    shape = pd.Series(["a", "a", "b", "b", "c"])
    ends = confidence(pd.Series([1.0, 3.0, 5.0, 7.0, 9.0]), shape)

    assert list(ends["high"] - ends["low"]) == pytest.approx([2 * 4.3027, 2 * 4.3027, 2 * 4.3027 * 2**0.5], rel=1e-4)
    assert list(ends["high"] + ends["low"]) == pytest.approx([4.0, 12.0, 18.0])
    assert confidence(pd.Series([1.0, 2.0]), pd.Series(["a", "b"])).isna().all(axis=None)


def test_scaling_is_drawn_by_rows_and_by_shape_as_the_published_benchmark_drew_it() -> None:
    jobs = [
        job
        for rows in (1000, 2000)
        for count, seconds in ((1, [8000.0, 8400.0]), (2, [4200.0]), (4, [2500.0, 2700.0]))
        for job in on_p3(count, [rows / 1000 * s for s in seconds], f1=0.9 - count / 1000, max_train_samples=rows)
    ]
    ((heading, charts),) = groups_report(jobs, "shape", is_drawn=True).charts
    drawn = {title: {trace.name: trace for trace in figure.data} for title, figure in charts}
    axes = {title: (figure.layout.xaxis.type, figure.layout.yaxis.type or "linear") for title, figure in charts}

    assert heading == "Measured: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes"
    assert axes == {
        "billed time by number of devices": ("log", "log"),
        "cost by number of devices": ("log", "log"),
        "efficiency by number of devices": ("log", "linear"),
        "F1 by number of devices": ("log", "linear"),
    }
    lines = {"1,000 rows x 1 epoch", "2,000 rows x 1 epoch"}
    shapes = [f"{count} x ml.p3.2xlarge" for count in (1, 2, 4)]
    assert all(lines | {*shapes} <= traces.keys() for traces in drawn.values())
    time = drawn["billed time by number of devices"]["1,000 rows x 1 epoch"]
    assert [*time.x] == [1.0, 2.0, 4.0]
    assert [*time.y] == pytest.approx([8200 / 60, 4200 / 60, 2600 / 60])
    assert len({*time.marker.symbol}) == 3
    assert drawn["cost by number of devices"]["2,000 rows x 1 epoch"].y == pytest.approx([16.4, 16.8, 20.8])
    efficiency = drawn["efficiency by number of devices"]["1,000 rows x 1 epoch"]
    assert efficiency.y == pytest.approx([1.0, 0.976, 0.788], abs=1e-3)
    assert drawn["billed time by number of devices"]["ideal"].y[-1] == pytest.approx(2 * 8200 / 60 / 4)
    quality = drawn["F1 by number of devices"]["1,000 rows x 1 epoch"]
    assert quality.error_y.array == pytest.approx([0.0, 0.0, 0.0], abs=1e-9)  # all runs of a cluster have the same F1
    assert groups_report(jobs, "shape").charts == ()


@pytest.mark.parametrize(
    ("least_s", "most_s", "shown"),
    [(2040.0, 66_000.0, {1.0, 2.0, 5.0, 10.0}), (4200.0, 6000.0, None)],
    ids=["more than a power of ten", "less: plotly chooses them"],
)
def test_a_logarithmic_axis_has_as_many_numbers_as_have_room(
    least_s: float, most_s: float, shown: set[float] | None
) -> None:
    ((_, ((_, figure), *_)),) = groups_report(
        [*on_p3(1, [most_s]), *on_p3(32, [least_s])], "shape", is_drawn=True
    ).charts

    size, ticks = figure.data[0].y[0], figure.layout.yaxis.tickvals
    assert (None if ticks is None else {tick for tick in ticks if size * least_s / most_s <= tick <= size}) == shown


def test_a_setting_that_each_table_compares_on_one_cluster_has_tables_and_no_charts() -> None:
    jobs = [job for count in (1, 2) for rate in (1e-5, 1e-4) for job in on_p3(count, [80.0], learning_rate=rate)]
    report = groups_report(jobs, "learning_rate", is_drawn=True)

    assert [[*section.table["learning_rate"]] for section in report.sections] == [["1e-05", "0.0001"]] * 2
    assert list(report.charts) == []


def test_tasks_on_one_data_set_have_tables_and_charts_of_their_own() -> None:
    jobs = [
        job
        for task in ("classification", "multi-label")
        for count in (1, 2)
        for job in on_p3(count, [8000.0 / count], task=task)
    ]
    report = groups_report(jobs, "shape", is_drawn=True)

    what = "Measured: bundled:all-MiniLM-L6-v2 on bundled:rotten_tomatoes"
    assert [section.heading.partition(", by shape")[0] for section in report.sections] == [what, f"{what}, multi-label"]
    assert [heading for heading, _ in report.charts] == [what, f"{what}, multi-label"]
