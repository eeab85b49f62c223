"""What an instance hour costs, and where that figure comes from."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Price:
    """One price row: the hourly price of one instance, with region, date and source.

    `region` and `as_of` are empty where they have no meaning.
    """

    usd_per_hour: float
    region: str
    as_of: str
    source: str


# SageMaker Training price of ml.m5.large (2 vCPUs, 8 GiB), us-east-1: usage type USE1-Train:ml.m5.large of the AWS
# price list, read on 2026-08-11.
ML_M5_LARGE = Price(
    usd_per_hour=0.115,
    region="us-east-1",
    as_of="2026-08-11",
    source="notional: AWS price list, SageMaker Training, ml.m5.large; a local job is not billed",
)


def local_price(usd_per_hour: float) -> Price:
    """The notional price of a local instance: that of ml.m5.large, or a figure the user has set."""
    if usd_per_hour == ML_M5_LARGE.usd_per_hour:
        return ML_M5_LARGE
    return Price(usd_per_hour=usd_per_hour, region="", as_of="", source="notional: local_price_usd_per_hour")
