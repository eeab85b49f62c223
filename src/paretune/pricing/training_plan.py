"""Training plans: instances that are paid for in advance, for a time.

What a job on the instances of a plan costs is nothing more; its share of the upfront fee is told apart.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

_HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """Instances of one type, reserved for a time.

    Attributes:
        seconds: how long, per instance.
        ends: seconds since the epoch; None where AWS has not said it.
    """

    instance_type: str
    count: int
    seconds: float
    ends: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training plan, or an offer of one.

    Attributes:
        name: its name, or the id of the offer.
        status: Pending, Active, Scheduled, Expired, Failed; Offered of an offer.
        upfront_usd: its fee; None where AWS names none, or another currency.
        starts: seconds since the epoch, as is `ends`; None where AWS has not said it.
        available: instances that are free now; None where AWS has not said it.
    """

    name: str
    status: str
    reserved: tuple[Reserved, ...]
    upfront_usd: float | None
    targets: tuple[str, ...]
    starts: float | None = None
    ends: float | None = None
    available: int | None = None

    @property
    def instance_seconds(self) -> float:
        """Seconds of all its instances together."""
        return sum(part.count * part.seconds for part in self.reserved)

    def count_of(self, instance_type: str) -> int:
        """The most instances of a type that it has at one time."""
        return max((part.count for part in self.reserved if part.instance_type == instance_type), default=0)

    def share_usd(self, instance_seconds: float) -> float | None:
        """The part of the upfront fee that so many seconds of one instance are; None where either is not known."""
        if self.upfront_usd is None or not self.instance_seconds:
            return None
        return self.upfront_usd * instance_seconds / self.instance_seconds

    def break_even_hours(self, usd_per_hour: float) -> float | None:
        """Hours of use of all its instances from which on demand is dearer; None where its fee is not known."""
        count = max((part.count for part in self.reserved), default=0)
        if self.upfront_usd is None or not count or usd_per_hour <= 0:
            return None
        return self.upfront_usd / (usd_per_hour * count)

    def sentence(self, usd_per_hour: float | None) -> str:
        """What it costs and holds, and from how many hours of use it beats on demand at that price of an instance."""
        count = max((part.count for part in self.reserved), default=0)
        hours = self.instance_seconds / _HOUR_S / count if count else 0.0
        types = " and ".join(dict.fromkeys(part.instance_type for part in self.reserved))
        fee = "a fee that AWS does not tell in USD" if self.upfront_usd is None else f"{self.upfront_usd:,.2f} USD"
        start = f" from {day_of(self.starts)}" if self.starts else ""
        held = f"training plan {self.name} ({self.status}): {fee} upfront for {count} x {types} over {hours:g} h{start}"
        even = None if usd_per_hour is None else self.break_even_hours(usd_per_hour)
        if even is None:
            return f"{held}; from how many hours of use it beats on demand is not known without both prices"
        beats = f"beats on demand ({usd_per_hour:g} USD an hour each) from {even:,.1f} hours of use"
        return f"{held}; {beats}" + (f" ({even / hours:.0%} of them)" if even <= hours else ", more than it has")


def day_of(moment: float | None) -> str:
    """Day and time of a moment, seconds since the epoch."""
    return "some day" if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
