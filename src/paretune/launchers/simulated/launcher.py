"""The simulated launcher. A job is two small files; its state is a pure function of them and the virtual time.

    HOME/simulated/clock                the virtual time (virtual_clock)
    HOME/simulated/jobs/NAME.json       the job document, the time of its creation and its timeline; written once
    HOME/simulated/jobs/NAME.stop.json  the time of the first stop request; written once

Thus nothing is lost when a process is killed, and a later change of the table of recorded runs changes no existing job.
"""

import bisect
import itertools
import json
import math
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, collecting
from paretune.estimating.uploading import billed_after_limit_s
from paretune.launchers.base import Job, JobState, Launcher
from paretune.launchers.simulated.timeline import Timeline
from paretune.launchers.simulated.virtual_clock import VirtualClock
from paretune.pricing.prices import Price, PriceList, usual_price
from paretune.specification.container import (
    Event,
    FailureKind,
    JobDocument,
    JobInputs,
    JobReport,
    write_json_once,
)
from paretune.specification.job import JobSpec
from paretune.specification.job_phases import read_phases
from paretune.specification.rules import launch_faults

STOP_SECONDS = 5.0
"""Virtual seconds from a stop request to the end of the job; a real job writes a checkpoint in this time."""
_ROUNDING_S = 1e-6  # four times the resolution of a present time stamp


class SimulatedJob(Job):
    """A simulated job, `created` in virtual seconds since the epoch; it follows `timeline` unless it is stopped."""

    def __init__(
        self, document: JobDocument, created: float, stop_file: Path, clock: VirtualClock, timeline: Timeline
    ) -> None:
        self.name = document.job_name
        self._document = document
        self._created = created
        self._stop_file = stop_file
        self._clock = clock
        self._timeline = timeline
        self._events_read = 0
        self._stop_requested: float | None = None  # virtual seconds since the creation; cached once known
        clock.watch(self)

    @cached_property
    def _changes(self) -> list[float]:
        """Virtual seconds since the epoch at which state, detail or events change."""
        timeline = self._timeline
        moments = {*(end for _, end, _ in timeline.spans), *(moment for moment, _ in timeline.events)}
        return sorted(self._created + moment for moment in moments)

    def state(self) -> JobState:
        """The state at the virtual time."""
        stop, end, _ = self._end()
        if self._elapsed < end:
            return JobState.STOPPING if self._elapsed >= stop else JobState.RUNNING
        if end < self._timeline.seconds:
            return JobState.STOPPED
        return JobState.COMPLETED if self._timeline.failure is None else JobState.FAILED

    def events(self) -> list[Event]:
        """Events since the last call; once the job has been stopped, an event that says so."""
        stop, end, _ = self._end()
        until = min(self._elapsed, stop if end < self._timeline.seconds else end)
        events = self._timeline.events
        due = itertools.takewhile(lambda entry: entry[0] <= until, events[self._events_read :])
        new = [event.model_copy(update={"time": self._created + moment}) for moment, event in due]
        self._events_read += len(new)
        if self._events_read <= len(events) and self.state() is JobState.STOPPED:
            step = max((event.step for moment, event in events if moment <= stop), default=0)
            new.append(Event(time=self._created + end, step=step, message="stopped"))
            self._events_read = len(events) + 1
        return new

    def stop(self) -> None:
        """Request a stop at the virtual time."""
        if not self.state().is_terminal:
            write_json_once(self._stop_file, {"time": self._clock.now()})

    def report(self) -> JobReport | None:
        """The report of the timeline; None unless the job has completed."""
        return self._timeline.report if self.state() is JobState.COMPLETED else None

    def failure(self) -> tuple[FailureKind, str] | None:
        """Kind and reason of the failure, or the limit that stopped the job."""
        state = self.state()
        if state is JobState.STOPPED and (reason := self._end()[2]):
            return FailureKind.ERROR, reason
        return self._timeline.failure if state is JobState.FAILED else None

    def seconds(self) -> float:
        """Virtual seconds from the creation to the end, or to now, with the wait for instances."""
        return min(max(self._clock.now() - self._created, 0.0), self._end()[1])

    def billable_seconds(self) -> float:
        """Virtual seconds in which instances were running."""
        return self._timeline.running_seconds(self.seconds())

    def phase_seconds(self) -> Mapping[str, float]:
        """The phases of the timeline so far, by its secondary statuses; empty for a job without instances."""
        if not self._document.spec.has_instances:
            return {}
        until = self.seconds()
        begun = [(begin, phase) for begin, _, phase in self._timeline.spans if begin < until]
        transitions = [{"Status": phase.detail, "StartTime": begin} for begin, phase in begun]
        return read_phases({"SecondaryStatusTransitions": transitions}, until).seconds

    def detail(self) -> str:
        """SageMaker's secondary status; "" for a job without instances."""
        if not self._document.spec.has_instances:
            return ""
        state = self.state()
        return self._timeline.phase_at(self.seconds()).detail if state is JobState.RUNNING else state.value

    def facts(self) -> dict[str, str]:
        """`basis`: the recorded runs or the estimate behind its figures."""
        return dict(self._timeline.facts)

    def log_tail(self, lines: int = 15) -> list[str]:
        """The last lines of the simulated log; empty before the end."""
        return list(self._timeline.log[-lines:]) if self.state().is_terminal else []

    def log_location(self) -> str:
        """Path of the job document."""
        return str(self._stop_file).replace(".stop.json", ".json")

    def model_location(self) -> str:
        """A sentence saying that there is no model."""
        return "none: a simulated job trains nothing"

    def next_change(self, after: float) -> float | None:
        """The next change of state, detail or events, in virtual seconds since the epoch; None once it has ended."""
        stop, end = (self._created + moment for moment in self._end()[:2])
        if end <= after:
            return None
        following = self._changes[bisect.bisect_right(self._changes, after) :][:1]
        change = min(moment for moment in (*following, stop, end) if moment > after)
        return change if math.isfinite(change) else None

    @property
    def _elapsed(self) -> float:
        """Virtual seconds since the creation, plus the rounding error of a time stamp."""
        return self._clock.now() - self._created + _ROUNDING_S

    def _end(self) -> tuple[float, float, str]:
        """Time of the stop request (infinite if none), time of the end, and the limit that stopped the job.

        Times are virtual seconds since the creation. A request less than STOP_SECONDS before the end has no effect.
        """
        longest = self._document.max_seconds
        stop = self._timeline.reaches(longest)
        reason = f"MaxRuntimeExceeded: it ran longer than {longest / 60:g} minutes"
        if self._stop_requested is None and self._stop_file.exists():
            self._stop_requested = float(json.loads(self._stop_file.read_text())["time"]) - self._created
        if self._stop_requested is not None and self._stop_requested < stop:
            stop, reason = self._stop_requested, ""
        runs = math.isfinite(stop) and self._timeline.phase_at(stop).runs
        end = stop + (STOP_SECONDS if runs else 0.0)
        return (stop, end, reason) if end < self._timeline.seconds else (stop, self._timeline.seconds, "")


class SimulatedLauncher(Launcher):
    """Creates jobs on `clock`, the virtual clock of the folder `home`; their origin is `simulated`.

    PARETUNE_PRICES, AWS_REGION and AWS_DEFAULT_REGION are read from `environment`. `timeline_of` makes the timeline of
    a new job and raises BadInput if it cannot.
    """

    name = "simulated"
    origin = "simulated"
    jobs_may_appear_late = False
    reads_inputs = False

    def __init__(
        self,
        home: Path,
        clock: VirtualClock,
        environment: Mapping[str, str],
        timeline_of: Callable[[JobDocument], Timeline],
    ) -> None:
        self._jobs = home.resolve() / "simulated" / "jobs"
        self._clock = self.virtual_clock = clock
        self._environment = environment
        self._timeline_of = timeline_of

    def submit(self, document: JobDocument, inputs: JobInputs) -> SimulatedJob:
        """Create the job at the virtual time, or adopt the existing one with its name."""
        existing = self.attach(document.job_name)
        if existing is not None:
            return existing
        timeline = self._timeline_of(document)  # may raise: then nothing was created
        created = self._clock.now()
        raw = {**document.as_json(), "created": created, "timeline": timeline.as_json()}
        if not write_json_once(self._path(document.job_name), raw):
            return self._read(document.job_name)  # created by another process meanwhile
        return self._job(document, created, timeline)

    def attach(self, job_name: str) -> SimulatedJob | None:
        """The job with this name, running or ended."""
        return self._read(job_name) if self._path(job_name).exists() else None

    def price(self, spec: JobSpec) -> Price | None:
        """The SageMaker price of the instance type; the notional price of a local instance."""
        return usual_price(spec, self._prices, self._environment)

    def billed_after_limit_s(self, spec: JobSpec) -> float:
        """As on SageMaker for a job on its instances; else the seconds to stop."""
        return billed_after_limit_s(spec, self._environment) if spec.has_instances else STOP_SECONDS

    def check(self, spec: JobSpec) -> None:
        """Raise `BadInput` if the job could not run, or has no timeline on one of its instance types."""
        faults = launch_faults(spec)
        for candidate in spec.clusters():
            with collecting(faults):
                self._timeline_of(JobDocument(job_name="paretune-check", spec=candidate, plan=candidate.plan()))
        if faults:
            raise BadInput(list(dict.fromkeys(faults)))

    def preview(self, document: JobDocument, inputs: JobInputs) -> Mapping[str, Any]:
        """Billable seconds, end state and metrics that the job will have."""
        timeline = self._timeline_of(document)
        return {
            "origin": self.origin,
            "billable_seconds": timeline.running_seconds(math.inf),
            "ends": "Completed" if timeline.failure is None else timeline.failure[1],
            "metrics": dict(timeline.report.metrics) if timeline.report is not None else {},
            **timeline.facts,
        }

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)

    def _read(self, job_name: str) -> SimulatedJob:
        raw = json.loads(self._path(job_name).read_text())
        return self._job(JobDocument.from_json(raw), float(raw["created"]), Timeline.from_json(raw["timeline"]))

    def _path(self, job_name: str) -> Path:
        return self._jobs / f"{job_name}.json"

    def _job(self, document: JobDocument, created: float, timeline: Timeline) -> SimulatedJob:
        return SimulatedJob(document, created, self._jobs / f"{document.job_name}.stop.json", self._clock, timeline)
