"""What recorded runs cost at other prices and in total, and how well they were estimated, by sums done by hand."""

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from paretune.commands.report import MOST_RUNS, TOTAL_KEYS, ReportRequest
from paretune.commands.report.tables import ALL, NONE, Report, costs_report, frame_of, new_cost, records, totals
from paretune.launchers import SAGEMAKER
from paretune.pricing import PriceList
from paretune.specification.price import Price
from paretune.tracking.recorded_run import RecordedRun
from tests.support.recorded_jobs import on_p3, recorded

GOALS = {"study": {"cost_usd": "minimize", "val_loss": "minimize"}}
TODAY = date(2026, 11, 20)
NOVEMBER, DECEMBER = 1_762_700_000.0, 1_765_000_000.0  # 2025-11-09 and 2025-12-06
LISTED = (("us-east-1", 1.0, "2025-01-01"), ("us-east-1", 1.5, "2026-10-01"), ("eu-west-1", 2.0, "2026-10-01"))
PRICES = PriceList(
    listed=(
        *(
            Price(usd_per_hour=usd, region=region, as_of=as_of, source="test", instance_type="ml.g5.xlarge")
            for region, usd, as_of in LISTED
        ),
        Price(
            usd_per_hour=40.0, region="eu-west-1", as_of="2026-10-01", source="test", instance_type="ml.p4d.24xlarge"
        ),
    )
)


def run(number: int = 1, **others: Any) -> RecordedRun:
    """Return a run of two instances for half an hour at 1 USD per hour each: 1 USD."""
    params = {"instance_type": "ml.g5.xlarge", "instance_count": "2"}
    metrics = {"f1": 0.9, "billable_seconds": 1800.0, "cost_usd": 1.0}
    tags = {"origin": "measured", "price_usd_per_hour": "1", "price_region": "us-east-1", "state": "Completed"}
    for name, value in others.items():
        is_param = name in {*params, "spot", "dataset", "entry_script"}
        (params if is_param else metrics if isinstance(value, float) else tags)[name] = value
        if value is None:
            metrics.pop(name, None)
            tags.pop(name, None)
    named = {f"paretune.{name}": text for name, text in tags.items()}
    return RecordedRun(f"{number:032x}", params, named, metrics)


def report(jobs: list[RecordedRun], **terms: Any) -> Report:
    return costs_report(ReportRequest(**terms), jobs, PRICES, TODAY, GOALS)


def test_the_cost_so_far_of_a_job_without_a_price_is_not_counted() -> None:
    (row,) = records(frame_of([run(price_usd_per_hour="", cost_usd=5.0)], ""))

    assert row["cost_usd"] is None


@pytest.mark.parametrize(
    ("changed", "terms", "usd_or_reason"),
    [
        ({}, {"region": "eu-west-1"}, 2.0),  # 1800 s x 2 instances x 2 USD / 3600
        ({}, {"region": "us-east-1"}, 1.5),
        ({}, {"region": "us-east-1", "price_date": "2026-09-30"}, 1.0),
        ({}, {"price_date": "2026-10-01"}, 1.5),  # in the region it ran in
        ({"used_instance_type": "ml.p4d.24xlarge"}, {"region": "eu-west-1"}, 40.0),  # the type it fell back to
        ({"price_region": None, "region": "eu-west-1"}, {"price_date": "2026-11-20"}, 2.0),
        ({"instance_type": "local"}, {"region": "eu-west-1"}, 1.0),  # a notional price is kept
        ({"spot": "true", "training_seconds": "3600"}, {"region": "eu-west-1"}, 2.0),  # as spot billed it
        ({"billable_seconds": None}, {"region": "eu-west-1"}, "no billable seconds are recorded: it cannot"),
        ({"price_region": None}, {"price_date": "2026-11-20"}, "no region is recorded: set region"),
        ({}, {"region": "ap-east-1"}, "the price of ml.g5.xlarge in ap-east-1 is not known"),
        ({}, {"rate": "effective"}, "no complete bill of it was read"),
    ],
)
def test_a_run_is_priced_again_by_its_seconds_and_instances_or_has_no_cost_and_a_reason(
    changed: dict[str, Any], terms: dict[str, Any], usd_or_reason: float | str
) -> None:
    cost = new_cost(run(**changed), PRICES, ReportRequest(**terms), TODAY)

    if isinstance(usd_or_reason, float):
        assert cost["new_cost_usd"] == pytest.approx(usd_or_reason)
    else:
        assert cost.get("new_cost_usd") is None
        assert str(cost["remark"]).startswith(usd_or_reason)


def test_a_launcher_without_regions_is_not_told_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paretune.specification.catalog.owner", lambda _: replace(SAGEMAKER, has_regions=False))

    cost = new_cost(run(price_region=None), PRICES, ReportRequest(price_date="2026-11-20"), TODAY)

    assert cost == {"remark": "its launcher has no regions: it cannot be priced again"}


@pytest.mark.parametrize(
    "other",
    [{"origin": "simulated"}, {"dataset": "other"}, {"instance_type": "local"}, {"entry_script": "gone.py"}],
)
def test_runs_of_another_origin_script_data_set_or_kind_of_dollars_are_on_a_front_of_their_own(
    other: dict[str, str],
) -> None:
    worse = {"f1": 0.5, "cost_usd": 9.0}

    assert [row["on_front"] for row in report([run(1), run(2, **worse, **other)]).rows] == [True, True]
    assert [row["on_front"] for row in report([run(1), run(2, **worse)]).rows] == [True, False]


def test_a_trial_of_a_script_is_judged_by_the_metric_of_its_study_and_each_metric_has_a_front() -> None:
    script = {"entry_script": "/home/ann/train.py", "f1": None}
    trials = [run(n, **script, val_loss=loss, cost_usd=usd) for n, (loss, usd) in enumerate([(0.3, 1.0), (0.5, 2.0)])]
    trials = [replace(trial, tags={**trial.tags, "mlflow.parentRunId": "study"}) for trial in trials]
    failed_to_learn = run(3, entry_script="/home/ann/train.py", f1=0.0)
    made = report([*trials, failed_to_learn, run(4, f1=0.8)])
    table = made.sections[0].table

    assert [row["on_front"] for row in made.rows] == [True, False, True, True]
    assert [*table["script"]] == ["train.py", "train.py", "train.py", ""]
    assert [*zip(table["judged by"], table["quality"], strict=True)] == [
        *(("val_loss", "0.3000"), ("val_loss", "0.5000"), ("F1", "0"), ("F1", "0.8000"))
    ]


def total(jobs: list[RecordedRun], by: str, key: str, origin: str = "measured") -> dict[str, Any]:
    rows = records(totals(frame_of(jobs)))
    (row,) = (row for row in rows if (row["by"], row["key"], row["origin"]) == (by, key, origin))
    return row


def test_no_sum_mixes_origins_or_notional_dollars() -> None:
    jobs = [
        *on_p3(1, [1000, 2000], started=NOVEMBER, tags={"study": "scaling"}),
        *on_p3(2, [1800], f1=0.95, started=DECEMBER, tags={"team": "search", "user": "ann"}),
        *on_p3(1, [9000], started=DECEMBER, tags={"origin": "simulated"}),
        recorded(started=DECEMBER, metrics={"cost_usd": 0.25}),
    ]
    study, month, whole = total(jobs, "study", "scaling"), total(jobs, "month", "2025-12"), total(jobs, ALL, ALL)

    assert (study["jobs"], study["cost_usd"], study["best_f1"]) == (2, 3.0, 0.9)
    assert study["instance_hours"] == pytest.approx((1000 + 2000) / 3600)
    assert (month["cost_usd"], month["instance_hours"], month["best_f1"]) == (3.6, 1.0, 0.95)
    assert total(jobs, "month", "2025-12", "simulated")["cost_usd"] == 9.0
    assert total(jobs, "instance_type", "local", "measured, notional dollars")["cost_usd"] == 0.25
    assert (total(jobs, "team", "search")["jobs"], total(jobs, "team", NONE)["jobs"]) == (1, 2)
    assert (whole["jobs"], whole["cost_usd"]) == (3, 6.6)
    for by in TOTAL_KEYS:
        assert sum(row["jobs"] for row in records(totals(frame_of(jobs))) if row["by"] == by) == 5


def test_a_failed_run_is_not_on_the_front_and_keeps_no_other_run_off_it() -> None:
    rows = report([run(1), run(2, state="Failed", f1=0.99, cost_usd=0.1)]).rows

    assert {str(row["state"]): row["on_front"] for row in rows} == {"Completed": True, "Failed": None}


def test_dollars_of_failed_jobs_and_what_aws_has_billed_are_shown_next_to_the_cost() -> None:
    jobs = [
        *on_p3(1, [1000], metrics={"billed_usd": 1.25}),
        *on_p3(1, [3000], f1=0.99, tags={"state": "Failed"}),
        recorded(instance_type="ml.p3.2xlarge"),
    ]
    whole = total(jobs, ALL, ALL)
    table = report(jobs).sections[1].table

    assert (whole["cost_usd"], whole["billed_usd"], whole["failed_usd"]) == (4.0, 1.25, 3.0)
    assert (whole["without_cost"], whole["best_f1"]) == (1, 0.9)
    assert {"billed (USD)", "of failed jobs (USD)", "runs without a cost"} <= set(table)


def test_a_report_shows_the_newest_runs_counts_no_others_and_says_which_command_shows_the_older_ones() -> None:
    jobs = [replace(run(number), started=DECEMBER - number) for number in range(MOST_RUNS + 1)]

    shown = report(jobs)

    assert len(shown.rows) == MOST_RUNS
    (total,) = [row for row in shown.totals if row["by"] == ALL]
    assert total["jobs"] == MOST_RUNS
    oldest_ms = (DECEMBER - MOST_RUNS + 1) * 1000
    assert "newest 2,000 jobs; older ones are left out, and in no sum: `paretune report --filter" in shown.about[1]
    assert f"attributes.start_time < {oldest_ms:.0f}" in shown.about[1]
    assert "Recorded dollars of these jobs only, by month:" in str(shown)
    assert len(str(shown).splitlines()) < 300  # a terminal shows the newest rows, and report.csv has all
    assert "1,800 more rows are in report.csv and report.html" in str(shown)
    assert len(shown.csv().splitlines()) == MOST_RUNS + 1

    assert len(report(jobs[:3]).about) == 1
