"""The simulated launcher: a job is what was ordered, when, and when it was asked to stop; all else follows.

    HOME/simulated/clock                the virtual time (virtual_clock)
    HOME/simulated/jobs/NAME.json       the job document, the time of its creation and its timeline; written once
    HOME/simulated/jobs/NAME.stop.json  when somebody first asked it to stop; written once

So a process that dies loses nothing, and the next one sees the same job: what happens to it is a pure function of
these files and the time, whatever became of the table it is replayed from, or is known by now of runs like it.
"""

import bisect
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput
from paretune.launchers.base import Job, JobState, Launcher
from paretune.launchers.simulated.timeline import Timeline
from paretune.launchers.simulated.virtual_clock import VirtualClock
from paretune.pricing.prices import Price, PriceList, usual_price
from paretune.spec.container import Event, FailureKind, JobDocument, JobInputs, JobReport
from paretune.spec.job import JobSpec

STOP_SECONDS = 5.0
"""Virtual seconds a job takes to write its checkpoint and end, after it was asked to stop."""
_ROUNDING_S = 1e-6  # a time stamp of today is exact to a quarter of that


class SimulatedJob(Job):
    """A job that nobody runs.

    Args:
        document: what was ordered.
        created: when, in virtual seconds since the epoch.
        stop_mark: the file that says when it was asked to stop.
        clock: the virtual clock.
        timeline: what happens to it if nobody stops it.
    """

    def __init__(
        self, document: JobDocument, created: float, stop_mark: Path, clock: VirtualClock, timeline: Timeline
    ) -> None:
        self.name = document.job_name
        self._document = document
        self._created = created
        self._stop_mark = stop_mark
        self._clock = clock
        self._timeline = timeline
        self._changes = [created + moment for moment in timeline.changes()]
        self._read = 0
        self._asked: float | None = None  # when it was asked to stop; never changes once it is known
        clock.watch(self)

    def state(self) -> JobState:
        """The state at this virtual moment."""
        stop, end, _ = self._course()
        if self._elapsed < end:
            return JobState.STOPPING if self._elapsed >= stop else JobState.RUNNING
        if end < self._timeline.seconds:
            return JobState.STOPPED
        return JobState.COMPLETED if self._timeline.failure is None else JobState.FAILED

    def events(self) -> list[Event]:
        """What has been told since the last time; its last words too, once it has been stopped."""
        stop, end, _ = self._course()
        until = min(self._elapsed, stop if end < self._timeline.seconds else end)
        told = []
        while self._read < len(self._timeline.told):
            moment, event = self._timeline.told[self._read]
            if moment > until:
                break
            told.append(replace(event, time=self._created + moment))
            self._read += 1
        if self._read <= len(self._timeline.told) and self.state() is JobState.STOPPED:
            step = max((event.step for moment, event in self._timeline.told if moment <= stop), default=0)
            told.append(Event(time=self._created + end, step=step, message=self._timeline.last_words))
            self._read = len(self._timeline.told) + 1
        return told

    def stop(self) -> None:
        """Ask it to stop, at this virtual moment."""
        if not self.state().is_terminal:
            _write_once(self._stop_mark, {"time": self._clock.now()})

    def report(self) -> JobReport | None:
        """What came out."""
        return self._timeline.report if self.state() is JobState.COMPLETED else None

    def failure(self) -> tuple[FailureKind, str] | None:
        """Why it failed, or which limit it reached."""
        state = self.state()
        if state is JobState.STOPPED:
            reason = self._course()[2]
            return (FailureKind.ERROR, reason) if reason else None
        return self._timeline.failure if state is JobState.FAILED else None

    def seconds(self) -> float:
        """Virtual seconds from its creation to its end, or to now; waiting for instances included."""
        return min(max(self._clock.now() - self._created, 0.0), self._course()[1])

    def billable_seconds(self) -> float:
        """Virtual seconds in which instances were there, as they are billed."""
        return self._timeline.running_seconds(self.seconds()) * self._timeline.billable_share

    def detail(self) -> str:
        """What SageMaker would call it; nothing for a job on this machine."""
        if not self._document.spec.has_instances:
            return ""
        state = self.state()
        return self._timeline.phase_at(self.seconds()).detail if state is JobState.RUNNING else state.value

    def facts(self) -> dict[str, str]:
        """Where its figures come from."""
        return dict(self._timeline.facts)

    def log_tail(self, lines: int = 15) -> list[str]:
        """The last lines that it would have printed."""
        return list(self._timeline.log[-lines:]) if self.state().is_terminal else []

    def log_location(self) -> str:
        """The file that says what was ordered."""
        return str(self._stop_mark).replace(".stop.json", ".json")

    def model_location(self) -> str:
        """That there is none."""
        return "none: a simulated job trains nothing"

    def next_change(self, after: float) -> float | None:
        """When something about it can next be seen, in virtual seconds since the epoch; None once it has ended."""
        stop, end = (self._created + moment for moment in self._course()[:2])
        if end <= after:
            return None
        place = bisect.bisect_right(self._changes, after)
        own = self._changes[place] if place < len(self._changes) else math.inf
        found = min(moment for moment in (own, stop, end) if moment > after)
        return found if math.isfinite(found) else None

    @property
    def _elapsed(self) -> float:
        """Virtual seconds since its creation; what differs by the rounding of a time stamp counts as reached."""
        return self._clock.now() - self._created + _ROUNDING_S

    def _course(self) -> tuple[float, float, str]:
        """When it is asked to stop (infinite: never), when it ends, and which limit stopped it.

        Virtual seconds since its creation. A stop that comes too late changes nothing.
        """
        stop, reason = self._limit
        if self._asked is None and self._stop_mark.exists():
            self._asked = float(json.loads(self._stop_mark.read_text())["time"]) - self._created
        if self._asked is not None and self._asked < stop:
            stop, reason = self._asked, ""
        runs = math.isfinite(stop) and self._timeline.phase_at(stop).runs
        end = stop + (STOP_SECONDS if runs else 0.0)
        return (stop, end, reason) if end < self._timeline.seconds else (stop, self._timeline.seconds, "")

    @cached_property
    def _limit(self) -> tuple[float, str]:
        """When its maximum runtime, or its maximum wait, is over: virtual seconds since its creation."""
        spec, longest = self._document.spec, self._document.max_seconds
        sentence = f"MaxRuntimeExceeded: it ran longer than {longest / 60:g} minutes"
        limits = [(self._timeline.reaches(longest), sentence)]
        if spec.spot:
            minutes = spec.max_wait_minutes or spec.max_runtime_minutes + 60
            limits.append((minutes * 60, "MaxWaitTimeExceeded: spot capacity did not come within max_wait_minutes"))
        return min(limits)


class SimulatedLauncher(Launcher):
    """Plays jobs on a virtual clock.

    Args:
        home: folder for the jobs' files.
        clock: the virtual clock of `home`; see `clock_path`.
        environment: PARETUNE_PRICES, AWS_REGION and AWS_DEFAULT_REGION are read from it.
        timeline_of: what happens to a job that is about to be created; raises BadInput where it cannot say.
    """

    name = "simulated"
    origin = "simulated"
    grace_s = STOP_SECONDS
    reads_inputs = False

    def __init__(
        self,
        home: Path,
        clock: VirtualClock,
        environment: Mapping[str, str],
        timeline_of: Callable[[JobDocument], Timeline],
    ) -> None:
        self._jobs = home.resolve() / "simulated" / "jobs"
        self._clock = clock
        self._environment = environment
        self._timeline_of = timeline_of

    def submit(self, document: JobDocument, inputs: JobInputs) -> SimulatedJob:
        """Create the job at this virtual moment, or adopt the one that has this name."""
        known = self.attach(document.job_name)
        if known is not None:
            return known
        timeline = self._timeline_of(document)  # may raise: then nothing was created
        created = self._clock.now()
        raw = {**document.as_json(), "created": created, "timeline": timeline.as_json()}
        if not _write_once(self._path(document.job_name), raw):
            return self._read(document.job_name)  # another process was faster
        return self._job(document, created, timeline)

    def attach(self, job_name: str) -> SimulatedJob | None:
        """The job of that name, running or ended."""
        return self._read(job_name) if self._path(job_name).exists() else None

    def price(self, spec: JobSpec) -> Price | None:
        """What the instance would cost on SageMaker; the notional price of a local one."""
        return usual_price(spec, self._prices, self._environment)

    def check(self, spec: JobSpec) -> None:
        """Whether the job can be answered at all, on each of its instance types."""
        faults: list[str] = []
        for place in (spec, *(spec.on_instance_type(instance_type) for instance_type in spec.instance_types()[1:])):
            try:
                self._timeline_of(JobDocument(job_name="paretune-check", spec=place, plan=place.plan()))
            except BadInput as error:
                faults += error.faults
        if faults:
            raise BadInput(list(dict.fromkeys(faults)))

    def preview(self, document: JobDocument, inputs: JobInputs) -> Mapping[str, Any]:
        """What the job will be said to take and reach."""
        timeline = self._timeline_of(document)
        return {
            "origin": self.origin,
            "billable_seconds": timeline.running_seconds(math.inf) * timeline.billable_share,
            "ends": "Completed" if timeline.failure is None else timeline.failure[1],
            "metrics": dict(timeline.report.metrics) if timeline.report is not None else {},
            **timeline.facts,
        }

    def wake_at(self, moment: float) -> None:
        """The virtual clock stops there too."""
        self._clock.wake_at(moment)

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)

    def _read(self, job_name: str) -> SimulatedJob:
        path = self._path(job_name)
        raw = json.loads(path.read_text())
        return self._job(JobDocument.read(path), float(raw["created"]), Timeline.from_json(raw["timeline"]))

    def _path(self, job_name: str) -> Path:
        return self._jobs / f"{job_name}.json"

    def _job(self, document: JobDocument, created: float, timeline: Timeline) -> SimulatedJob:
        mark = self._jobs / f"{document.job_name}.stop.json"
        return SimulatedJob(document, created, mark, self._clock, timeline)


def clock_path(home: Path) -> Path:
    """Where the virtual time of `home` is kept."""
    return home.resolve() / "simulated" / "clock"


def _write_once(path: Path, value: Mapping[str, Any]) -> bool:
    """Write `value` as JSON unless the file is there; whether it was written. No reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value))
    try:
        os.link(draft, path)  # fails if it is there: the first one stands
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True
