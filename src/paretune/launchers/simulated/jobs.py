"""A simulated job, whose state depends only on its timeline and on the virtual time, and the clock of that time."""

import json
import math
import os
import struct
import time
import weakref
from pathlib import Path

from paretune.core.file_lock import locked_file
from paretune.launchers.base import Job, JobStatus
from paretune.launchers.simulated.timeline import Timeline
from paretune.launchers.transitions import read_phases
from paretune.specification.container import Event, write_json_once
from paretune.specification.ending import JobState
from paretune.specification.order import Order

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

    def __init__(self, order: Order, created: float, stop_file: Path, clock: VirtualClock, timeline: Timeline) -> None:
        self.name, self._order, self._created = order.job_name, order, created
        self._stop_file, self._clock = stop_file, clock
        self._timeline = timeline.limited(order.max_seconds)
        self._asked_to_stop, self._events_read, self._has_shown = False, 0, False
        clock.watch(self)

    @property
    def run_id(self) -> str:
        return self._order.run_id

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
            phase_seconds=phases if self._order.payload.instances else {},
            report=timeline.report if state is JobState.COMPLETED else None,
            facts=timeline.facts,
            model="none: a simulated job trains nothing" if state is JobState.COMPLETED else "",
        )

    def detail(self) -> str:
        """Return SageMaker's secondary status; "" for a job without instances."""
        if not self._order.payload.instances:
            return ""
        state = self.state()
        return self._current_timeline.status_at(self._seconds) if state is JobState.RUNNING else state.value

    def log_tail(self, lines: int = 15) -> list[str]:
        return list(self._timeline.log[-lines:]) if self.state().is_terminal else []

    def new_lines(self) -> list[str]:
        lines = [] if self._has_shown or not self.state().is_terminal else list(self._timeline.log)
        self._has_shown = self._has_shown or bool(lines)
        return lines

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
