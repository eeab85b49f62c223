"""The hourly price of an instance, as a value. `pricing` has the lists of prices."""

import re
from dataclasses import dataclass
from datetime import date

DOUBT = {"uncertain": "uncertain: ", "single_source": "one source: "}  # confidence to prefix of `Price.source`
OF_A_PLAN = "plan"  # confidence of the price that the user gives for a training plan
_STALE_DAYS = 180


@dataclass(frozen=True, kw_only=True)
class Price:
    """The hourly price of one instance, with region, date and source."""

    usd_per_hour: float
    region: str  # empty if the launcher has no regions, or if unknown
    as_of: str  # when the price was read: a year, month or day; empty if unknown
    source: str  # where it was read; starts with "uncertain: " or "one source: " if its confidence is low
    instance_type: str = ""
    confidence: str = "confirmed"  # confirmed, single_source, uncertain, user (the user's CSV), plan or notional

    def cost_usd(self, billable_seconds: float, instance_count: int) -> float:
        """Return the cost in dollars of a job with this many billable seconds per instance.

        Source of the formula: AWS, DescribeTrainingJob, BillableTimeInSeconds (2026-11-20).
        """
        return billable_seconds * instance_count * self.usd_per_hour / 3600

    @property
    def since(self) -> date:
        """First day of the period `as_of`, or the earliest possible date if `as_of` is empty."""
        return first_day(self.as_of) if self.as_of else date.min

    @property
    def stated(self) -> str:
        """The price for messages: `1.408 USD per hour, price of 2026-08`. A notional price has no date here."""
        date_of = f", price of {self.as_of}" if self.as_of and self.confidence != "notional" else ""
        return f"{hourly(self.usd_per_hour)}{date_of}"

    @property
    def doubt(self) -> str:
        """The prefix of `source` that says that the confidence is low; empty for other prices."""
        return DOUBT.get(self.confidence, "")

    @property
    def plain_source(self) -> str:
        """The first source in `source`, without the prefix for a low confidence and without dates."""
        source = self.source.removeprefix(self.doubt).partition(";")[0]
        return re.sub(r" \d{4}-\d\d(-\d\d)?", "", source)

    def age_days(self, today: date) -> int | None:
        """Return the days since the first day of `as_of`; None without a date."""
        return (today - self.since).days if self.as_of else None

    def doubts(self, today: date) -> list[str]:
        """Return reasons to doubt the price, in a few words each: low confidence, no date, or over 180 days old.

        A notional price and that of a training plan are never doubted.
        """
        if self.confidence in ("notional", OF_A_PLAN):
            return []
        reasons = {"uncertain": ["uncertain"], "single_source": ["from one source only"]}.get(self.confidence, [])
        if not self.as_of:
            return [*reasons, "without a date"]
        return [*reasons, f"of {self.as_of}"] if (today - self.since).days > _STALE_DAYS else reasons


def hourly(usd_per_hour: float) -> str:
    """Format an hourly price with all its digits, up to six after the point: 1.408 USD per hour."""
    return f"{f'{usd_per_hour:,.6f}'.rstrip('0').rstrip('.')} USD per hour"


def first_day(as_of: str) -> date:
    """Return the first day of a year, month or day as text. Raises ValueError if it is none of them."""
    return date.fromisoformat(f"{as_of}-01-01"[:10])
