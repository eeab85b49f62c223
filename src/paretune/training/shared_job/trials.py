"""The trials of a shared job, one after the other or in groups side by side, each with its own end.

Ends are saved beside the checkpoints, so that a job that is started again after an interruption trains no trial twice:

    ROOT/checkpoints/members/KEY/end.json    the end, and the size of every file of the model
    ROOT/checkpoints/members/KEY/model/      the trained model, on SageMaker, where the model folder begins empty again

Checkpoints are shared by all jobs of the same specification, so an end counts only for the trial and job that it names.
"""

import gc
import json
import os
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from paretune.specification.container import (
    Event,
    FailureKind,
    JobDocument,
    JobFolder,
    JobReport,
    MemberEnd,
    write_json,
)
from paretune.specification.metrics import TRAIN_SECONDS
from paretune.training import checkpoints, device
from paretune.training.callback import EventWriter
from paretune.training.failures import classify_failure
from paretune.training.loop import train
from paretune.training.shared_job.cooperative_threads import CooperativeThread, run_in_turns
from paretune.training.shared_job.side_by_side import JointSteps, SharedModel, SideBySide, groups_of
from paretune.training.shared_job.stop_requests import Clock, StopReason, TrialStop, relay_stop_requests
from paretune.training.stop_signal import StopRequest

Train = Callable[[JobDocument, JobFolder, StopRequest], bool]
"""Trains one trial in its folder: True when it finished, False when it was stopped."""


def train_trials(document: JobDocument, folder: JobFolder, stop: StopRequest) -> bool:
    """Train the trials of a shared job that have not ended yet; True when all have ended, False when it was stopped.

    The report of the job is written when all have ended, even if some failed. In a job of one process a trial that
    fails does not end the others.

    Raises:
        Exception: why a trial failed, in a job of several processes, which would wait for each other.
    """
    began = time.perf_counter()
    is_only_process, is_first = "RANK" not in os.environ, os.environ.get("RANK", "0") == "0"
    if is_first:  # the other processes stop with it
        relay_stop_requests(folder, [member.member for member in document.members])
    events = EventWriter(folder.events if is_first else None)
    trials = {
        member.member: Trial(
            member,
            folder,
            title=f"trial {number} of {len(document.members)}",
            events=events,
            is_only_process=is_only_process,
            is_first=is_first,
            keeps_model=document.spec.on_sagemaker,
        )
        for number, member in enumerate(document.members, start=1)
    }
    unfinished = [member for member in document.members if not trials[member.member].recall()]
    compiles = any(member.spec.compiler != "none" for member in document.members)
    for members in groups_of(unfinished, is_possible=is_only_process and not device.has_gpu()):
        if stop.stop_requested and is_only_process:  # several processes would not see it at the same moment
            return False
        group = [trials[member.member] for member in members]
        if len(group) == 1:
            group[0].run(stop, train)
        else:
            _train_side_by_side(group, stop)
        _clear_memory(compiles=compiles)
        if any(trial.end is None for trial in group):
            return False
    if is_first:
        _report([trial.end for trial in trials.values()], time.perf_counter() - began).write(folder.report)
    checkpoints.wait_for_all()
    return True


class Trial:
    """One trial of a shared job, from its first event to its end.

    `end` is None until the trial has ended, and stays None if the whole job is stopped.

    Args:
        is_only_process: whether the job has one process.
        is_first: whether this process writes what all processes share.
        keeps_model: whether the model is saved beside the checkpoints, because the model folder of a job begins empty.
    """

    def __init__(
        self,
        document: JobDocument,
        folder: JobFolder,
        *,
        title: str,
        events: EventWriter,
        is_only_process: bool,
        is_first: bool,
        keeps_model: bool,
    ) -> None:
        self.document = document
        self.folder = folder.of_member(document.member)
        self.end: MemberEnd | None = None
        self._title = title
        self._events = events
        self._is_only_process = is_only_process
        self._is_first = is_first
        self._keeps_model = keeps_model

    def recall(self) -> bool:
        """Whether the trial has ended in an earlier start of this job; its end is written as an event again."""
        self.end = load_end(self.folder, name=self.document.job_name, with_model=self._is_first)
        if self.end is not None:
            self._write_message(f"{self._title} has ended before")
            self._write_end(self.end)
        return self.end is not None

    def run(self, stop: StopRequest, train: Train, clock: Clock = time.perf_counter) -> None:
        """Train it until its end, or until `stop` asks the whole job to stop.

        Raises:
            Exception: why it failed, in a job of several processes: the others would wait for this one.
        """
        began = clock()
        if self._is_only_process and self.folder.stop_request.exists():
            self._close(MemberEnd(seconds=0.0))
            return
        self._write_message(f"{self._title} begins")
        trial_stop = TrialStop(stop, self.folder.stop_request, clock=clock, max_seconds=self.document.max_seconds)
        try:
            with restored_settings():
                finished = train(self.document, self.folder, trial_stop)
            end = self._end_after(clock() - began, None if finished else _agree(trial_stop.reason))
        except Exception as error:
            traceback.print_exc()
            self._close(MemberEnd(seconds=clock() - began, failure=classify_failure(error)))
            if not self._is_only_process:
                raise
            return
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
        if not self._is_first:
            return
        if is_stop(end):
            self.folder.stopped.parent.mkdir(parents=True, exist_ok=True)
            self.folder.stopped.touch()
        save_end(self.folder, end, name=self.document.job_name, with_model=self._keeps_model)
        self._write_end(end)

    def _write_message(self, message: str) -> None:
        self._events.append(Event(time=time.time(), step=0, message=message, member=self.document.member))

    def _write_end(self, end: MemberEnd) -> None:
        if end.report is not None and self._is_first:
            end.report.write(self.folder.report)
        self._events.append(Event(time=time.time(), step=0, member=self.document.member, ended=end.as_json()))


def is_stop(end: MemberEnd) -> bool:
    """Whether a trial has ended because a user or a study stopped it."""
    return end.report is None and end.failure is None


def _train_side_by_side(trials: Sequence[Trial], stop: StopRequest) -> None:
    """Train trials that differ only in the learning rate on one frozen base."""
    shared = SharedModel()
    device.use_one_arena()

    def task(trial: Trial, thread: CooperativeThread) -> None:
        strategy = SideBySide(trial.document.spec, thread=thread, shared=shared, trials=len(trials))
        trial.run(stop, partial(train, strategy=strategy, clock=thread.seconds), thread.seconds)

    run_in_turns([partial(task, trial) for trial in trials], JointSteps().answer)


def _agree(reason: StopReason | None) -> StopReason | None:
    """The reason to stop that counts first among those of all processes."""
    reasons: list[Any] = [reason]
    if torch.distributed.is_initialized():
        reasons = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(reasons, reason)
    return next((candidate for candidate in StopReason if candidate in reasons), None)


def _clear_memory(*, compiles: bool) -> None:
    """Free the memory of a trial, so that the next one starts with the process in the same state as the first one."""
    gc.collect()
    device.release_memory()
    device.reset_peak_memory()
    if compiles:
        torch.compiler.reset()  # else the code of the next model counts as compiled once more, eight times at most


@contextmanager
def restored_settings() -> Iterator[None]:
    """Undo changes that the training arguments of one trial make to settings of the whole process.

    These are deterministic algorithms, the precision of matrix products, cuDNN's choices, and the log level.
    """
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    products = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    level, number_format = logging.get_verbosity(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        if torch.get_float32_matmul_precision() != products:
            torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
        logging.set_verbosity(level)
        torch.set_default_dtype(number_format)


def save_end(folder: JobFolder, end: MemberEnd, *, name: str, with_model: bool) -> None:
    """Save how the trial `name` has ended, and its model if `with_model`; the end is written last."""
    files = {}
    if with_model and end.report is not None:
        copy = _model_copy(folder)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder.model, copy)
        paths = [path for path in sorted(copy.rglob("*")) if path.is_file()]
        files = {str(path.relative_to(copy)): path.stat().st_size for path in paths}
    write_json(_end_file(folder), {"name": name, "end": end.as_json(), "files": files})


def load_end(folder: JobFolder, *, name: str, with_model: bool) -> MemberEnd | None:
    """The saved end of the trial `name`; None if it has not ended or its model is incomplete, so that it must train.

    If `with_model`, which one of several processes passes, a saved model is copied back.
    """
    copy = _model_copy(folder)
    try:
        raw = json.loads(_end_file(folder).read_text())
        is_whole = all((copy / file).stat().st_size == size for file, size in raw["files"].items())
        end = MemberEnd.read(raw["end"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    if end is None or not is_whole or raw.get("name") != name:
        return None
    if raw["files"] and with_model:
        shutil.copytree(copy, folder.model, dirs_exist_ok=True)
    return end


def _end_file(folder: JobFolder) -> Path:
    return folder.checkpoints / "end.json"


def _model_copy(folder: JobFolder) -> Path:
    return folder.checkpoints / "model"


def _report(ends: Sequence[MemberEnd | None], seconds: float) -> JobReport:
    """The report of the whole job; `seconds` are those of this start of it."""
    trial_ends = [end for end in ends if end is not None]
    facts = {
        "trials": len(trial_ends),
        "trials_failed": sum(end.failure is not None for end in trial_ends),
        "trials_stopped": sum(map(is_stop, trial_ends)),
    }
    return JobReport(metrics={TRAIN_SECONDS: seconds}, facts=facts)
