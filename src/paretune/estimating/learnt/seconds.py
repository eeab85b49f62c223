"""Predicted seconds of a job."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Billable seconds of a job, with an interval that holds 80 % of such jobs."""

    seconds: float
    seconds_low: float
    seconds_high: float
