"""The trials of a shared job, one after the other or in groups side by side, each with its own end."""

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from paretune.specification.container import Event, FailureKind, JobDocument, JobFolder, JobReport, MemberEnd
from paretune.specification.metrics import TRAIN_SECONDS
from paretune.training.shared.ends import keep_end, kept_end
from paretune.training.shared.isolation import restored_settings
from paretune.training.shared.relay import relay_stop_requests
from paretune.training.shared.stops import ALL, ASKED, TOO_LONG, Clock, MemberStop, StopRequest

Train = Callable[[JobDocument, JobFolder, StopRequest], bool]
"""Trains one trial in its folder: True when it finished, False when it was stopped."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """What the trials of a job are given by the process that they share.

    Attributes:
        train: trains one trial.
        side_by_side: trains several trials side by side until each has ended or the job is stopped.
        groups: the trials in their order, those that can be trained side by side in one group.
        classify: kind and sentence of a failure.
        tell: writes an event.
        agree: the same reason to stop in all processes, of those that each has found.
        clear: frees what a trial has left.
        is_alone: whether the job has one process.
        is_first: whether this process writes what all share.
        keeps_models: whether models are kept beside the checkpoints: the model folder of a job begins empty.
    """

    train: Train
    side_by_side: "Callable[[Sequence[Trial], StopRequest], None]"
    groups: Callable[[Sequence[JobDocument]], Sequence[Sequence[JobDocument]]]
    classify: Callable[[Exception], tuple[FailureKind, str]]
    tell: Callable[[Event], None]
    agree: Callable[[str], str]
    clear: Callable[[], None]
    is_alone: bool
    is_first: bool
    keeps_models: bool


class Trial:
    """One trial of a shared job, from its first event to its end.

    `end` is None until it has ended, and stays None where the whole job is stopped.
    """

    def __init__(self, document: JobDocument, folder: JobFolder, *, title: str, room: Room) -> None:
        self.document = document
        self.folder = folder.of_member(document.member)
        self.end: MemberEnd | None = None
        self._title = title
        self._room = room

    def recall(self) -> bool:
        """Tell the end of a trial that has ended in an earlier start of this job; whether it has."""
        self.end = kept_end(self.folder, name=self.document.job_name, with_model=self._room.is_first)
        if self.end is not None:
            self._tell(f"{self._title} has ended before")
            self._tell_end(self.end)
        return self.end is not None

    def run(self, stop: StopRequest, train: Train, clock: Clock = time.perf_counter) -> None:
        """Train it until its end, or until `stop` asks the whole job to stop.

        Raises:
            Exception: why it failed, in a job of several processes: the others would wait for this one.
        """
        began = clock()
        if self._room.is_alone and self.folder.stop_request.exists():
            self._close(MemberEnd(seconds=0.0))
            return
        self._tell(f"{self._title} begins")
        own = MemberStop(stop, self.folder.stop_request, clock=clock, max_seconds=self.document.max_seconds)
        try:
            with restored_settings():
                finished = train(self.document, self.folder, own)
            end = self._end_after(clock() - began, "" if finished else self._room.agree(own.reason))
        except Exception as error:
            traceback.print_exc()
            end = MemberEnd(seconds=clock() - began, failure=self._room.classify(error))
            self._close(end)
            if not self._room.is_alone:
                raise
            return
        if end is not None:
            self._close(end)

    def _end_after(self, seconds: float, reason: str) -> MemberEnd | None:
        if reason == ALL:
            return None
        if reason == TOO_LONG:
            minutes = self.document.max_seconds / 60
            sentence = f"MaxRuntimeExceeded: it ran longer than {minutes:g} minutes"
            return MemberEnd(seconds=seconds, failure=(FailureKind.ERROR, sentence))
        if reason == ASKED:
            return MemberEnd(seconds=seconds)
        with suppress(FileNotFoundError):  # the first process writes it
            return MemberEnd(seconds=seconds, report=JobReport.read(self.folder.report))
        return MemberEnd(seconds=seconds)

    def _close(self, end: MemberEnd) -> None:
        self.end = end
        if not self._room.is_first:
            return
        if is_stop(end):
            self.folder.stopped.parent.mkdir(parents=True, exist_ok=True)
            self.folder.stopped.touch()
        room = self._room
        keep_end(self.folder, end, name=self.document.job_name, with_model=room.keeps_models)
        self._tell_end(end)

    def _tell(self, message: str) -> None:
        self._room.tell(Event(time=time.time(), step=0, message=message, member=self.document.member))

    def _tell_end(self, end: MemberEnd) -> None:
        if end.report is not None and self._room.is_first:
            end.report.write(self.folder.report)
        ended = Event(time=time.time(), step=0, member=self.document.member, ended=end.as_json())
        self._room.tell(ended)


def is_stop(end: MemberEnd) -> bool:
    """Whether a trial has ended because it was asked to."""
    return end.report is None and end.failure is None


def train_members(document: JobDocument, folder: JobFolder, stop: StopRequest, room: Room) -> bool:
    """Train the trials of a shared job that have not ended yet; True when all have ended, False when it was stopped.

    The report of the job is written when all have ended, also where some failed.

    Raises:
        Exception: why a trial failed, in a job of several processes.
    """
    began = time.perf_counter()
    count = len(document.members)
    if room.is_first:  # of several processes each stops with it
        relay_stop_requests(folder, [member.member for member in document.members])
    trials = {
        member.member: Trial(member, folder, title=f"trial {number} of {count}", room=room)
        for number, member in enumerate(document.members, start=1)
    }
    left = [member for member in document.members if not trials[member.member].recall()]
    for group in room.groups(left):
        if stop.stop_requested and room.is_alone:  # several processes would not see it at the same moment
            return False
        _train_group([trials[member.member] for member in group], stop, room)
        room.clear()
        if any(trials[member.member].end is None for member in group):
            return False
    if room.is_first:
        _report([trial.end for trial in trials.values()], time.perf_counter() - began).write(folder.report)
    return True


def _train_group(group: Sequence[Trial], stop: StopRequest, room: Room) -> None:
    if len(group) == 1:
        group[0].run(stop, room.train)
    else:
        room.side_by_side(group, stop)


def _report(ends: Sequence[MemberEnd | None], seconds: float) -> JobReport:
    """The report of the whole job; `seconds` of this start of it."""
    known = [end for end in ends if end is not None]
    facts = {
        "trials": len(known),
        "trials_failed": sum(end.failure is not None for end in known),
        "trials_stopped": sum(map(is_stop, known)),
    }
    return JobReport(metrics={TRAIN_SECONDS: seconds}, facts=facts)
