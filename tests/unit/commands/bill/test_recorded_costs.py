"""What a run tells of its bill, to the last digit of its price."""

import pytest

from paretune.jobs.bill import price_tags
from paretune.pricing.prices import Price
from paretune.tracking import RecordedRun

P4D = 25.2512883


def run(price: str, cost: float) -> RecordedRun:
    """Ten hours on two instances."""
    tags = {"job_name": "paretune-a-1", "price_usd_per_hour": price, "state": "Completed"}
    return RecordedRun(
        "a",
        {"instance_type": "ml.p4d.24xlarge", "instance_count": "2"},
        {f"paretune.{name}": text for name, text in tags.items()},
        {"billable_seconds": 36_000.0, "cost_usd": cost},
        started=0.0,
        ended_at=36_060.0,
    )


@pytest.mark.parametrize(("usd", "text"), [(P4D, "25.2512883"), (4.0, "4"), (1.408, "1.408"), (0.0, "0")])
def test_a_price_is_recorded_with_all_digits(usd: float, text: str) -> None:
    price = Price(usd_per_hour=usd, region="us-east-1", as_of="2026-11", source="test")

    assert price_tags(price)["paretune.price_usd_per_hour"] == text
