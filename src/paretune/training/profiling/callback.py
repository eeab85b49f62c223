"""Profiles some optimiser steps of a training: a callback of the Hugging Face Trainer for jobs with profile_steps."""

import gzip
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from paretune.core.errors import first_line
from paretune.estimating.workload import warmup_steps
from paretune.specification.container import PROFILE_JSON, write_json
from paretune.training.profiling.advice import Circumstances, advice_of
from paretune.training.profiling.page import Profile, RankProfile, slowest_of
from paretune.training.profiling.peak_memory import PeakMemory, allocations_of, holders_at_peak
from paretune.training.profiling.trace import STEP, records_of, step_time, trace_events

TRACE = "trace.json.gz"
_UPDATE = "Optimizer.step#"
_UNREADABLE = (OSError, ValueError, RuntimeError)
"""Errors of writing and reading a trace, for example on a full disk, that must not end a training."""


class ProfileCallback(TrainerCallback):  # type: ignore[misc]  # transformers ships no types for callbacks
    """Profiles `steps` optimiser steps after the warm-up, and the memory of the step before them.

    Args:
        folder: folder for trace.json.gz, profile.json and profile.md; the first process writes them, and the slowest
            one its trace beside them.
        uncounted: called before the first profiled step; returns a context in which neither time nor rows count.
        circumstances: settings of the job that advice depends on.
        described: settings of the job for the page, name to value.
        peak_memory_gib: returns the highest memory of this process so far.
        tell: called with a sentence if there is no profile.
    """

    def __init__(
        self,
        steps: int,
        folder: Path,
        *,
        uncounted: Callable[[], AbstractContextManager[None]],
        circumstances: Circumstances,
        described: Mapping[str, Any],
        peak_memory_gib: Callable[[], float],
        tell: Callable[[str], None],
    ) -> None:
        self._steps = steps
        self._folder = folder
        self._uncounted = uncounted
        self._circumstances = circumstances
        self._described = described
        self._peak_memory_gib = peak_memory_gib
        self._tell = tell
        self._first = 0  # number of the first profiled step; the one before it shows the memory
        self._pause: AbstractContextManager[None] | None = None
        self._profiler: Any = None
        self._block: Any = None  # of the current step
        self._done = 0  # profiled steps
        self._held_before: dict[str, int] = {}
        self._gradients: set[int] = set()
        self._memory: PeakMemory | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Choose the steps. The memory is that of the first step, which has no optimiser state yet, only if needed."""
        left = state.max_steps - state.global_step
        before = max(warmup_steps(left), 2 if left >= 2 + self._steps else 1)
        self._first = state.global_step + before + 1
        self._begin(state.global_step + 1, **kw)

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any, **_: Any
    ) -> None:
        """Note the addresses of the gradients."""
        if state.global_step + 2 == self._first:
            self._gradients = set(_storages(item.grad for item in model.parameters() if item.grad is not None))

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, optimizer: Any, **_: Any
    ) -> None:
        """Read the memory of the step."""
        if state.global_step + 2 == self._first:
            self._memory = self._read_memory(state.global_step + 1, optimizer)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kw: Any) -> None:
        """Close the block of the step; after the last one write the profile. A training that is stopped writes none."""
        if self._block is not None:
            if torch.cuda.is_available() and self._done + 1 == self._steps:
                torch.cuda.synchronize()
            self._block.__exit__(None, None, None)
            self._block = None
            self._done += 1
        if self._done and (self._done == self._steps or state.global_step >= state.max_steps):
            self._finish()
        elif control.should_training_stop:
            self.abandon()
        else:
            self._begin(state.global_step + 1, **kw)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Stop the profiler if it is running."""
        self.abandon()

    def abandon(self) -> None:
        """Stop the profiler, for example after an error, without writing anything."""
        if self._profiler is not None:
            self._profiler.stop()
        if self._pause is not None:
            self._pause.__exit__(None, None, None)
        self._profiler = self._block = self._pause = None

    def _begin(self, step: int, *, model: Any = None, optimizer: Any = None, **_: Any) -> None:
        """Start the profiler and the block that step number `step` needs."""
        if step == self._first - 1:
            self._pause = self._uncounted()
            self._pause.__enter__()
            parameters = sum(_storages(model.parameters()).values())
            state = sum(_storages(_state_of(optimizer)).values())
            other = sum(_storages(model.buffers()).values())
            if torch.cuda.is_available():
                other = torch.cuda.memory_allocated() - parameters - state
            self._held_before = {"parameters": parameters, "optimiser state": state, "other": max(0, other)}
            self._start(profile_memory=True)
        elif step == self._first:
            self._start()
        if self._first <= step < self._first + self._steps:
            self._block = record_function(f"{STEP}{step}")
            self._block.__enter__()

    def _start(self, *, profile_memory: bool = False) -> None:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
        self._profiler = profile(activities=activities, profile_memory=profile_memory)
        self._profiler.start()

    def _read_memory(self, step: int, optimizer: Any) -> PeakMemory | None:
        """The memory of the step that has been traced; None if its trace cannot be written or read."""
        on_gpu = torch.cuda.is_available()
        process_gib = None if on_gpu else self._peak_memory_gib()  # before the trace is read
        try:
            with self._exported() as path:
                events = list(trace_events(path))
        except _UNREADABLE as error:
            self._tell(f"the memory of step {step} could not be measured: {first_line(error)}")
            return None
        updates = [event["ts"] for event in events if str(event.get("name")).startswith(_UPDATE)]
        holders = holders_at_peak(
            allocations_of(events, on_gpu=on_gpu),
            held_before=self._held_before,
            gradients=self._gradients,
            state=_storages(_state_of(optimizer)).keys(),
            updates_from=1000 * min(updates, default=math.inf),
        )
        return PeakMemory(step=step, holders=holders, process_gib=process_gib)

    @contextmanager
    def _exported(self) -> Iterator[Path]:
        """Stop the profiler and export its trace to a file that exists inside the block."""
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            yield path

    def _finish(self) -> None:
        """Read the trace, exchange it with all processes and write the files. An error does not end the training."""
        self._done = 0
        has_gathered = False
        try:
            with self._exported() as path:
                time = step_time(records_of(trace_events(path)))
                own_profile = RankProfile(rank=_rank(), time=time, memory=self._memory)
                has_gathered, ranks = True, _gather(own_profile)
                if len(ranks) == _processes():
                    self._write(ranks, path)
        except _UNREADABLE as error:
            if not has_gathered:
                _gather(None)  # the others wait for it
            self._tell(f"there is no profile: {first_line(error)}")
        self.abandon()

    def _write(self, ranks: list[RankProfile], trace: Path) -> None:
        rank, slowest = _rank(), slowest_of(ranks).rank
        traces = {number: TRACE if number == 0 else f"trace-rank-{number}.json.gz" for number in sorted({0, slowest})}
        self._folder.mkdir(parents=True, exist_ok=True)
        if rank in traces:
            with trace.open("rb") as plain, gzip.open(self._folder / traces[rank], "wb", 6) as packed:
                shutil.copyfileobj(plain, packed)
        if rank != 0:
            return
        page = Profile(
            ranks=ranks,
            first_step=self._first,
            circumstances=self._described,
            advice=advice_of(ranks[0].time, self._circumstances),
            traces=traces,
        )
        (self._folder / "profile.md").write_text(page.as_markdown())
        write_json(self._folder / PROFILE_JSON, page.as_json())


def _rank() -> int:
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def _processes() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def _gather(own_profile: RankProfile | None) -> list[RankProfile]:
    """The profiles of all processes that have one, in each of them; all must call it."""
    profiles: list[RankProfile | None] = [own_profile]
    if torch.distributed.is_initialized():
        profiles = [None] * _processes()
        torch.distributed.all_gather_object(profiles, own_profile)
    return [profile for profile in profiles if profile is not None]


def _state_of(optimizer: Any) -> list[torch.Tensor]:
    """Tensors that the optimiser keeps from step to step."""
    return [item for state in optimizer.state.values() for item in state.values() if torch.is_tensor(item)]


def _storages(tensors: Any) -> dict[int, int]:
    """Address of each storage to its bytes; for a sharded tensor, of this process's part."""
    sizes = {}
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        storage = local.untyped_storage()
        if local.device.type != "meta" and storage.nbytes():
            sizes[storage.data_ptr()] = storage.nbytes()
    return sizes
