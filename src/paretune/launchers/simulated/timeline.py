"""Phases, events and result of one simulated job, in virtual seconds since it was created."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paretune.spec.container import Event, FailureKind, JobReport


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One part of a job's duration; `detail` is SageMaker's secondary status, such as Downloading or Interrupted.

    A phase that `runs`, in which instances are running, is billed and counts towards the maximum runtime.
    """

    seconds: float
    detail: str
    runs: bool = True


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The course of a job that is not stopped.

    `events`: seconds since the creation and the event written then, ascending; the event's own `time` is not used.
    `failure`: at the end of the last phase; None when the job completes and has a `report`.
    `facts`: recorded as tags of the run. `billable_share`: of the running seconds.
    """

    phases: tuple[Phase, ...]
    events: tuple[tuple[float, Event], ...] = ()
    failure: tuple[FailureKind, str] | None = None
    report: JobReport | None = None
    log: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    billable_share: float = 1.0

    @property
    def seconds(self) -> float:
        """Seconds from the creation to the end."""
        return sum(phase.seconds for phase in self.phases)

    def running_seconds(self, until: float) -> float:
        """Seconds in which instances were running, up to `until` seconds after the creation."""
        begins = itertools.accumulate((phase.seconds for phase in self.phases[:-1]), initial=0.0)
        begun = [(phase, begin) for phase, begin in zip(self.phases, begins, strict=True) if phase.runs]
        return sum(min(max(until - begin, 0.0), phase.seconds) for phase, begin in begun)

    def reaches(self, running_seconds: float) -> float:
        """Seconds since the creation at which instances have run for `running_seconds`; infinite if they never do."""
        begin = 0.0
        for phase in self.phases:
            if phase.runs and running_seconds < phase.seconds:
                return begin + running_seconds
            running_seconds -= phase.seconds if phase.runs else 0.0
            begin += phase.seconds
        return math.inf

    def phase_at(self, moment: float) -> Phase:
        """The phase at `moment` seconds after the creation."""
        ends = itertools.accumulate(phase.seconds for phase in self.phases)
        return next((phase for phase, end in zip(self.phases, ends, strict=True) if moment < end), self.phases[-1])

    def as_json(self) -> dict[str, Any]:
        """JSON values; the events are under `told`, the name in files of earlier versions."""
        return {
            "phases": [{"seconds": one.seconds, "detail": one.detail, "runs": one.runs} for one in self.phases],
            "told": [[moment, event.line()] for moment, event in self.events],
            "failure": None if self.failure is None else [self.failure[0].value, self.failure[1]],
            "report": None if self.report is None else self.report.to_json(),
            "log": self.log,
            "facts": dict(self.facts),
            "billable_share": self.billable_share,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Timeline":
        """The inverse of `as_json`."""
        failure, report = raw["failure"], raw["report"]
        return cls(
            phases=tuple(Phase(**phase) for phase in raw["phases"]),
            events=tuple((moment, Event.from_line(line)) for moment, line in raw["told"]),
            failure=None if failure is None else (FailureKind(failure[0]), failure[1]),
            report=None if report is None else JobReport.from_json(report),
            log=tuple(raw["log"]),
            facts=raw["facts"],
            billable_share=raw["billable_share"],
        )

    def changes(self) -> list[float]:
        """Seconds since the creation at which state, detail or events change, ascending."""
        ends = itertools.accumulate(phase.seconds for phase in self.phases)
        return sorted({*ends, *(moment for moment, _ in self.events)})
