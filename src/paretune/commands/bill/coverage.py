"""Up to when a bill shows what SageMaker has charged."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
LATE = timedelta(days=2)
"""The delay of SageMaker's lines after other lines. AWS gives no bound; bills are "updated at least once a
day", with usage of up to 24 hours before (AWS Data Exports user guide, read 2026-11-22); this is twice that."""


@dataclass
class Coverage:
    """The months that a bill holds, and up to when it has lines of an hour or a day.

    The newest day of daily lines does not count, because it may be incomplete.
    """

    months: set[tuple[int, int]] = field(default_factory=set)
    _hourly: datetime | None = None  # newest end
    _hourly_of_service: datetime | None = None
    _daily: datetime | None = None  # newest start of a day
    _daily_of_service: datetime | None = None

    def add(self, start: datetime, end: datetime, *, of_service: bool) -> None:
        """Count a line of usage; `of_service` is whether it is SageMaker's."""
        self.months.add((start.year, start.month))
        if end - start <= _HOUR:
            self._hourly = _later(self._hourly, end)
            self._hourly_of_service = _later(self._hourly_of_service, end if of_service else None)
        elif end - start <= _DAY:
            self._daily = _later(self._daily, start)
            self._daily_of_service = _later(self._daily_of_service, start if of_service else None)

    @property
    def until(self) -> datetime | None:
        """End of the lines of any service, or None without lines of an hour or a day."""
        return _later(self._hourly, self._daily)

    @property
    def complete_until(self) -> datetime | None:
        """Time until which SageMaker's lines are complete: none come later than LATE after the others."""
        day = self._daily_of_service
        if day is not None and self._daily is not None and day < self._daily:
            day += _DAY
        newest = _later(self._hourly_of_service, day)
        return newest if self.until is None else _later(newest, self.until - LATE)

    def missing(self, start: datetime, end: datetime, spare: timedelta = timedelta(0)) -> str:
        """Return why the bill does not cover a job from `start` to `end - spare`, or an empty text if it does."""
        complete_until = self.complete_until
        if complete_until is None:
            return "the bill has no lines of an hour or a day: export it with TIME_GRANULARITY HOURLY or DAILY"
        needed = _months(start, end - spare)
        for year, month in needed:
            if (year, month) not in self.months:
                hint = ": reconcile a folder with all months of the job" if len(needed) > 1 else ""
                return f"the bill has no lines of {year}-{month:02}{hint}"
        if end - spare > complete_until:
            return (
                f"the bill has SageMaker's hours up to {complete_until:%Y-%m-%d %H:%M} UTC, "
                f"and the job ended at {end:%Y-%m-%d %H:%M}"
            )
        return ""


def _later(first: datetime | None, second: datetime | None) -> datetime | None:
    return max(filter(None, (first, second)), default=None)


def _months(start: datetime, end: datetime) -> list[tuple[int, int]]:
    """Return year and number of the months from `start` to `end`."""
    first, last = start.year * 12 + start.month - 1, end.year * 12 + end.month - 1
    return [(month // 12, month % 12 + 1) for month in range(first, last + 1)]
