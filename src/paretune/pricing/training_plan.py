"""Training plans: instances that are paid in advance for a period.

A job on the instances of a plan costs nothing more; its share of the upfront fee is reported separately.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

_HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """Reserved instances of one type. `seconds` is the duration per instance; `ends` is None if AWS does not state it.

    Moments are seconds since the epoch.
    """

    instance_type: str
    count: int
    seconds: float
    ends: float | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """A training plan, or an offer of one. Values that AWS does not state are None; moments are epoch seconds.

    Attributes:
        name: its name, or the id of the offer.
        status: Pending, Active, Scheduled, Expired or Failed; Offered for an offer.
        upfront_usd: its fee, None also for another currency.
        available: instances that are free now.
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
        """Reserved seconds of all instances together."""
        return sum(part.count * part.seconds for part in self.reserved)

    @property
    def _most_instances(self) -> int:
        return max((part.count for part in self.reserved), default=0)

    def count_of(self, instance_type: str) -> int:
        """The highest number of instances of a type at one time."""
        return max((part.count for part in self.reserved if part.instance_type == instance_type), default=0)

    def share_usd(self, instance_seconds: float) -> float | None:
        """The share of so many instance-seconds in the upfront fee, or None if either is unknown."""
        if self.upfront_usd is None or not self.instance_seconds:
            return None
        return self.upfront_usd * instance_seconds / self.instance_seconds

    def break_even_hours(self, usd_per_hour: float) -> float | None:
        """Hours of use of all instances from which it is cheaper than on demand, or None if its fee is unknown."""
        if self.upfront_usd is None or not self._most_instances or usd_per_hour <= 0:
            return None
        return self.upfront_usd / (usd_per_hour * self._most_instances)

    def sentence(self, usd_per_hour: float | None) -> str:
        """Fee, instances and break-even hours at this on-demand price of an instance, as one sentence."""
        count = self._most_instances
        hours = self.instance_seconds / _HOUR_S / count if count else 0.0
        types = " and ".join(dict.fromkeys(part.instance_type for part in self.reserved))
        fee = "a fee that AWS does not tell in USD" if self.upfront_usd is None else f"{self.upfront_usd:,.2f} USD"
        start = f" from {day_of(self.starts)}" if self.starts else ""
        plan = f"training plan {self.name} ({self.status}): {fee} upfront for {count} x {types} over {hours:g} h{start}"
        even = None if usd_per_hour is None else self.break_even_hours(usd_per_hour)
        if even is None:
            return f"{plan}; from how many hours of use it beats on demand is not known without both prices"
        beats = f"beats on demand ({usd_per_hour:g} USD an hour each) from {even:,.1f} hours of use"
        return f"{plan}; {beats}" + (f" ({even / hours:.0%} of them)" if even <= hours else ", more than it has")


def day_of(moment: float | None) -> str:
    """Day and time of a moment in UTC."""
    return "some day" if moment is None else f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC"
