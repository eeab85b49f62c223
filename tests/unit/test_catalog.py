"""Prices and where they come from."""

from datetime import date

import pytest

from paretune.catalog import ML_M5_LARGE, local_price
from paretune.spec import JobSpec


def test_the_default_price_is_that_of_ml_m5_large_with_region_date_and_source() -> None:
    price = local_price(JobSpec().local_price_usd_per_hour)

    assert price == ML_M5_LARGE
    assert price.usd_per_hour == 0.115
    assert price.region == "us-east-1"
    assert date.fromisoformat(price.as_of) == date(2026, 8, 11)
    assert "ml.m5.large" in price.source


@pytest.mark.parametrize("usd", [0.0, 0.1, 2.5])
def test_a_price_of_the_user_s_own_claims_no_region_and_no_date(usd: float) -> None:
    price = local_price(usd)

    assert (price.usd_per_hour, price.region, price.as_of) == (usd, "", "")
    assert "local_price_usd_per_hour" in price.source


def test_every_price_of_a_local_job_says_that_it_is_notional() -> None:
    assert local_price(0.115).source.startswith("notional")
    assert local_price(1.0).source.startswith("notional")
