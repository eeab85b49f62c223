"""Says how far a running job has come, and which seconds and dollars are left."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paretune.core.noise import Z80
from paretune.estimating.phases import kind_of, usual
from paretune.jobs.bill import Bill
from paretune.launchers.base import Job
from paretune.presentation.text import duration, usd
from paretune.specification.catalog import instance
from paretune.specification.container import Event, Progress, measurements_of
from paretune.specification.launchers import LauncherTraits
from paretune.specification.plan import Plan
from paretune.user_code.script_metrics import ProgressReader

DEVIATION = 0.25
"""Standard deviation of the logarithm of the seconds that a training has left, at its begin.

Measured on the logs of five programs, after a tenth of their steps (0.26), by `tests/unit/jobs/test_remaining.py`."""


class Course:
    """Follows one attempt of a job by its events.

    Attributes:
        has_begun: whether the training has sent its number of steps, a metric or its progress.
    """

    def __init__(self) -> None:
        self.has_begun = False
        self._steps = ProgressReader()  # of paretune's own training
        self._newest: tuple[Progress, float] | None = None  # of a user's own training, and when it was sent

    def add(self, events: Iterable[Event]) -> None:
        """Read new events, of which `measurements_of` has left those that are believed."""
        for event in events:
            self.has_begun |= bool(event.metrics or event.total_steps or event.progress is not None)
            if event.progress is not None:
                self._newest = event.progress, event.time
            elif event.total_steps and event.metrics:
                self._steps.count("step", event.step, event.total_steps, event.time)

    def progress(self, now: float) -> Progress | None:
        """Return how far the training has come at a time in seconds since the epoch; None if no counter says so."""
        if self._newest is None:
            counted = self._steps.progress(now)
            return None if counted is None else Progress(**counted._asdict())
        progress, sent = self._newest
        waited_s = max(0.0, now - sent) if progress.stands_still else 0.0
        return progress.model_copy(update={"seconds": progress.seconds + waited_s})


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """States what is left of a running job.

    Attributes:
        progress: how far its training has come.
        seconds: expected seconds until it ends, with the upload of its model; None if nothing says so.
        usd: their dollars; None if the seconds or the price are unknown.
        error: by which factor the seconds may be too short or too long, at 80 %.
    """

    progress: Progress
    seconds: float | None = None
    usd: float | None = None
    error: float = 1.0

    def __str__(self) -> str:
        """Return it in words: `31 %, about 12 m and 1.40 USD left`, or the counter if its total is unknown."""
        share, still = self.progress.share, ", standing still" if self.progress.stands_still else ""
        if share is None or self.seconds is None:
            return self.progress.evidence
        dollars = "" if self.usd is None else f" and {usd(self.usd)}"
        return f"{100 * share:.0f} %, about {duration(self.seconds)}{dollars} left{still}"

    def row(self) -> dict[str, Any]:
        """Return it as plain values."""
        known = {"share": self.progress.share, "left_s": self.seconds, "left_usd": self.usd}
        ends = {"low": 1 / self.error, "high": self.error}
        known |= {f"left_usd_{end}": None if self.usd is None else factor * self.usd for end, factor in ends.items()}
        return {"text": str(self), "evidence": self.progress.evidence, **known}


def remaining(course: Course, bill: Bill, traits: LauncherTraits, now: float) -> Remaining | None:
    """Return what is left of a running job at a time in seconds since the epoch; None if no counter says so."""
    if (progress := course.progress(now)) is None:
        return None
    if (seconds := progress.left_s) is None:
        return Remaining(progress=progress)
    deviation_s = seconds * DEVIATION * math.sqrt(1.0 - (progress.share or 0.0))
    if traits.files_travel:
        upload = usual("uploading", kind_of(instance(bill.offer.instance_type)))
        deviation_s = math.hypot(deviation_s, (upload.seconds_high - upload.seconds_low) / (2 * Z80))
        seconds += upload.seconds
    left_usd = None if bill.plan.limits.is_spot else bill.usd_of(seconds)
    error = math.exp(Z80 * deviation_s / seconds) if seconds else 1.0
    return Remaining(progress=progress, seconds=seconds, usd=left_usd, error=error)


def course_of(job: Job, plan: Plan) -> Course:
    """Return the course of a job that this process has not followed before."""
    course, events = Course(), job.events()
    course.add(measurements_of(events, job.name) if plan.card.is_users else events)
    return course
