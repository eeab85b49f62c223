"""The trials of a shared job, one after the other or in groups side by side, each with its own end.

Ends are saved beside the checkpoints, so that a job that is started again after an interruption trains no trial twice:

    ROOT/checkpoints/members/KEY/end.json    the end, and the size of every file of the model
    ROOT/checkpoints/members/KEY/model/      the trained model, on SageMaker, where the model folder begins empty again

Checkpoints are shared by all jobs of the same specification, so an end counts only for the trial and job that it names.
"""

import gc
import json
import logging
import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

import torch
import transformers

from paretune.core.errors import first_line
from paretune.specification.container import (
    STOP_REQUESTS,
    Event,
    FailureKind,
    JobDocument,
    JobFolder,
    JobReport,
    MemberEnd,
    write_json,
)
from paretune.specification.metrics import TRAIN_SECONDS
from paretune.training import checkpoints, device, processes
from paretune.training.callback import EventWriter
from paretune.training.failures import classify_failure
from paretune.training.loop import train
from paretune.training.shared_job.cooperative_threads import CooperativeThread, run_in_turns
from paretune.training.shared_job.side_by_side import JointSteps, SharedModel, SideBySide, groups_of
from paretune.training.stop_signal import StopRequest
from paretune.training.strategies import Strategy

FILE_INTERVAL_S = 0.25
"""Seconds between two checks for the file of a stop request, each of which takes a millisecond on some file systems."""
S3_INTERVAL_S = 10.0
"""Seconds between two requests to S3, which cost 0.005 dollars per thousand."""
_log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Seconds from an arbitrary start."""
_END, _MODEL = "end.json", "model"


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
            document=member,
            folder=folder.of_member(member.member),
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
            group[0].run(stop)
        else:
            _train_side_by_side(group, stop)
        _clear_memory(compiles=compiles)
        if any(trial.end is None for trial in group):
            return False
    if is_first:
        _report([trial.end for trial in trials.values()], time.perf_counter() - began).write(folder.report)
    processes.wait_for_all()
    return True


class StopReason(Enum):
    """A reason to stop a trial before its end. If the processes of a job have several, the first one here counts."""

    WHOLE_JOB = "all"
    TIME_LIMIT = "too long"
    REQUESTED = "asked"


class TrialStop:
    """The stop request of one trial: the job's, the file `request`, or `max_seconds` on `clock`.

    `reason` is the reason that came first; None while the trial goes on.
    """

    def __init__(self, job: StopRequest, request: Path, *, clock: Clock, max_seconds: float) -> None:
        self.reason: StopReason | None = None
        self._job = job
        self._request = request
        self._clock = clock
        self._until = clock() + max_seconds
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
    """One trial of a shared job, from its first event to its end.

    Attributes:
        folder: the trial's own folder below that of the job.
        is_only_process: whether the job has one process.
        is_first: whether this process writes what all processes share.
        keeps_model: whether the model is saved beside the checkpoints, because the model folder of a job begins empty.
        end: None until the trial has ended; it stays None if the whole job is stopped.
    """

    document: JobDocument
    folder: JobFolder
    title: str
    events: EventWriter
    is_only_process: bool
    is_first: bool
    keeps_model: bool
    end: MemberEnd | None = None

    def recall(self) -> bool:
        """Whether the trial has ended in an earlier start of this job; its end is written as an event again."""
        self.end = load_end(self.folder, name=self.document.job_name, with_model=self.is_first)
        if self.end is not None:
            self._write_message(f"{self.title} has ended before")
            self._write_end(self.end)
        return self.end is not None

    def run(self, stop: StopRequest, strategy: Strategy | None = None, clock: Clock = time.perf_counter) -> None:
        """Train it until its end, or until `stop` asks the whole job to stop.

        Raises:
            Exception: why it failed, in a job of several processes: the others would wait for this one.
        """
        began = clock()
        if self.is_only_process and self.folder.stop_request.exists():
            self._close(MemberEnd(seconds=0.0))
            return
        self._write_message(f"{self.title} begins")
        trial_stop = TrialStop(stop, self.folder.stop_request, clock=clock, max_seconds=self.document.max_seconds)
        try:
            with restored_settings():
                finished = train(self.document, self.folder, trial_stop, strategy=strategy, clock=clock)
            reasons = [] if finished else processes.gather(trial_stop.reason)
            end = self._end_after(clock() - began, next((reason for reason in StopReason if reason in reasons), None))
        except Exception as error:
            traceback.print_exc()
            self._close(MemberEnd(seconds=clock() - began, failure=classify_failure(error)))
            if not self.is_only_process:
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


def _train_side_by_side(trials: Sequence[Trial], stop: StopRequest) -> None:
    """Train trials that differ only in the learning rate on one frozen base."""
    shared = SharedModel()
    device.use_one_arena()

    def task(trial: Trial, thread: CooperativeThread) -> None:
        strategy = SideBySide(trial.document.spec, thread=thread, shared=shared, trials=len(trials))
        trial.run(stop, strategy, thread.seconds)

    run_in_turns([partial(task, trial) for trial in trials], JointSteps().answer)


def _clear_memory(*, compiles: bool) -> None:
    """Free the memory of a trial, so that the next one starts with the process in the same state as the first one."""
    gc.collect()
    torch.cuda.empty_cache()
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
    level, number_format = transformers.logging.get_verbosity(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        if torch.get_float32_matmul_precision() != products:
            torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
        transformers.logging.set_verbosity(level)
        torch.set_default_dtype(number_format)


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


def relay_stop_requests(folder: JobFolder, keys: Iterable[str]) -> None:
    """From now on write the stop request file of each trial in `keys` that has an object below STOP_REQUESTS in S3.

    AWS can tell a running job nothing but to end, so requests for single trials come through S3. Without the variable
    STOP_REQUESTS nothing is done. It goes on in a thread that ends with the process, or if S3 refuses.
    """
    address = os.environ.get(STOP_REQUESTS, "")
    if address.startswith("s3://"):
        threading.Thread(target=_relay, args=(address, folder, set(keys)), daemon=True, name="stop requests").start()


def _relay(address: str, folder: JobFolder, keys: set[str]) -> None:
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    try:
        import boto3

        s3 = boto3.client("s3")
        while keys:
            objects = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", ())
            requested = {entry["Key"].removeprefix(prefix) for entry in objects} & keys
            for key in requested:
                request = folder.of_member(key).stop_request
                request.parent.mkdir(parents=True, exist_ok=True)
                request.touch()
            keys -= requested
            time.sleep(S3_INTERVAL_S)
    except Exception as error:  # no permission, no network, no boto3: trials go on to their ends
        _log.warning("no trial of this job can be stopped by itself: %s", first_line(error))


def _report(ends: Sequence[MemberEnd | None], seconds: float) -> JobReport:
    """The report of the whole job; `seconds` are those of this start of it."""
    trial_ends = [end for end in ends if end is not None]
    facts = {
        "trials": len(trial_ends),
        "trials_failed": sum(end.failure is not None for end in trial_ends),
        "trials_stopped": sum(map(is_stop, trial_ends)),
    }
    return JobReport(metrics={TRAIN_SECONDS: seconds}, facts=facts)
