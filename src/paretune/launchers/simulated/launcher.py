"""The simulated launcher. A job is one or two small files. Its state depends only on them and on the virtual time.

    HOME/simulated/clock                the virtual time (VirtualClock)
    HOME/simulated/jobs/NAME.json       the job document, the time of creation and the timeline; written once
    HOME/simulated/jobs/NAME.stop.json  the time of the first stop request; written once

So nothing is lost if a process is killed. Because the timeline is stored, existing jobs do not change if the table of
recorded runs is changed later.
"""

import json
import math
import os
import struct
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from paretune.core.errors import collecting, refuse
from paretune.core.file_lock import locked_file
from paretune.launchers import SIMULATED
from paretune.launchers.base import Job, JobSetup, JobStatus, Launcher, Surroundings
from paretune.launchers.deadlines import billed_after_limit_s
from paretune.launchers.simulated.timeline import STOP_SECONDS, TIMELINE, Timeline, TimelineFactory
from paretune.launchers.transitions import read_phases
from paretune.pricing import PriceList, price_region, usual_price
from paretune.specification.container import Event, JobDocument, JobInputs, write_json_once
from paretune.specification.ending import JobState
from paretune.specification.job import JobSpec
from paretune.specification.price import Price
from paretune.specification.rules import launch_faults

_SECONDS = struct.Struct("<d")
_ROUNDING_S = 1e-6  # rounding error of a time stamp: four times the resolution of a float at today's epoch seconds


class VirtualClock:
    """A `Clock` whose `sleep` returns at once, after moving the virtual time to the next change of a watched job.

    If the given seconds would end later than that, the time moves by these seconds instead. All processes share the
    time in the file simulated/clock of `home`. A new file starts at the machine's time.
    """

    def __init__(self, home: Path) -> None:
        self._path = home.resolve() / "simulated" / "clock"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._watched: weakref.WeakSet[SimulatedJob] = weakref.WeakSet()
        self._wake_at: set[float] = set()
        with locked_file(self._path):
            self._file = os.open(self._path, os.O_RDWR)
            if os.fstat(self._file).st_size < _SECONDS.size:
                os.write(self._file, _SECONDS.pack(time.time()))

    def now(self) -> float:
        return float(_SECONDS.unpack(os.pread(self._file, _SECONDS.size, 0))[0])

    def monotonic(self) -> float:
        return self.now()

    def watch(self, job: "SimulatedJob") -> None:
        """Make `sleep` also move to the changes of `job`. Only a weak reference to the job is kept."""
        self._watched.add(job)

    def wake_at(self, moment: float) -> None:
        """Make `sleep` treat `moment`, in virtual seconds since the epoch, like a change of a job."""
        self._wake_at.add(moment)

    def sleep(self, seconds: float) -> None:
        """Advance by `seconds`, or to the next change if that is later. Returns without waiting."""
        with locked_file(self._path):
            now = self.now()
            changes = [change for item in self._watched if (change := item.next_change(now)) is not None]
            self._wake_at = {moment for moment in self._wake_at if moment > now}
            following = min([*changes, *self._wake_at], default=now)
            os.pwrite(self._file, _SECONDS.pack(max(now + seconds, following)), 0)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)


class SimulatedJob(Job):
    """A simulated job, created at `created` (virtual seconds since the epoch).

    It follows `timeline` until it ends, is stopped or reaches its maximum runtime.
    """

    def __init__(
        self, document: JobDocument, created: float, stop_file: Path, clock: VirtualClock, timeline: Timeline
    ) -> None:
        self.name, self._document, self._created = document.job_name, document, created
        self._stop_file, self._clock = stop_file, clock
        self._timeline = timeline.limited(document.max_seconds)
        self._asked_to_stop, self._events_read = False, 0
        clock.watch(self)

    @property
    def run_id(self) -> str:
        return self._document.run_id

    def state(self) -> JobState:
        timeline = self._current_timeline
        if self._seconds < timeline.seconds:
            return JobState.STOPPING if self._asked_to_stop else JobState.RUNNING
        return timeline.ending.state

    def events(self) -> list[Event]:
        """Return the events since the last call. If the job has been stopped, the last event is `stopped`."""
        events = self._current_timeline.events
        due = [entry for entry in events if entry[0] <= self._seconds][self._events_read :]
        self._events_read += len(due)
        return [event.model_copy(update={"time": self._created + moment}) for moment, event in due]

    def stop(self) -> None:
        if not self.state().is_terminal:
            write_json_once(self._stop_file, {"time": self._clock.now()})

    def status(self) -> JobStatus:
        """Return state, results and virtual seconds. A job without instances has no phases."""
        state, timeline, until = self.state(), self._current_timeline, self._seconds
        transitions = [{"Status": name, "StartTime": begin} for name, begin, _ in timeline.spans if begin < until]
        phases = read_phases({"SecondaryStatusTransitions": transitions}, until)
        return JobStatus(
            ending=timeline.ending if state.is_terminal else None,
            seconds=until,
            billable_seconds=timeline.billable_seconds(until),
            phase_seconds=phases if self._document.spec.has_instances else {},
            report=timeline.report if state is JobState.COMPLETED else None,
            facts=timeline.facts,
            model="none: a simulated job trains nothing" if state is JobState.COMPLETED else "",
        )

    def detail(self) -> str:
        """Return SageMaker's secondary status; "" for a job without instances."""
        if not self._document.spec.has_instances:
            return ""
        state = self.state()
        return self._current_timeline.status_at(self._seconds) if state is JobState.RUNNING else state.value

    def log_tail(self, lines: int = 15) -> list[str]:
        return list(self._timeline.log[-lines:]) if self.state().is_terminal else []

    def log_location(self) -> str:
        return str(self._stop_file).replace(".stop.json", ".json")

    def next_change(self, after: float) -> float | None:
        """Return the time of the first change of state, detail or events after `after`, or None if there is none.

        Both times are in virtual seconds since the epoch.
        """
        timeline = self._current_timeline
        moments = [*(end for _, _, end in timeline.spans), *(moment for moment, _ in timeline.events)]
        changes = [self._created + moment for moment in moments if math.isfinite(moment)]
        return min((change for change in changes if change > after), default=None)

    @property
    def _seconds(self) -> float:
        """Virtual seconds from the creation to the end or to now, including the wait for instances."""
        return min(max(self._clock.now() - self._created + _ROUNDING_S, 0.0), self._current_timeline.seconds)

    @property
    def _current_timeline(self) -> Timeline:
        """The job's timeline, cut off by the first stop request that any process made."""
        if not self._asked_to_stop and self._stop_file.exists():
            self._asked_to_stop = True
            self._timeline = self._timeline.stopped(json.loads(self._stop_file.read_text())["time"] - self._created)
        return self._timeline


@dataclass(frozen=True, kw_only=True)
class SimulatedSetup(JobSetup):
    """The timeline of a job's first attempt."""

    timeline: Timeline


class SimulatedLauncher(Launcher):
    """Creates simulated jobs on `clock`, the virtual clock of the folder `home`.

    `environment` has the variables for prices, the default region and the Hugging Face Hub. `timeline_of` returns the
    timeline of a new job. It raises BadInput if the table of recorded runs does not cover the job, or if the job needs
    an estimate and cannot be estimated.
    """

    traits = SIMULATED
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

    @classmethod
    def open(cls, surroundings: Surroundings) -> "SimulatedLauncher":
        home = surroundings.home
        return cls(home, VirtualClock(home), surroundings.environment, TimelineFactory(surroundings.predict))

    def submit(self, document: JobDocument, inputs: JobInputs, setup: JobSetup | None = None) -> SimulatedJob:
        if (existing := self.attach(document.job_name)) is not None:
            return existing
        timeline = self._timeline(document, setup)  # may raise, so it comes before anything is created
        added = {"created": self._clock.now(), "timeline": TIMELINE.dump_python(timeline, mode="json")}
        write_json_once(self._path(document.job_name), document.as_json() | added)
        return self._read(document.job_name)  # because another process may have been faster

    def attach(self, job_name: str) -> SimulatedJob | None:
        return self._read(job_name) if self._path(job_name).exists() else None

    def price(self, spec: JobSpec) -> Price | None:
        return usual_price(spec, self._prices, self._environment)

    def region(self, spec: JobSpec) -> str:
        return price_region(spec, self._environment)

    def billed_after_limit_s(self, spec: JobSpec) -> float:
        """Return the same bound as the SageMaker launcher, or the seconds to stop for a job without instances."""
        return billed_after_limit_s(spec, self._environment) if spec.has_instances else STOP_SECONDS

    def check(self, spec: JobSpec) -> SimulatedSetup:
        """Return a setup with the job's timeline.

        Raises BadInput if the job cannot run, or if there is no timeline for one of its instance types.
        """
        faults, timelines = launch_faults(spec), list[Timeline]()
        for candidate in spec.clusters():
            with collecting(faults):
                timelines.append(self._timeline_of(JobDocument.first("paretune-check", candidate)))
        refuse(list(dict.fromkeys(faults)))
        return SimulatedSetup(spec=spec, timeline=timelines[0])

    def preview(self, document: JobDocument, inputs: JobInputs, setup: JobSetup | None = None) -> Mapping[str, Any]:
        report = self._timeline(document, setup).report
        return {"metrics": {} if report is None else dict(report.metrics)}

    def _timeline(self, document: JobDocument, setup: JobSetup | None) -> Timeline:
        return setup.timeline if isinstance(setup, SimulatedSetup) else self._timeline_of(document)

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList.read(self._environment)

    def _read(self, job_name: str) -> SimulatedJob:
        raw = json.loads(self._path(job_name).read_text())
        timeline = TIMELINE.validate_python(raw["timeline"])
        stop_file = self._jobs / f"{job_name}.stop.json"
        return SimulatedJob(JobDocument.from_json(raw), float(raw["created"]), stop_file, self._clock, timeline)

    def _path(self, job_name: str) -> Path:
        return self._jobs / f"{job_name}.json"
