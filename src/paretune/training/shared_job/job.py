"""The trials of a shared job, in the order of a queue.

A job that does not search has a queue with each of its trials once, to its end; trials that differ only in the learning
rate are trained side by side then. In a job that searches, trials pause after the steps that the queue asks for, and
each newer queue may continue them, give them up, or bring new ones.

In a job of several processes the first one decides, and the others learn its decision as soon as they can communicate.
"""

import gc
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil
import torch

from paretune.estimating.paused_states import free_bytes, place_paused
from paretune.specification.container import JobDocument, JobFolder, JobReport, TrialQueue
from paretune.specification.metrics import TRAIN_SECONDS
from paretune.training import device, processes
from paretune.training.callback import EventWriter
from paretune.training.shared_job.cooperative_threads import CooperativeThread, run_in_turns
from paretune.training.shared_job.pausing import CheckpointWriter
from paretune.training.shared_job.requests import relay_requests
from paretune.training.shared_job.side_by_side import JointSteps, SharedModel, SideBySide, groups_of
from paretune.training.shared_job.trials import Trial, is_stop
from paretune.training.stop_signal import StopRequest

WAIT_S = 60.0
"""Seconds that a job that searches waits for a newer queue when its order is done. They are billed. One round takes up
to about 50: an event is in the log after 15 s, its reader looks every 20 s, and the answer is fetched every 10 s."""
_LOOK_EVERY_S = 0.25
_TO_THE_END = sys.maxsize


def train_trials(document: JobDocument, folder: JobFolder, stop: StopRequest) -> bool:
    """Train the trials of a shared job that have not ended yet; True when all have ended, False when it was stopped.

    The report of the job is written when all have ended, even if some failed. In a job of one process a trial that
    fails does not end the others.

    Raises:
        Exception: why a trial failed, in a job of several processes, which would wait for each other.
    """
    return _SharedJob(document, folder, stop).run()


@dataclass(frozen=True, kw_only=True)
class _Turn:
    """The next step of all processes: train trial `key` to `step`, unless it is empty.

    Trials in `given_up` end first. With `is_last` the job ends then; with `is_stop` it stops at once.
    """

    queue: TrialQueue
    key: str = ""
    step: int = 0
    given_up: tuple[str, ...] = ()
    is_last: bool = False
    is_stop: bool = False


class _SharedJob:
    """The trials of one start of a shared job."""

    def __init__(self, document: JobDocument, folder: JobFolder, stop: StopRequest) -> None:
        self._spec = document.spec
        self._folder = folder
        self._stop = stop
        self._began = time.perf_counter()
        self._is_only_process, self._is_first = "RANK" not in os.environ, os.environ.get("RANK", "0") == "0"
        self._events = EventWriter(folder.events if self._is_first else None)
        self._searches = document.queue is not None
        order = tuple((member.member, _TO_THE_END) for member in document.members)
        self._queue = document.queue or TrialQueue(order=order, is_complete=True)
        self._trials: dict[str, Trial] = {}
        self._untouched: set[str] = (
            set()
        )  # trials that have not begun in this start, and whose checkpoints are not compared yet
        self._relayed: set[str] = set()
        self._frozen: dict[Any, Any] = {}
        self._writer = CheckpointWriter()
        self._running_bytes = 0.0  # of the device
        self._goes_on_alone = False
        self._add(document.members)
        self._add(self._queue.members)
        unfinished = [trial.document for trial in self._trials.values() if trial.end is None]
        can_join = self._is_only_process and not device.has_gpu()
        self._groups = [] if self._searches else groups_of(unfinished, is_possible=can_join)

    def run(self) -> bool:
        if self._is_first:  # the other processes stop with it
            relay_requests(self._folder, self._relayed, searches=self._searches)
        while True:
            turn = self._agreed_turn()
            if turn.is_stop:
                self._writer.wait()
                return False
            self._adopt(turn.queue)
            for key in turn.given_up:
                self._give_up(self._trials[key])
            if turn.is_last:
                break
            if turn.key and not self._train(self._trials[turn.key], turn.step):
                self._writer.wait()
                return False
        if self._is_first:
            self._report().write(self._folder.report)
        processes.wait_for_all()
        return True

    @property
    def _can_agree(self) -> bool:
        """Whether one process can tell the others its decision; not before the first trial has begun."""
        return self._is_only_process or torch.distributed.is_initialized()

    def _add(self, documents: Iterable[JobDocument]) -> None:
        among = "" if self._searches else f" of {len(self._queue.order)}"
        for document in documents:
            key = document.member
            if key in self._trials:
                continue
            self._trials[key] = Trial(
                document=document,
                folder=self._folder.of_member(key),
                title=f"trial {len(self._trials) + 1}{among}",
                events=self._events,
                is_only_process=self._is_only_process,
                is_first=self._is_first,
                keeps_model=self._spec.on_sagemaker,
            )
            if not self._trials[key].recall():
                self._untouched.add(key)
                self._relayed.add(key)

    def _adopt(self, queue: TrialQueue | None) -> None:
        if queue is not None and queue.version > self._queue.version:
            self._queue = queue
            self._goes_on_alone = False
            self._add(queue.members)

    def _agreed_turn(self) -> _Turn:
        """The turn that the first process has chosen."""
        if self._can_agree and self._untouched and self._searches:
            steps = {key: self._trials[key].saved_step() for key in sorted(self._untouched)}
            others = processes.gather(steps)
            for key in steps:
                self._trials[key].step = min(other.get(key, 0) for other in others)
            self._untouched.clear()
        return processes.gather(self._next_turn() if self._is_first or not self._can_agree else None)[0]  # type: ignore[return-value]

    def _next_turn(self) -> _Turn:
        """The next step; it may wait for a newer queue."""
        until = time.monotonic() + WAIT_S
        while True:
            if self._can_agree:
                if self._stop.stop_requested:
                    return _Turn(queue=self._queue, is_stop=True)
                if self._searches:
                    self._adopt(self._folder.read_queue())
            queue = self._queue
            unfinished = {key: trial for key, trial in self._trials.items() if trial.end is None}
            given_up = tuple(key for key, trial in unfinished.items() if self._is_given_up(trial))
            rest = {key: trial for key, trial in unfinished.items() if key not in given_up}
            for key, step in queue.order:
                if key in rest and rest[key].step < step:
                    return _Turn(queue=queue, key=key, step=step, given_up=given_up)
            if queue.is_complete:
                return _Turn(queue=queue, given_up=tuple(unfinished), is_last=True)
            if self._goes_on_alone or not self._can_agree or time.monotonic() > until:
                return self._turn_alone(rest, given_up)
            if given_up:  # at once, so that the study sees its end
                return _Turn(queue=queue, given_up=given_up)
            time.sleep(_LOOK_EVERY_S)

    def _is_given_up(self, trial: Trial) -> bool:
        if not self._can_agree:
            return False
        return trial.document.member in self._queue.given_up or trial.folder.stop_request.exists()

    def _turn_alone(self, rest: dict[str, Trial], given_up: tuple[str, ...]) -> _Turn:
        """Without a newer queue: the trial with the best last evaluation continues for as many steps as it has done."""
        self._goes_on_alone = True
        if not rest:
            return _Turn(queue=self._queue, given_up=given_up, is_last=True)
        key = max(rest, key=lambda key: rest[key].quality)
        first = min((step for _, step in self._queue.order if step), default=_TO_THE_END)
        return _Turn(queue=self._queue, key=key, step=2 * rest[key].step or first, given_up=given_up)

    def _give_up(self, trial: Trial) -> None:
        self._writer.wait()
        trial.give_up()
        _clear_memory(compiles=False)

    def _train(self, trial: Trial, step: int) -> bool:
        """Train a trial to a step, or with its group to the end; False when it was stopped."""
        if not self._searches:
            return self._train_group(next(group for group in self._groups if trial.document in group))
        self._untouched.discard(trial.document.member)
        self._make_room(trial)
        if trial.trainer is None or trial.trainer is self._writer.trainer:  # a new Trainer resets what all share
            self._writer.wait()
        if device.has_gpu():
            device.reset_peak_memory()
        trial.train_to(step, self._stop, self._frozen)
        if trial.trainer is None:
            _clear_memory(compiles=False)
            return trial.end is not None
        if device.has_gpu():
            others = sum(item.state_bytes for item in self._trials.values() if item is not trial and item.is_on_device)
            self._running_bytes = max(self._running_bytes, device.peak_memory_gib() * 2**30 - others)
        if not trial.trainer.is_saved:
            self._writer.begin(trial.trainer)
        return True

    def _train_group(self, documents: Sequence[JobDocument]) -> bool:
        group = [trial for trial in (self._trials[item.member] for item in documents) if trial.end is None]
        if len(group) == 1:
            group[0].run(self._stop)
        else:
            _train_side_by_side(group, self._stop)
        _clear_memory(compiles=any(document.spec.compiler != "none" for document in documents))
        return all(trial.end is not None for trial in group)

    def _make_room(self, current: Trial) -> None:
        """Move paused trials to main memory or to disk, those whose turn comes last first."""
        places = {key: number for number, (key, _) in reversed(list(enumerate(self._queue.order)))}
        paused = [trial for trial in self._trials.values() if trial.trainer is not None and trial is not current]
        if not paused:
            return
        paused.sort(key=lambda trial: places.get(trial.document.member, len(places)))
        in_memory = sum(trial.state_bytes for trial in paused if not trial.is_on_device)
        memory, each = psutil.virtual_memory(), max(trial.state_bytes for trial in (current, *paused))
        free = [
            free_bytes(device.memory_bytes(), self._running_bytes),
            free_bytes(memory.total, memory.total - memory.available - in_memory),
        ]
        device_bytes, memory_bytes = map(min, zip(*processes.gather(free), strict=True))
        # Without a GPU the trial that trains next takes main memory, too.
        count = len(paused) + (not device.has_gpu() and current.trainer is None)
        tiers = place_paused(count, each, device_bytes=device_bytes, memory_bytes=memory_bytes)
        for number, trial in enumerate(paused):
            if number >= tiers.on_device + tiers.in_memory - (count - len(paused)):
                self._writer.wait()
                trial.leave_memory()
                _clear_memory(compiles=False)
            elif number >= tiers.on_device and trial.trainer is not None:
                trial.trainer.move_to_main_memory()

    def _report(self) -> JobReport:
        """The report of the whole job, with the seconds of this start of it."""
        ends = [trial.end for trial in self._trials.values() if trial.end is not None]
        facts = {
            "trials": len(ends),
            "trials_failed": sum(end.failure is not None for end in ends),
            "trials_stopped": sum(map(is_stop, ends)),
        }
        return JobReport(metrics={TRAIN_SECONDS: time.perf_counter() - self._began}, facts=facts)


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
