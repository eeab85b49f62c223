"""Profiles some optimiser steps of a training: a callback of the Hugging Face Trainer for jobs with profile_steps."""

import gzip
import importlib.metadata
import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from paretune.core.errors import first_line
from paretune.estimating.workload import warmup_steps
from paretune.specification.container import PROFILE_JSON, JobDocument, write_json
from paretune.training import device, processes
from paretune.training.callback import MetricsCallback
from paretune.training.profiling.page import Circumstances, Profile, RankProfile, advice_of, slowest_of
from paretune.training.profiling.trace import (
    STEP,
    PeakMemory,
    allocations_of,
    holders_at_peak,
    records_of,
    step_time,
    trace_events,
)

TRACE = "trace.json.gz"
_UPDATE = "Optimizer.step#"
_UNREADABLE = (OSError, ValueError, RuntimeError)  # errors of a trace, as on a full disk; they end no training


class ProfileCallback(TrainerCallback):  # type: ignore[misc]  # transformers ships no types for callbacks
    """Profiles the job's `profile_steps` optimiser steps after the warm-up, and the memory of the step before them.

    The stopwatch of `metrics` stands still in these steps, so that neither their time nor their rows count. The first
    process writes trace.json.gz, profile.json and profile.md into `folder`, and the slowest one its trace beside them.
    """

    def __init__(self, document: JobDocument, folder: Path, metrics: MetricsCallback) -> None:
        self._document = document
        self._steps = document.spec.profile_steps or 0
        self._folder = folder
        self._metrics = metrics
        self._first = 0  # number of the first profiled step; the one before it shows the memory
        self._is_active = False
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
            if self._done + 1 == self._steps:
                device.synchronize()
            self._block.__exit__(None, None, None)
            self._block = None
            self._done += 1
        if self._done and (self._done == self._steps or state.global_step >= state.max_steps):
            self._finish(args.process_index)
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
        if self._is_active:
            self._metrics.stopwatch.start()
        self._profiler, self._block, self._is_active = None, None, False

    def _begin(self, step: int, *, model: Any = None, optimizer: Any = None, **_: Any) -> None:
        """Start the profiler and the block that step number `step` needs."""
        if step == self._first - 1:
            self._metrics.stopwatch.stop()
            self._is_active = True
            parameters = sum(_storages(model.parameters()).values())
            state = sum(_storages(_state_of(optimizer)).values())
            other = sum(_storages(model.buffers()).values())
            if device.has_gpu():
                other = torch.cuda.memory_allocated() - parameters - state
            self._held_before = {"parameters": parameters, "optimiser state": state, "other": max(0, other)}
            self._start(profile_memory=True)
        elif step == self._first:
            self._start()
        if self._first <= step < self._first + self._steps:
            self._block = record_function(f"{STEP}{step}")
            self._block.__enter__()

    def _start(self, *, profile_memory: bool = False) -> None:
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.has_gpu() else [])]
        self._profiler = profile(activities=activities, profile_memory=profile_memory)
        self._profiler.start()

    def _read_memory(self, step: int, optimizer: Any) -> PeakMemory | None:
        """The memory of the step that has been traced; None if its trace cannot be written or read."""
        on_gpu = device.has_gpu()
        process_gib = None if on_gpu else device.peak_memory_gib()  # before the trace is read
        try:
            with self._exported() as path:
                events = list(trace_events(path))
        except _UNREADABLE as error:
            self._write_message(f"the memory of step {step} could not be measured: {first_line(error)}")
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

    def _finish(self, rank: int) -> None:
        """Read the trace, exchange it with all processes and write the files. An error does not end the training."""
        self._done = 0
        has_gathered = False
        try:
            with self._exported() as path:
                time = step_time(records_of(trace_events(path)))
                own_profile = RankProfile(rank=rank, time=time, memory=self._memory)
                has_gathered, profiles = True, processes.gather(own_profile)
                ranks = [profile for profile in profiles if profile is not None]
                if len(ranks) == len(profiles):
                    self._write(rank, ranks, path)
        except _UNREADABLE as error:
            if not has_gathered:
                processes.gather(None)  # the others wait for it
            self._write_message(f"there is no profile: {first_line(error)}")
        self.abandon()

    def _write(self, rank: int, ranks: list[RankProfile], trace: Path) -> None:
        slowest = slowest_of(ranks).rank
        traces = {number: TRACE if number == 0 else f"trace-rank-{number}.json.gz" for number in sorted({0, slowest})}
        self._folder.mkdir(parents=True, exist_ok=True)
        if rank in traces:
            with trace.open("rb") as plain, gzip.open(self._folder / traces[rank], "wb", 6) as packed:
                shutil.copyfileobj(plain, packed)
        if rank != 0:
            return
        page = self._page(ranks, traces)
        (self._folder / "profile.md").write_text(page.as_markdown())
        write_json(self._folder / PROFILE_JSON, page.as_json())

    def _page(self, ranks: list[RankProfile], traces: dict[int, str]) -> Profile:
        spec, plan = self._document.spec, self._document.plan
        circumstances = Circumstances(
            spec=spec,
            batch=plan.per_device_train_batch_size,
            accumulation=plan.gradient_accumulation_steps,
            precision=device.choose_precision(spec.precision),
            has_bf16=device.has_bf16(),
            processes=spec.degrees.devices,
        )
        described = {
            "device": device.device_name(),
            "precision": circumstances.precision,
            "strategy": spec.strategy,
            "processes": circumstances.processes,
            "threads": torch.get_num_threads(),
            "per_device_train_batch_size": circumstances.batch,
            "gradient_accumulation_steps": circumstances.accumulation,
            "torch": importlib.metadata.version("torch"),
        }
        return Profile(
            ranks=ranks,
            first_step=self._first,
            circumstances=described,
            advice=advice_of(ranks[0].time, circumstances),
            traces=traces,
        )

    def _write_message(self, message: str) -> None:
        self._metrics.events.write(0, {}, message=message)


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
