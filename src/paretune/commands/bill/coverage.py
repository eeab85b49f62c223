"""Up to when a bill tells what SageMaker has charged."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
LATE = timedelta(days=2)
"""How much later than other lines those of SageMaker come at most: AWS gives no bound; bills are "updated at least once
a day", with usage of up to 24 hours before (AWS Data Exports user guide, read 2026-11-22); twice that."""


@dataclass
class Coverage:
    """Which months a bill is of, and up to when it has lines of an hour or a day.

    The newest day of daily lines does not count: it may be a part of a day.
    """

    months: set[tuple[int, int]] = field(default_factory=set)
    _hourly: datetime | None = None  # newest end
    _hourly_of_service: datetime | None = None
    _daily: datetime | None = None  # newest begin of a day
    _daily_of_service: datetime | None = None

    def add(self, start: datetime, end: datetime, *, of_service: bool) -> None:
        """A line of usage in this time, of SageMaker or of another service."""
        self.months.add((start.year, start.month))
        if end - start <= _HOUR:
            self._hourly = _later(self._hourly, end)
            self._hourly_of_service = _later(self._hourly_of_service, end if of_service else None)
        elif end - start <= _DAY:
            self._daily = _later(self._daily, start)
            self._daily_of_service = _later(self._daily_of_service, start if of_service else None)

    @property
    def until(self) -> datetime | None:
        """Up to when there are lines of anything; None without lines of an hour or a day."""
        return _later(self._hourly, self._daily)

    @property
    def told_until(self) -> datetime | None:
        """Up to when SageMaker's lines are there, or would be: they may come LATE."""
        day = self._daily_of_service
        if day is not None and self._daily is not None and day < self._daily:
            day += _DAY
        told = _later(self._hourly_of_service, day)
        return told if self.until is None else _later(told, self.until - LATE)

    def lacks(self, start: datetime, end: datetime, spare: timedelta = timedelta(0)) -> str:
        """Why the bill does not tell all of a job in this time, but for its last `spare`; empty where it does."""
        told = self.told_until
        if told is None:
            return "the bill has no lines of an hour or a day: export it with TIME_GRANULARITY HOURLY or DAILY"
        needed = _months(start, end - spare)
        for year, month in needed:
            if (year, month) not in self.months:
                together = ": reconcile a folder with all months of the job" if len(needed) > 1 else ""
                return f"the bill has no lines of {year}-{month:02}{together}"
        if end - spare > told:
            ended = f"the job ended at {end:%Y-%m-%d %H:%M}"
            return f"the bill tells SageMaker's hours up to {told:%Y-%m-%d %H:%M} UTC, and {ended}"
        return ""


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max(filter(None, (one, other)), default=None)


def _months(start: datetime, end: datetime) -> list[tuple[int, int]]:
    """The months from one time to another, years and numbers."""
    first, last = start.year * 12 + start.month - 1, end.year * 12 + end.month - 1
    return [(place // 12, place % 12 + 1) for place in range(first, last + 1)]
