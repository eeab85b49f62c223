"""Phases, events and result of one simulated job, in virtual seconds since it was created."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paretune.specification.container import Event, FailureKind, JobDocument, JobReport, MemberEnd, TrialQueue

TRAINING = "Training"  # SageMaker's secondary status of a phase in which the training makes progress
_OF_A_PHASE = "seconds", "detail", "runs", "prepares"
UPLOADING = "Uploading"  # SageMaker's secondary status of packing and upload, the last phase of a job
IDLE_S = 10.0
"""Seconds after which a job that has nothing to train sees a new queue: it looks for one every ten seconds in S3."""
_ROUNDING_S = 1e-3  # of times since the epoch


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One part of a job's duration; `detail` is SageMaker's secondary status, such as Downloading or Interrupted.

    A phase that `runs`, in which instances are running, is billed and counts towards the maximum runtime. In one that
    `prepares` the container starts; trials of a shared job share it, as they share the download.
    """

    seconds: float
    detail: str
    runs: bool = True
    prepares: bool = False

    @property
    def makes_progress(self) -> bool:
        """Whether the training makes progress in it."""
        return self.detail == TRAINING and not self.prepares


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

    def trained_seconds(self, until: float) -> float:
        """Seconds in which the training has made progress, up to `until` seconds after the creation."""
        begins = itertools.accumulate((phase.seconds for phase in self.phases), initial=0.0)
        pairs = zip(self.phases, begins, strict=False)
        return sum(min(max(until - begin, 0.0), phase.seconds) for phase, begin in pairs if phase.makes_progress)

    def resumed(self, done: float) -> "Timeline":
        """The same from a checkpoint: without the first `done` seconds of its progress, and what is written in them."""
        phases: list[Phase] = []
        gaps: list[tuple[float, float]] = []  # begin and seconds of what is left out
        begin = 0.0
        for phase in self.phases:
            left_out = min(done, phase.seconds) if phase.makes_progress else 0.0
            done -= left_out
            gaps += [(begin, left_out)] if left_out else []
            phases.append(replace(phase, seconds=phase.seconds - left_out))
            begin += phase.seconds
        events = tuple(
            (moment - sum(gap for start, gap in gaps if start + gap <= moment), event)
            for moment, event in self.events
            if not any(start < moment < start + gap for start, gap in gaps)
        )
        return replace(self, phases=tuple(phases), events=events) if gaps else self

    def phase_at(self, moment: float) -> Phase:
        """The phase at `moment` seconds after the creation."""
        ends = itertools.accumulate(phase.seconds for phase in self.phases)
        return next((phase for phase, end in zip(self.phases, ends, strict=True) if moment < end), self.phases[-1])

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "phases": [{name: getattr(phase, name) for name in _OF_A_PHASE} for phase in self.phases],
            "events": [[moment, event.line()] for moment, event in self.events],
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
            events=tuple((moment, Event.from_line(line)) for moment, line in raw["events"]),
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


def in_one_job(document: JobDocument, timelines: Sequence[Timeline]) -> Timeline:
    """The timeline of a shared job, from the timelines that its trials would have as jobs of their own.

    The trials follow each other and share the start-up of the first. A trial that fails does not end the job.
    """
    phases: list[Phase] = []
    events: list[tuple[float, Event]] = []
    for number, (member, timeline) in enumerate(zip(document.members, timelines, strict=True), start=1):
        left_out = before_training(timeline.phases) if phases else 0
        begin = sum(phase.seconds for phase in phases) - sum(phase.seconds for phase in timeline.phases[:left_out])
        phases += timeline.phases[left_out:]
        startup = begin + sum(phase.seconds for phase in timeline.phases[: before_training(timeline.phases)])
        message = f"trial {number} of {len(timelines)} of {document.job_name}"
        events.append((startup, Event(time=0.0, step=0, member=member.member, message=message)))
        for moment, event in timeline.events:
            events.append((max(startup, begin + moment), replace(event, member=member.member)))
        end = sum(phase.seconds for phase in phases)
        member_end = MemberEnd(seconds=max(0.0, end - startup), report=timeline.report, failure=timeline.failure)
        events.append((end, Event(time=0.0, step=0, member=member.member, ended=member_end.as_json())))
    first = timelines[0]
    return Timeline(
        phases=tuple(phases),
        events=tuple(events),
        report=JobReport(metrics={}, facts={"simulated": True, "trials": len(timelines)}),
        log=tuple(line for timeline in timelines for line in timeline.log),
        facts=first.facts,
        billable_share=first.billable_share,
    )


def before_training(phases: Sequence[Phase]) -> int:
    """The number of phases before the first in which the training makes progress."""
    trains = (at for at, phase in enumerate(phases) if phase.makes_progress)
    return next(trains, len(phases))


@dataclass
class _Trial:
    """One trial of the job; `training_s` is without start-up, upload and interruptions, which are not simulated."""

    key: str
    timeline: Timeline
    steps: int = 0
    used_s: float = 0.0
    has_ended: bool = False
    training_s: float = field(init=False)
    total_steps: int = field(init=False)
    is_written: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        phases = self.timeline.phases[before_training(self.timeline.phases) :]
        self.training_s = sum(phase.seconds for phase in phases if phase.detail == TRAINING)
        totals = [event.total_steps for _, event in self.timeline.events if event.total_steps]
        self.total_steps = max(totals, default=1)

    def can_train(self, steps: int) -> bool:
        return not self.has_ended and self.steps < min(steps, self.total_steps)

    def train(self, steps: int, begin: float) -> Iterator[tuple[float, Event]]:
        """Seconds and events of a rung that begins at second `begin`; one that fails does so in its first rung."""
        if self.steps == 0:
            yield begin, Event(time=0.0, step=0, message="the trial begins")
        failure = self.timeline.failure
        until = self.total_steps if failure is not None else min(steps, self.total_steps)
        step_s = self.training_s / self.total_steps
        for _, event in self.timeline.events:
            if self.steps < event.step <= until:
                yield begin + (event.step - self.steps) * step_s, event
        end = begin + (until - self.steps) * step_s
        self.used_s, self.steps = self.used_s + end - begin, until
        self.has_ended = until == self.total_steps
        paused = Event(time=0.0, step=until, total_steps=self.total_steps, paused=self.used_s)
        yield end, self.end() if self.has_ended else paused

    def end(self) -> Event:
        is_complete = self.steps == self.total_steps
        report, failure = (self.timeline.report, self.timeline.failure) if is_complete else (None, None)
        end = MemberEnd(seconds=self.used_s, report=report, failure=failure)
        self.has_ended = True
        return Event(time=0.0, step=0, ended=end.as_json())


def in_searching_job(
    document: JobDocument, timelines: Mapping[str, Timeline], sent: Sequence[tuple[float, TrialQueue]]
) -> Timeline:
    """The timeline of a job that searches, as far as its queues say; it waits without an end for a newer one.

    Args:
        document: of the whole job.
        timelines: of the trials as jobs of their own, by key.
        sent: seconds since the creation at which each queue was sent, and the queue. After a rung the job sees the
            queues that were sent before the rung ended.
    """
    first = next(iter(timelines.values()))
    before = first.phases[: before_training(first.phases)]
    startup = now = sum(phase.seconds for phase in before)
    assert document.queue is not None  # it searches
    queues = [(-math.inf, document.queue), *sent]
    trials = {key: _Trial(key, timeline) for key, timeline in timelines.items()}
    events: list[tuple[float, Event]] = []
    while True:
        queue = [queue for moment, queue in queues if moment < now - _ROUNDING_S][-1]
        for key in queue.given_up:
            if key in trials and not trials[key].has_ended:
                events.append((now, replace(trials[key].end(), member=key)))
        turns = ((key, steps) for key, steps in queue.order if key in trials and trials[key].can_train(steps))
        following = next(turns, None)
        later = [moment for moment, _ in sent if moment >= now - _ROUNDING_S]
        if following is not None:
            key, steps = following
            events += [(moment, replace(event, member=key)) for moment, event in trials[key].train(steps, now)]
            now = events[-1][0]
        elif queue.is_complete or not later:
            break
        else:
            now = later[0] + IDLE_S
    if not queue.is_complete:
        phases = (*before, Phase(seconds=math.inf, detail=TRAINING))
        return replace(first, phases=phases, events=tuple(events), failure=None, report=None)
    events += [(now, replace(trial.end(), member=key)) for key, trial in trials.items() if not trial.has_ended]
    models = [trial for trial in trials.values() if trial.steps == trial.total_steps]
    upload = sum(phase.seconds for trial in models for phase in trial.timeline.phases if phase.detail == UPLOADING)
    phases = (*before, Phase(seconds=now - startup, detail=TRAINING), Phase(seconds=upload, detail=UPLOADING))
    return replace(
        first,
        phases=tuple(phase for phase in phases if phase.seconds > 0),
        events=tuple(events),
        failure=None,
        report=JobReport(metrics={}, facts={"simulated": True, "trials": len(trials)}),
    )
