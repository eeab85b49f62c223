"""Dollars of seconds, and whether a job may be paid for."""

from dataclasses import replace

import pytest

from paretune.core.errors import BudgetRefused
from paretune.pricing.budget import Balance, admit, cost_usd
from paretune.pricing.prices import Price
from paretune.specification.job import JobSpec

PRICE = Price(usd_per_hour=3.06, region="us-east-1", as_of="2026-11", source="a price list")


def spec(**changes: object) -> JobSpec:
    return JobSpec(instance_type="ml.p3.2xlarge", instance_count=4, max_runtime_minutes=30.0, **changes)


def test_a_job_costs_its_billed_seconds_on_all_instances() -> None:
    # Half an hour on 4 instances at 3.06 USD per hour: 2 instance hours.
    assert PRICE.cost_usd(1800, 4) == pytest.approx(6.12)
    assert cost_usd(PRICE, spec(), 1800) == pytest.approx(6.12)
    assert cost_usd(PRICE, spec(), 0) == 0


def test_without_a_price_dollars_are_absent() -> None:
    assert cost_usd(None, spec(), 1800) is None
    assert admit(spec(), None, 180.0) is None


def test_the_worst_case_is_the_longest_runtime_what_follows_it_and_the_warm_pool_on_all_instances() -> None:
    assert admit(spec(), PRICE, 0.0) == pytest.approx(6.12)
    assert admit(spec(), PRICE, 180.0) == pytest.approx(6.12 + 0.05 * 4 * 3.06)
    assert admit(spec(keep_alive_minutes=30.0), PRICE, 0.0) == pytest.approx(12.24)


def test_a_worst_case_above_the_limit_is_refused_and_one_equal_to_it_is_not() -> None:
    even = replace(PRICE, usd_per_hour=3.0)  # 2 instance hours at 3 USD: no rounding
    assert admit(spec(max_cost_usd=6.0), even, 0.0) == 6.0
    with pytest.raises(BudgetRefused, match=r"worst case 6.12 USD .* at most max_cost_usd, 6.11"):
        admit(spec(max_cost_usd=6.11), PRICE, 0.0)
    with pytest.raises(BudgetRefused, match=r"30 minutes and 180 s to stop and upload, x 4 x 3 USD per hour"):
        admit(spec(max_cost_usd=6.0), even, 180.0)


def test_a_limit_cannot_be_held_without_a_price() -> None:
    with pytest.raises(BudgetRefused, match=r"the price of ml\.p3\.2xlarge is not known"):
        admit(spec(max_cost_usd=6.11), None, 0.0)


def test_what_is_left_of_a_budget_is_neither_spent_nor_committed() -> None:
    balance = Balance(spent_usd=2.5, committed_usd=1.5)

    assert balance.left_usd(10.0) == pytest.approx(6.0)
    assert balance.left_usd(3.0) == pytest.approx(-1.0)
