"""Phases, events and result of one simulated job, in virtual seconds since it was created."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from paretune.specification.container import Event, FailureKind, JobReport

TRAINING = "Training"  # SageMaker's secondary status while the container runs
UPLOADING = "Uploading"  # SageMaker's secondary status of packing and upload, the last phase of a job


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One part of a job's duration; `detail` is SageMaker's secondary status, such as Downloading.

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
    `facts`: recorded as tags of the run.
    """

    phases: tuple[Phase, ...]
    events: tuple[tuple[float, Event], ...] = ()
    failure: tuple[FailureKind, str] | None = None
    report: JobReport | None = None
    log: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds from the creation to the end."""
        return sum(phase.seconds for phase in self.phases)

    def running_seconds(self, until: float) -> float:
        """Seconds in which instances were running, up to `until` seconds after the creation."""
        begins = itertools.accumulate((phase.seconds for phase in self.phases[:-1]), initial=0.0)
        running = [(phase, begin) for phase, begin in zip(self.phases, begins, strict=True) if phase.runs]
        return sum(min(max(until - begin, 0.0), phase.seconds) for phase, begin in running)

    def reaches(self, running_seconds: float) -> float:
        """Seconds since the creation at which instances have run for `running_seconds`; infinite if they never do.

        An upload does not count, as in SageMaker's MaxRuntimeInSeconds.
        """
        begin = 0.0
        for phase in self.phases:
            if phase.runs and phase.detail != UPLOADING:
                if running_seconds < phase.seconds:
                    return begin + running_seconds
                running_seconds -= phase.seconds
            begin += phase.seconds
        return math.inf

    def phase_at(self, moment: float) -> Phase:
        """The phase at `moment` seconds after the creation."""
        ends = itertools.accumulate(phase.seconds for phase in self.phases)
        return next((phase for phase, end in zip(self.phases, ends, strict=True) if moment < end), self.phases[-1])

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        values: dict[str, Any] = _JSON.dump_python(self, mode="json")
        return values

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> "Timeline":
        """The inverse of `as_json`."""
        return _JSON.validate_python(raw)

    def changes(self) -> list[float]:
        """Seconds since the creation at which state, detail or events change, ascending."""
        ends = itertools.accumulate(phase.seconds for phase in self.phases)
        return sorted({*ends, *(moment for moment, _ in self.events)})


_JSON = TypeAdapter(Timeline)
