"""What recorded runs cost on other terms, by sums worked out by hand."""

from datetime import date
from typing import Any

import pytest

from paretune.commands.report.repricing import RunCost, Terms, remarks, reprice
from paretune.pricing.prices import Price, PriceList
from paretune.tracking import RecordedJob, RecordedRun

TODAY = date(2026, 11, 20)


def price(usd: float, as_of: str, region: str = "eu-west-1", name: str = "ml.g5.xlarge", **others: str) -> Price:
    return Price(
        **{"usd_per_hour": usd, "region": region, "as_of": as_of, "source": "test", "instance_type": name, **others}
    )


PRICES = PriceList(
    listed=(
        price(1.0, "2025-01-01", "us-east-1"),
        price(1.5, "2026-10-01", "us-east-1"),
        price(2.0, "2026-10-01"),
        price(40.0, "2026-10-01", name="ml.p4d.24xlarge"),
    )
)


def run(number: int = 1, **others: Any) -> RecordedJob:
    """Two instances for half an hour at 1 USD an hour each: 1 USD."""
    values = {
        "instance_type": "ml.g5.xlarge",
        "instance_count": "2",
        "f1": 0.9,
        "billable_seconds": 1800.0,
        "cost_usd": 1.0,
        "origin": "measured",
        "price_usd_per_hour": "1",
        "price_region": "us-east-1",
        **others,
    }
    reference = {name: value for name, value in values.items() if value is not None}
    metrics = {name: value for name, value in reference.items() if isinstance(value, float)}
    tags = {
        "origin",
        "price_usd_per_hour",
        "price_region",
        "training_seconds",
        "job_name",
        "used_instance_type",
        "region",
    }
    params = {name: value for name, value in reference.items() if name not in tags and name not in metrics}
    named = {f"paretune.{name}": value for name, value in reference.items() if name in tags}
    return RecordedJob(RecordedRun(f"{number:032x}", params, named, metrics))


def cost(recorded: RecordedJob, **terms: Any) -> RunCost:
    (result,) = reprice([recorded], PRICES, Terms(**terms))
    return result


def test_without_new_terms_nothing_is_priced_again() -> None:
    result = cost(run())

    assert (result.cost_usd, result.price, result.remark) == (None, None, "")


@pytest.mark.parametrize(
    ("terms", "usd"),
    [
        ({"region": "eu-west-1"}, 2.0),  # 1800 s x 2 instances x 2 USD / 3600
        ({"region": "us-east-1"}, 1.5),
        ({"region": "us-east-1", "on": date(2026, 9, 30)}, 1.0),
        ({"on": date(2026, 10, 1)}, 1.5),  # in the region it ran in
        ({"spot_share": 0.3}, 0.3),  # at the price it had
        ({"region": "eu-west-1", "spot_share": 0.3}, 0.6),
        ({"region": "eu-west-1", "spot_share": 1.0}, 2.0),
    ],
)
def test_cost_is_seconds_times_instances_times_the_price_asked_for(terms: dict[str, Any], usd: float) -> None:
    result = cost(run(), **terms)

    assert result.cost_usd == pytest.approx(usd)
    assert result.difference_usd == pytest.approx(usd - 1)
    assert result.job.bill.cost_usd == 1.0


def test_the_instance_type_is_the_one_the_job_fell_back_to() -> None:
    assert cost(run(used_instance_type="ml.p4d.24xlarge"), region="eu-west-1").cost_usd == pytest.approx(40)


def test_a_local_run_keeps_its_notional_cost() -> None:
    result = cost(run(instance_type="local"), region="eu-west-1", spot_share=0.5)

    assert (result.cost_usd, result.difference_usd) == (1.0, 0.0)
    assert remarks([result], Terms(region="eu-west-1"), TODAY) == ["1 run: local, its notional price is kept"]


def test_a_spot_run_is_taken_at_its_seconds_before_the_discount() -> None:
    spot = run(spot="true", training_seconds="3600", job_name="paretune-x-1")

    assert cost(spot, spot_share=0.5).cost_usd == pytest.approx(1.0)  # 3600 s x 0.5 x 2 x 1 USD / 3600
    assert cost(spot, spot_share=1.0).cost_usd == pytest.approx(2.0)
    assert cost(spot, region="eu-west-1").cost_usd == pytest.approx(2.0)  # as it was billed: 1800 s x 2 x 2 USD


@pytest.mark.parametrize("reference", [{}, {"training_seconds": "3600", "job_name": "paretune-x-2"}])
def test_a_spot_run_whose_seconds_before_the_discount_are_unknown_cannot_be_priced_again(
    reference: dict[str, str],
) -> None:
    result = cost(run(spot="true", **reference), spot_share=0.5)

    assert result.cost_usd is None
    assert result.remark == "a spot run whose training seconds are not recorded: it cannot be priced again"


@pytest.mark.parametrize(
    ("changed", "terms", "remark"),
    [
        ({"billable_seconds": None}, {"region": "eu-west-1"}, "no billable seconds are recorded: it cannot"),
        ({"price_region": None}, {"on": TODAY}, "no region is recorded: set region"),
        ({"price_usd_per_hour": None}, {"spot_share": 0.5}, "no price is recorded: set region"),
        ({}, {"region": "ap-east-1"}, "price unknown in ap-east-1"),
    ],
)
def test_what_cannot_be_priced_has_no_cost_and_a_reason(
    changed: dict[str, Any], terms: dict[str, Any], remark: str
) -> None:
    result = cost(run(**changed), **terms)

    assert result.cost_usd is None
    assert result.difference_usd is None
    assert result.remark.startswith(remark)


def test_the_region_of_a_run_without_a_price_is_the_one_it_ran_in() -> None:
    assert cost(run(price_region=None, region="eu-west-1"), on=TODAY).cost_usd == pytest.approx(2)


def test_an_unknown_price_is_said_once_whatever_the_number_of_runs() -> None:
    terms = Terms(region="ap-east-1")
    remarks_ = remarks(reprice([run(1), run(2), run(3)], PRICES, terms), terms, TODAY)

    (sentence,) = remarks_
    assert sentence.startswith("price of ml.g5.xlarge in ap-east-1 is not known, so cost will be absent")
    dated = Terms(region="us-east-1", on=date(2024, 1, 1))
    assert remarks(reprice([run(1), run(2)], PRICES, dated), dated, TODAY) == [
        "price of ml.g5.xlarge in us-east-1 on 2024-01-01 or before is not known, so cost is absent"
    ]


def test_doubts_of_a_new_price_are_said_once_and_its_age_is_that_on_the_day_asked_for() -> None:
    old = PriceList(listed=(price(1.0, "2026-01-01"),))
    runs = [run(1), run(2)]

    terms = Terms(region="eu-west-1")
    (remarks_,) = remarks(reprice(runs, old, terms), terms, TODAY)
    assert "is of 2026-01-01, 323 days old" in remarks_
    dated = Terms(region="eu-west-1", on=date(2026, 2, 1))
    assert remarks(reprice(runs, old, dated), dated, TODAY) == []


def test_reasons_are_counted() -> None:
    terms = Terms(on=TODAY)
    runs = [run(number, price_region=None) for number in range(3)]

    assert remarks(reprice(runs, PRICES, terms), terms, TODAY) == ["3 runs: no region is recorded: set region"]


def test_a_price_cut_changes_who_is_on_the_front() -> None:
    fast = run(1, instance_type="ml.p4d.24xlarge", f1=0.92, billable_seconds=900.0, cost_usd=5.0, instance_count="1")
    small = run(2, f1=0.91, billable_seconds=3600.0, cost_usd=6.0)
    worst = run(3, f1=0.8, cost_usd=7.0)
    unknown = run(4, cost_usd=None)
    runs = [fast, small, worst, unknown]

    costs = reprice(runs, PRICES, Terms(region="eu-west-1"))

    assert [cost.was_on_front for cost in costs] == [True, False, False, None]
    # 900 s x 40 = 10 USD; 3600 s x 2 x 2 = 4 USD; 1800 s x 2 x 2 = 2 USD, but F1 0.8 < 0.9; 2 USD
    assert [cost.is_on_front for cost in costs] == [True, True, False, True]


@pytest.mark.parametrize(
    "other",
    [{"origin": "simulated"}, {"dataset": "other"}, {"instance_type": "local"}, {"dataset_config_name": "sst2"}],
)
def test_runs_of_another_origin_data_set_or_kind_of_dollars_are_on_a_front_of_their_own(other: dict[str, str]) -> None:
    costs = reprice([run(1), run(2, f1=0.5, cost_usd=9.0, **other)], PRICES, Terms())

    assert [cost.was_on_front for cost in costs] == [True, True]
    same = reprice([run(1), run(2, f1=0.5, cost_usd=9.0)], PRICES, Terms())
    assert [cost.was_on_front for cost in same] == [True, False]
