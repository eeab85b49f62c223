"""Dollars by study, month, tag and instance type."""

from paretune.presentation.page import Table, text_of
from paretune.reporting.totals import totals
from tests.recorded_jobs import on_p3, recorded

NOVEMBER, DECEMBER = 1_762_700_000.0, 1_765_000_000.0  # 2025


def rows(table: Table) -> list[list[str]]:
    return [[text_of(cell) for cell in row] for row in table.rows]


def test_dollars_are_summed_by_study_month_tag_and_instance_type() -> None:
    jobs = [
        *on_p3(1, [1000, 2000], started=NOVEMBER, tags={"mlflow.parentRunId": "abc"}),
        *on_p3(2, [500], started=DECEMBER),
        *on_p3(1, [9000], started=DECEMBER, tags={"origin": "simulated"}),
        recorded(started=DECEMBER, metrics={"cost_usd": 0.25}),
    ]
    found = totals(jobs, {"abc": "scaling"})

    assert rows(found["study"]) == [
        ["(none)", "measured", "1", "1.00"],
        ["(none)", "measured, notional dollars", "1", "0.250"],
        ["(none)", "simulated", "1", "9.00"],
        ["scaling", "measured", "2", "3.00"],
    ]
    assert rows(found["month"])[:2] == [["2025-11", "measured", "2", "3.00"], ["2025-12", "measured", "1", "1.00"]]
    assert [row[0] for row in rows(found["instance type"])] == ["local", "ml.p3.2xlarge", "ml.p3.2xlarge"]


def test_a_job_counts_for_each_of_its_tags_and_one_without_a_cost_is_counted() -> None:
    jobs = [
        recorded(instance_type="ml.g5.xlarge"),
        *on_p3(1, [1000]),
    ]
    jobs[1].run.params["tags"] = '{"team": "search", "owner": "ann"}'  # type: ignore[index]
    found = totals(jobs, {})

    assert rows(found["tag"]) == [
        ["(none)", "measured", "1", "", "1"],
        ["owner=ann", "measured", "1", "1.00", ""],
        ["team=search", "measured", "1", "1.00", ""],
    ]
