"""What happens to one simulated job, in seconds since it was created."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paretune.spec.container import Event, FailureKind, JobReport


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of a job's life.

    Attributes:
        seconds: how long it lasts.
        detail: what SageMaker calls it: Starting, Downloading, Training, Interrupted.
        runs: whether instances are there: it is billed, and counts towards the maximum runtime.
    """

    seconds: float
    detail: str
    runs: bool = True


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """A job that nobody stops.

    Attributes:
        phases: one after another.
        told: seconds since the creation and what is told then, in this order; the event's own time counts for nothing.
        failure: how it fails at the end of its phases; None when it completes.
        report: what comes out when it completes.
        last_words: what it tells when it is stopped.
        log: what it has printed by its end.
        facts: what the record should say of it.
        billable_share: share of the running seconds that is billed.
    """

    phases: tuple[Phase, ...]
    told: tuple[tuple[float, Event], ...] = ()
    failure: tuple[FailureKind, str] | None = None
    report: JobReport | None = None
    last_words: str = "stopped"
    log: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    billable_share: float = 1.0

    @property
    def seconds(self) -> float:
        """From the creation to the end."""
        return sum(phase.seconds for phase in self.phases)

    def running_seconds(self, until: float) -> float:
        """Seconds in which instances were there, up to `until` seconds after the creation."""
        found = begin = 0.0
        for phase in self.phases:
            if phase.runs:
                found += min(max(until - begin, 0.0), phase.seconds)
            begin += phase.seconds
        return found

    def reaches(self, running_seconds: float) -> float:
        """When instances have been there for so long, in seconds since the creation; infinite if they never are."""
        begin = 0.0
        for phase in self.phases:
            if phase.runs and running_seconds < phase.seconds:
                return begin + running_seconds
            running_seconds -= phase.seconds if phase.runs else 0.0
            begin += phase.seconds
        return math.inf

    def phase_at(self, moment: float) -> Phase:
        """What goes on so many seconds after the creation."""
        begin = 0.0
        for phase in self.phases[:-1]:
            begin += phase.seconds
            if moment < begin:
                return phase
        return self.phases[-1]

    def as_json(self) -> dict[str, Any]:
        """The timeline as JSON values."""
        return {
            "phases": [{"seconds": one.seconds, "detail": one.detail, "runs": one.runs} for one in self.phases],
            "told": [[moment, event.line()] for moment, event in self.told],
            "failure": None if self.failure is None else [self.failure[0].value, self.failure[1]],
            "report": None if self.report is None else self.report.to_json(),
            "last_words": self.last_words,
            "log": self.log,
            "facts": dict(self.facts),
            "billable_share": self.billable_share,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Timeline":
        """The timeline that `as_json` made."""
        failure, report = raw["failure"], raw["report"]
        return cls(
            phases=tuple(Phase(**phase) for phase in raw["phases"]),
            told=tuple((moment, Event.from_line(line)) for moment, line in raw["told"]),
            failure=None if failure is None else (FailureKind(failure[0]), failure[1]),
            report=None if report is None else JobReport.from_json(report),
            last_words=raw["last_words"],
            log=tuple(raw["log"]),
            facts=raw["facts"],
            billable_share=raw["billable_share"],
        )

    def changes(self) -> list[float]:
        """All moments at which something can be seen, in seconds since the creation."""
        ends, end = [], 0.0
        for phase in self.phases:
            end += phase.seconds
            ends.append(end)
        return sorted({*ends, *(moment for moment, _ in self.told)})
