"""Totals of all runs by study, month, user, team, tag and instance type; the picture of dollars against F1."""

from typing import Any

import pytest

from paretune.commands.report.dollars_picture import dollars_against_f1
from paretune.commands.report.factors import TOTAL_KEYS
from paretune.commands.report.observations import day
from paretune.commands.report.totals import ALL, NONE, Total, keys_of, total_rows, total_sentences, total_tables, totals
from paretune.presentation.table import Table
from paretune.tracking import RecordedJob
from tests.recorded_jobs import on_p3, recorded

NOVEMBER, DECEMBER = 1_762_700_000.0, 1_765_000_000.0  # 2025-11-09 and 2025-12-06


def cells(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.cells]


def total(result: list[Total], way: str, key: str, origin: str = "measured") -> Total:
    (item,) = (it for it in result if (it.by, it.key, it.origin) == (way, key, origin))
    return item


def jobs_of_all_kinds() -> list[RecordedJob]:
    return [
        *on_p3(1, [1000, 2000], started=NOVEMBER, tags={"mlflow.parentRunId": "abc"}),
        *on_p3(2, [1800], f1=0.95, started=DECEMBER, tags={"team": "search", "user": "ann"}),
        *on_p3(1, [9000], started=DECEMBER, tags={"origin": "simulated"}),
        recorded(started=DECEMBER, metrics={"cost_usd": 0.25}),
    ]


def test_dollars_hours_f1_and_dates_are_summed_for_each_key_and_origin() -> None:
    sums = totals(jobs_of_all_kinds(), {"abc": "scaling"})
    study, month = total(sums, "study", "scaling"), total(sums, "month", "2025-12")

    assert (study.jobs, study.cost_usd, study.best_f1, study.first) == (2, 3.0, 0.9, "2025-11-09")
    assert study.instance_hours == (1000 + 2000) / 3600
    assert (month.cost_usd, month.instance_hours, month.best_f1) == (3.6, 1.0, 0.95)
    assert total(sums, "month", "2025-12", "simulated").cost_usd == 9.0
    assert total(sums, "instance_type", "local", "measured, notional dollars").cost_usd == 0.25
    assert (total(sums, "team", "search").jobs, total(sums, "team", NONE).jobs) == (1, 2)
    assert total(sums, "user", "ann").cost_usd == 3.6
    whole = total(sums, ALL, ALL)
    assert (whole.jobs, whole.cost_usd, whole.first, whole.last) == (3, 6.6, "2025-11-09", "2025-12-06")


def test_no_sum_mixes_origins_and_a_sentence_says_so() -> None:
    sums = totals(jobs_of_all_kinds(), {})

    assert {it.origin for it in sums if it.by == ALL} == {"measured", "simulated", "measured, notional dollars"}
    for way in TOTAL_KEYS:
        assert sum(it.jobs for it in sums if it.by == way) == 5
    assert "every origin has sums of its own" in total_sentences(sums)[0]


def test_dollars_of_failed_jobs_and_what_aws_has_billed_stand_beside_the_cost() -> None:
    sums = totals(
        [
            *on_p3(1, [1000], metrics={"billed_usd": 1.25}),
            *on_p3(1, [3000], f1=0.99, tags={"state": "Failed"}),
            recorded(instance_type="ml.p3.2xlarge"),
        ],
        {},
    )
    whole = total(sums, ALL, ALL)

    assert (whole.cost_usd, whole.billed_usd, whole.failed_usd) == (4.0, 1.25, 3.0)
    assert (whole.without_cost, whole.billed, whole.best_f1) == (1, 1, 0.9)
    (_, table), *_ = total_tables(sums)
    assert {"billed (USD)", "of failed jobs (USD)", "runs without a cost"} <= set(table.headers)
    assert whole.billed_in_part == 1
    assert (
        "billed is AWS's bill of 1 of 3 measured runs (1 of them in part: not complete yet)" in total_sentences(sums)[0]
    )


def test_the_dollars_of_a_study_are_divided_by_phase() -> None:
    phases = {"downloading_seconds": 100.0, "uploading_seconds": 250.0}
    spot = {"training_seconds": "2000"}  # 1000 s are billed
    sums = totals(
        [
            *on_p3(1, [1000], metrics=phases, tags={"mlflow.parentRunId": "abc"}),
            *on_p3(1, [1000], metrics=phases, tags={"mlflow.parentRunId": "abc", **spot}),
            *on_p3(1, [4000], tags={"mlflow.parentRunId": "abc"}),  # its phases are not known
            *on_p3(1, [4000]),
        ],
        {"abc": "scaling"},
    )
    study = total(sums, "study", "scaling")

    assert study.cost_usd == 6.0
    assert (study.downloading_usd, study.uploading_usd) == (
        pytest.approx(0.1 + 0.05),
        pytest.approx(0.25 + 0.125),
    )
    assert study.training_usd == pytest.approx(0.65 + 0.825)
    assert total(sums, "study", NONE).training_usd is None
    (_, table), *_ = total_tables([study])
    assert "of uploading (USD)" in table.headers


def test_a_way_that_no_job_tells_anything_of_has_rows_in_the_csv_and_no_table() -> None:
    sums = totals(on_p3(1, [1000]), {})

    captions = [caption for caption, _ in total_tables(sums)]
    assert captions == [
        "Dollars in all",
        "Dollars by month",
        "Dollars by instance type",
    ]
    assert {row["by"] for row in total_rows(sums)} == {ALL, *TOTAL_KEYS}


def test_by_leaves_the_other_ways_out() -> None:
    assert {it.by for it in totals(on_p3(1, [1000]), {}, "month")} == {ALL, "month"}


def test_a_job_counts_for_each_of_its_tags_and_its_team_is_one_of_them() -> None:
    jobs = [recorded(instance_type="ml.g5.xlarge"), *on_p3(1, [1000])]
    jobs[1].run.params["tags"] = '{"team": "search", "owner": "ann"}'  # type: ignore[index]
    result = dict(total_tables(totals(jobs, {})))

    assert [row[:3] for row in cells(result["Dollars by tag"])] == [
        ["(none)", "measured", "1"],
        ["owner=ann", "measured", "1"],
        ["team=search", "measured", "1"],
    ]
    assert [keys_of(job, "team", {}) for job in jobs] == [[NONE], ["search"]]


def test_the_name_of_a_study_on_the_run_itself_counts_before_that_of_its_parent() -> None:
    (job,) = on_p3(1, [1000], tags={"study": "mine", "mlflow.parentRunId": "abc"})

    assert keys_of(job, "study", {"abc": "another"}) == ["mine"]


def lines_of(jobs: list[RecordedJob], **also: Any) -> tuple[Any, dict[str, Any]]:
    """Axes of the picture, and the lines of its legend by their name."""
    picture = dollars_against_f1(jobs, {}, **also)
    assert picture is not None
    figure = picture.figure()
    return figure.axes[0], {line.get_label(): line for line in figure.axes[0].lines}


def test_the_picture_joins_the_runs_that_no_other_one_beats_and_tells_origins_by_their_marker() -> None:
    jobs = [
        *on_p3(1, [1000], f1=0.8),
        *on_p3(1, [4000], f1=0.7),
        *on_p3(1, [16_000], f1=0.9),
        *on_p3(1, [500], f1=0.6, tags={"origin": "simulated"}),
    ]
    axes, lines = lines_of(jobs)
    measured = next(line for label, line in lines.items() if label.startswith("front of measured"))

    assert list(zip(*measured.get_data(), strict=True)) == [(1.0, 0.8), (16.0, 0.9)]
    assert lines["measured"].get_marker() != lines["simulated"].get_marker()
    assert axes.get_xscale() == "log"
    assert lines["ml.p3.2xlarge (4)"] is not None


def test_near_dollars_have_a_linear_axis_and_the_colours_follow_by() -> None:
    axes, lines = lines_of(on_p3(1, [1000, 2000], started=NOVEMBER), by="month")

    assert axes.get_xscale() == "linear"
    assert "2025-11 (2)" in lines


def test_every_one_of_many_runs_is_drawn_with_the_rare_colours_together() -> None:
    jobs = [
        recorded(instance_type=kind, metrics={"cost_usd": 1.0 + workspace, "f1": 0.5}, started=NOVEMBER)
        for workspace, kind in enumerate(
            ("ml.g4dn.xlarge", "ml.g5.xlarge", "ml.g5.2xlarge", "ml.g6.xlarge", "ml.g6.2xlarge")
        )
        for _ in range(80)
    ] + [recorded(instance_type=f"ml.g5.{size}xlarge", metrics={"cost_usd": 1.0, "f1": 0.4}) for size in (4, 8, 12, 16)]
    axes, lines = lines_of(jobs)
    drawn = sum(len(line.get_xdata()) for line in axes.lines if line.get_alpha() is not None)

    assert drawn == 404
    assert "2 others (2)" in lines


def test_jobs_without_dollars_or_f1_have_no_picture() -> None:
    assert dollars_against_f1([recorded(instance_type="ml.g5.xlarge", metrics={"f1": 0.5})], {}) is None


def test_an_imported_run_has_no_month() -> None:
    job = recorded(tags={"origin": "published", "row_key": "abc"}, started=NOVEMBER)

    assert keys_of(job, "month", {}) == [NONE]
    assert day(job) == ""
