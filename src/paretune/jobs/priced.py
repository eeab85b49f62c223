"""The price that a run was computed with, as its tags say it."""

from paretune.pricing.prices import Price
from paretune.tracking import RecordedJob, schema


def price_tags(price: Price | None) -> dict[str, str | None]:
    """The row of the price list that a cost was computed with; nothing where the price is not known."""
    if price is None:
        return {}
    return {
        schema.PRICE_USD_PER_HOUR: _all_digits(price.usd_per_hour),
        schema.PRICE_REGION: price.region or None,
        schema.PRICE_AS_OF: price.as_of or None,
        schema.PRICE_SOURCE: price.source,
    }


def recorded_price(job: RecordedJob) -> Price | None:
    """The price that `price_tags` has recorded of a job; None where none is."""
    if job.price_usd_per_hour is None:
        return None
    return Price(
        usd_per_hour=job.price_usd_per_hour,
        region=job.price_region,
        as_of=job.price_as_of,
        source=job.price_source,
        instance_type=job.instance_type,
        confidence="notional",  # nothing is to be said of it: the job's own launch has said it
    )


def _all_digits(usd_per_hour: float) -> str:
    """The shortest text that is exactly the number: a bill is compared with it to the last digit."""
    return repr(usd_per_hour).removesuffix(".0")
