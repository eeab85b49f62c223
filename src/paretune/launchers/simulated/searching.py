"""The timeline of a simulated job that searches, from the timelines of its trials and the queues that it was sent."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paretune.launchers.simulated.timeline import TRAINING, UPLOADING, Phase, Timeline, before_training
from paretune.specification.container import Event, JobDocument, JobReport, MemberEnd, TrialQueue

IDLE_S = 10.0
"""Seconds after which a job that has nothing to train sees a new queue: it looks for one every ten seconds in S3."""


_ROUNDING_S = 1e-3  # of times since the epoch


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
        following = next(((key, steps) for key, steps in queue.order if _can_train(trials, key, steps)), None)
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


def _can_train(trials: Mapping[str, _Trial], key: str, steps: int) -> bool:
    return key in trials and trials[key].can_train(steps)
