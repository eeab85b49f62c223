"""One trial of a shared job, with its own end.

Ends are saved beside the checkpoints, so that a job that is started again after an interruption trains no trial twice:

    ROOT/checkpoints/members/KEY/end.json    the end, and the size of every file of the model
    ROOT/checkpoints/members/KEY/model/      the trained model, on SageMaker, where the model folder begins empty again

Checkpoints are shared by all jobs of the same specification, so an end counts only for the trial and job that it names.
"""

import json
import math
import os
import shutil
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from paretune.specification.container import (
    Event,
    FailureKind,
    JobDocument,
    JobFolder,
    JobReport,
    MemberEnd,
    write_json,
)
from paretune.training import checkpoints, processes
from paretune.training.callback import EventWriter
from paretune.training.failures import classify_failure
from paretune.training.loop import train
from paretune.training.shared_job.cooperative_threads import CooperativeThread, Settings
from paretune.training.shared_job.pausing import Pausable, PausableTrainer, TrialInterrupted
from paretune.training.stop_signal import StopRequest
from paretune.training.strategies import Strategy

FILE_INTERVAL_S = 0.25
"""Seconds between two checks for the file of a stop request, each of which takes a millisecond on some file systems."""

Clock = Callable[[], float]  # seconds of the job that a trial has used
_END, _MODEL = "end.json", "model"


class StopReason(Enum):
    """A reason to stop a trial before its end. If the processes of a job have several, the first one here counts."""

    WHOLE_JOB = "all"
    TIME_LIMIT = "too long"
    REQUESTED = "asked"


class TrialStop:
    """The stop request of one trial: the job's, the file `request`, or `max_seconds` of its `clock`.

    `reason` is the reason that came first; None while the trial goes on.
    """

    def __init__(self, job: StopRequest, request: Path, *, clock: Clock, max_seconds: float) -> None:
        self.reason: StopReason | None = None
        self._job = job
        self._request = request
        self._clock = clock
        self._until = max_seconds
        self._next_check = 0.0

    @property
    def stop_requested(self) -> bool:
        """Whether the trial must stop."""
        if self.reason is None:
            self.reason = self._check()
        return self.reason is not None

    def _check(self) -> StopReason | None:
        if self._job.stop_requested:
            return StopReason.WHOLE_JOB
        if self._clock() > self._until:
            return StopReason.TIME_LIMIT
        now = time.monotonic()
        if now < self._next_check:
            return None
        self._next_check = now + FILE_INTERVAL_S
        return StopReason.REQUESTED if self._request.exists() else None


@dataclass(kw_only=True)
class Trial:
    """One trial of a shared job, from its first event to its end."""

    document: JobDocument
    folder: JobFolder  # the trial's own folder below that of the job
    title: str
    events: EventWriter
    is_only_process: bool  # whether the job has one process
    is_first: bool  # whether this process writes what all processes share
    keeps_model: bool
    """Whether the model is saved beside the checkpoints, because the model folder of a job begins empty."""
    end: MemberEnd | None = None  # None until the trial has ended; it stays None if the whole job is stopped
    step: int = 0  # optimiser steps done, as far as they are in memory or in a checkpoint
    seconds: float = 0.0  # seconds of this start of the job that the trial has used
    quality: float = -math.inf
    """Of its newest evaluation in a job that searches, larger is better; -infinity before the first."""
    _thread: CooperativeThread | None = None

    @property
    def trainer(self) -> PausableTrainer | None:
        """The Trainer of a paused training in memory; None if there is none."""
        return None if self._thread is None else self._thread.request

    @property
    def state_bytes(self) -> float:
        """Bytes of the paused training; 0 if it is not in memory."""
        return 0.0 if self.trainer is None else self.trainer.state_bytes

    @property
    def is_on_device(self) -> bool:
        """Whether the device holds the paused training."""
        return self.trainer is not None and self.trainer.is_on_device

    def saved_step(self) -> int:
        """The step of the newest checkpoint that this process can read."""
        return checkpoints.newest_step(self.folder.checkpoints)

    def train_to(self, step: int, stop: StopRequest, frozen: dict[Any, Any]) -> None:
        """Train to this step and pause, or to the end; with a `trainer` the training has paused.

        `frozen` holds the frozen weights that the trials of the job share.

        Raises:
            Exception: as `run`.
        """
        if self._thread is None:

            def task(thread: CooperativeThread) -> None:
                strategy = Pausable(self.document.spec, thread=thread, pause_at=step, frozen=frozen)
                self.run(stop, strategy, thread.seconds)

            self._thread = CooperativeThread(task, self.seconds)
            self._thread.take_turn()
        else:
            self._thread.take_turn(step)
        self.seconds = self._thread.seconds()
        if self._thread.is_done:
            self._thread = None
            return
        trainer: PausableTrainer = self._thread.request
        self.step, self.quality, total = trainer.state.global_step, trainer.quality, trainer.state.max_steps
        member = self.document.member
        self.events.append(
            Event(time=time.time(), step=self.step, total_steps=total, member=member, paused=self.seconds)
        )

    def leave_memory(self) -> None:
        """Leave a paused training to its checkpoint, if that was written."""
        if self.trainer is not None and self.trainer.is_saved:
            self._interrupt()

    def give_up(self) -> None:
        """End as stopped on request, without the checkpoints of a paused training."""
        if self._thread is not None or self.step:
            self._interrupt()
            if os.environ.get("LOCAL_RANK", "0") == "0":
                checkpoints.remove(self.folder.checkpoints)
        self._close(MemberEnd(seconds=self.seconds))

    def _interrupt(self) -> None:
        if self._thread is not None:
            self._thread.take_turn(None)
            self._thread = None

    def recall(self) -> bool:
        """Whether the trial has ended in an earlier start of this job; its end is written as an event again."""
        self.end = load_end(self.folder, name=self.document.job_name, with_model=self.is_first)
        if self.end is not None:
            self._write_message(f"{self.title} has ended before")
            self._write_end(self.end)
        return self.end is not None

    def run(self, stop: StopRequest, strategy: Strategy | None = None, clock: Clock | None = None) -> None:
        """Train it until its end, or until `stop` asks the whole job to stop. By default `clock` begins now.

        Raises:
            Exception: why it failed, in a job of several processes: the others would wait for this one.
        """
        began = time.perf_counter()
        clock = clock or (lambda: time.perf_counter() - began)
        self._write_message(f"{self.title} {'continues' if self.step else 'begins'}")
        trial_stop = TrialStop(stop, self.folder.stop_request, clock=clock, max_seconds=self.document.max_seconds)
        settings = Settings.now()
        try:
            finished = train(self.document, self.folder, trial_stop, strategy=strategy, clock=clock)
            reasons = [] if finished else processes.gather(trial_stop.reason)
            end = self._end_after(clock(), next((reason for reason in StopReason if reason in reasons), None))
        except TrialInterrupted:
            return
        except Exception as error:
            traceback.print_exc()
            self._close(MemberEnd(seconds=clock(), failure=classify_failure(error)))
            if not self.is_only_process:
                raise
            return
        finally:
            settings.restore()
        if end is not None:
            self._close(end)

    def _end_after(self, seconds: float, reason: StopReason | None) -> MemberEnd | None:
        """The end of a trial that finished (`reason` is None) or stopped; None if the whole job stops."""
        if reason is StopReason.WHOLE_JOB:
            return None
        if reason is StopReason.TIME_LIMIT:
            minutes = self.document.max_seconds / 60
            sentence = f"MaxRuntimeExceeded: it ran longer than {minutes:g} minutes"
            return MemberEnd(seconds=seconds, failure=(FailureKind.ERROR, sentence))
        if reason is StopReason.REQUESTED:
            return MemberEnd(seconds=seconds)
        with suppress(FileNotFoundError):  # the first process writes it
            return MemberEnd(seconds=seconds, report=JobReport.read(self.folder.report))
        return MemberEnd(seconds=seconds)

    def _close(self, end: MemberEnd) -> None:
        self.end = end
        if not self.is_first:
            return
        if is_stop(end):
            self.folder.stopped.parent.mkdir(parents=True, exist_ok=True)
            self.folder.stopped.touch()
        save_end(self.folder, end, name=self.document.job_name, with_model=self.keeps_model)
        self._write_end(end)

    def _write_message(self, message: str) -> None:
        self.events.append(Event(time=time.time(), step=0, message=message, member=self.document.member))

    def _write_end(self, end: MemberEnd) -> None:
        if end.report is not None and self.is_first:
            end.report.write(self.folder.report)
        self.events.append(Event(time=time.time(), step=0, member=self.document.member, ended=end.as_json()))


def is_stop(end: MemberEnd) -> bool:
    """Whether a trial has ended because a user or a study stopped it."""
    return end.report is None and end.failure is None


def save_end(folder: JobFolder, end: MemberEnd, *, name: str, with_model: bool) -> None:
    """Save how the trial `name` has ended, and its model if `with_model`; the end is written last."""
    files = {}
    if with_model and end.report is not None:
        copy = folder.checkpoints / _MODEL
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder.model, copy)
        files = checkpoints.file_sizes(copy)
    write_json(folder.checkpoints / _END, {"name": name, "end": end.as_json(), "files": files})


def load_end(folder: JobFolder, *, name: str, with_model: bool) -> MemberEnd | None:
    """The saved end of the trial `name`; None if it has not ended or its model is incomplete, so that it must train.

    If `with_model`, which one of several processes passes, a saved model is copied back.
    """
    copy = folder.checkpoints / _MODEL
    try:
        raw = json.loads((folder.checkpoints / _END).read_text())
        is_whole = checkpoints.has_files(copy, raw["files"])
        end = MemberEnd.read(raw["end"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if end is None or not is_whole or raw.get("name") != name:
        return None
    if raw["files"] and with_model:
        shutil.copytree(copy, folder.model, dirs_exist_ok=True)
    return end
