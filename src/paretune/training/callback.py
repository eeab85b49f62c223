"""Callbacks of the Hugging Face Trainer: events, throughput, stop requests and profiles of a training."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # documented there
from torch.profiler import ProfilerAction, ProfilerActivity, profile, record_function
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from paretune.core.errors import first_line
from paretune.core.script_metrics import finite_numbers
from paretune.estimating.workload import warmup_steps
from paretune.specification.container import CHECKPOINT_EVERY_S, PROFILE_JSON, Event, write_json
from paretune.training import checkpoints, device, processes
from paretune.training.rows.tokenised import GlobalBatchSampler

_STEP = "ProfilerStep"  # torch's name of a block that is one optimiser step with its data and log begins so
_NOT_TRAINING = "paretune: evaluation or checkpoint"  # block of a profile that does not belong to the training
_COMMUNICATION = ("c10d::", "_c10d_functional::", "record_param_comms", "gloo:", "nccl")
_DEAREST = 20  # number of operators in profile.md


class EventWriter:
    """Appends events as lines to `path` and standard output, to neither with None."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(
        self, step: int, metrics: Mapping[str, Any], *, total_steps: int | None = None, message: str = ""
    ) -> None:
        """Write an event with these metrics; values that are not finite numbers are left out."""
        numbers = finite_numbers(metrics)
        if self._path is None or not (numbers or message):
            return
        event = Event(time=time.time(), step=step, metrics=numbers, message=message, total_steps=total_steps)
        with self._path.open("a") as file:
            file.write(event.line() + "\n")
        print(event.line(), flush=True)


class Stopwatch:
    """Seconds spent training, once the device has done its queued work."""

    def __init__(self) -> None:
        self._seconds = self._since = 0.0
        self.is_running = False

    def start(self) -> None:
        """Start or continue."""
        device.synchronize()
        self._since, self.is_running = time.perf_counter(), True

    def stop(self) -> None:
        """Stop; `start` continues."""
        self._seconds, self.is_running = self.seconds(), False

    def seconds(self) -> float:
        """Seconds measured so far."""
        device.synchronize()
        return self._seconds + (time.perf_counter() - self._since if self.is_running else 0.0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the block from the measured seconds."""
        was_running = self.is_running
        self.stop()
        with record_function(_NOT_TRAINING):
            yield
        if was_running:
            self.start()


DIVERGED_STEPS = 10  # optimiser steps in a row whose loss is not a finite number, after which a training is given up
AGREE_STEPS, AGREE_S = 10, 5.0  # most optimiser steps, and seconds, between two exchanges of the processes
_BETWEEN_SAVES = 20.0  # least seconds between two checkpoints, as a multiple of those that one takes


class Diverged(Exception):
    """The training cannot recover, because its weights are no longer finite numbers."""


class MetricsCallback(TrainerCallback):  # type: ignore[misc]  # transformers ships no types for callbacks
    """Writes curves as events, measures throughput, and stops the training on request.

    Throughput is rows per second after the warm-up. Evaluation, checkpoints and profiled steps are excluded. A training
    `on_spot` instances writes a checkpoint every two minutes, less often if it would take a twentieth of the time.

    All processes must stop or save after the same step, or a collective operation waits forever. On GPUs collectives
    are queued, so that processes may be several steps apart. Hence they exchange what each of them wants, after the
    same steps: every ten, or more often if a step takes longer than half a second.
    """

    def __init__(
        self,
        events: EventWriter,
        sampler: GlobalBatchSampler,
        lengths: np.ndarray,
        stop_requested: Callable[[], bool],
        *,
        on_spot: bool = False,
    ) -> None:
        self.stopwatch = Stopwatch()
        self.checkpoints_kept: int | None = None  # number of complete ones that stay; None for all
        self._pause: AbstractContextManager[None] = nullcontext()
        self.stopped_at: int | None = None  # step after which the training stopped on request; None if it did not
        self.events = events
        self._sampler, self._lengths = sampler, lengths  # of the tokens of each row
        self._rows = self._tokens = 0  # trained on by all devices, as the sampler tells without communication
        self._stop_requested = stop_requested
        self._saves_often = on_spot
        self._not_finite = torch.zeros(())  # batches in a row without a finite loss: read rarely, a GPU waits for it
        self._agreed_at, self._agreed_step, self._agree_step = time.perf_counter(), 0, 0
        self._save_begun_at = time.perf_counter()
        self._save_due_at = self._save_begun_at + CHECKPOINT_EVERY_S
        self._warm: tuple[float, int, int] | None = None  # seconds, rows, tokens at the end of the warm-up
        self.warm_step = 0  # last step of the warm-up
        self._last = (0.0, 0)  # seconds and rows at the last log

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Start the stopwatch and set the number of warm-up steps."""
        self.warm_step = state.global_step + warmup_steps(state.max_steps - state.global_step)
        self._agreed_at, self._agreed_step = time.perf_counter(), state.global_step
        psutil.cpu_percent()  # the first call starts the interval and returns 0
        self.stopwatch.start()

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Set the epoch of the sampler, also when the training resumes inside an epoch."""
        self._sampler.set_epoch(int(state.epoch or 0))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Count the step, unless it is profiled; save or stop if a process asks for it, or has diverged."""
        if self.stopwatch.is_running:
            epoch, index = divmod(state.global_step - 1, self._sampler.steps)
            rows = self._sampler.epoch_steps(epoch)[index]
            self._rows += len(rows)
            self._tokens += int(self._lengths[rows].sum())
        if state.global_step == self.warm_step:
            self._warm = (self.stopwatch.seconds(), self._rows, self._tokens)
        if state.global_step >= self._agree_step:
            stops, saves, seconds, not_finite = self._agree(args, state.global_step)
            self._agree_step = state.global_step + max(1, int(min(AGREE_STEPS, AGREE_S / max(seconds, 1e-9))))
            if not_finite >= DIVERGED_STEPS * args.gradient_accumulation_steps:
                raise Diverged(f"the loss is not a finite number (NaN or infinite) for {DIVERGED_STEPS} steps in a row")
        else:  # a process that is alone can stop at once
            stops, saves = not torch.distributed.is_initialized() and self._stop_requested(), False
        if saves:
            self._save_begun_at = time.perf_counter()
        if stops:
            self.stopped_at = state.global_step
            control.should_training_stop = True
        if stops or saves:
            control.should_save = True

    def count_loss(self, loss: torch.Tensor) -> None:
        """Count the loss of a micro-batch in this process, without waiting for the device."""
        self._not_finite = torch.where(
            torch.isfinite(loss).all(), 0, self._not_finite.to(loss.device, non_blocking=True) + 1
        )

    def _agree(self, args: TrainingArguments, step: int) -> tuple[bool, bool, float, float]:
        """The most that any process asks for: to stop, to save, seconds of a step, batches without a finite loss."""
        now = time.perf_counter()
        saves = self._saves_often and now >= self._save_due_at
        seconds = (now - self._agreed_at) / max(1, step - self._agreed_step)
        self._agreed_at, self._agreed_step = now, step
        wanted = torch.tensor([float(self._stop_requested()), float(saves), seconds], device=self._not_finite.device)
        flags = torch.cat([wanted, self._not_finite.reshape(1).to(wanted.dtype)])
        if torch.distributed.is_initialized():
            flags = flags.to(args.device)
            torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MAX)
        stops, saves, seconds, not_finite = flags.tolist()
        return bool(stops), bool(saves), seconds, not_finite

    def begin_save(self, checkpoint: Path) -> None:
        """Stop the stopwatch until `on_save`; `checkpoint` is no longer complete."""
        self._pause = self.stopwatch.paused()
        self._pause.__enter__()
        if processes.is_first():
            (checkpoint / checkpoints.COMPLETE).unlink(missing_ok=True)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Mark the checkpoint as complete, and set when the next one of a training on spot instances is due."""
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        checkpoints.seal(checkpoint, keep=self.checkpoints_kept, best=state.best_model_checkpoint)
        self._pause.__exit__(None, None, None)
        now = time.perf_counter()
        self._save_due_at = now + max(CHECKPOINT_EVERY_S, _BETWEEN_SAVES * (now - self._save_begun_at))

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Save no checkpoint at the end of the training, when the model is saved, unless it may be the best one."""
        if state.global_step >= state.max_steps and not args.load_best_model_at_end:
            control.should_save = False

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: dict[str, Any], **_: Any
    ) -> None:
        """Write loss, learning rate and gradient norm, with throughput and load since the last call."""
        if "loss" not in logs:
            return
        seconds, rows = self.stopwatch.seconds(), self._rows
        (before_s, before_rows), self._last = self._last, (seconds, rows)
        curves = {f"train/{name}": logs.get(name) for name in ("loss", "learning_rate", "grad_norm", "epoch")}
        if seconds > before_s and rows > before_rows:
            curves["train/samples_per_second"] = (rows - before_rows) / (seconds - before_s)
        curves |= device.load()
        self.events.write(state.global_step, curves, total_steps=state.max_steps)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metrics: dict[str, float], **_: Any
    ) -> None:
        """Write the metrics of the evaluation."""
        curves = {
            f"eval/{name.removeprefix('eval_')}": value
            for name, value in metrics.items()
            if name.startswith("eval_") and not name.endswith(("_runtime", "_per_second"))
        }
        self.events.write(state.global_step, curves, total_steps=state.max_steps)

    def throughput(self) -> tuple[float, float] | None:
        """(Samples per second, tokens per second) after the warm-up; None if no step followed it."""
        if self._warm is None:
            return None
        seconds, rows, tokens = self._warm
        elapsed = self.stopwatch.seconds() - seconds
        if self._rows <= rows or elapsed <= 0:
            return None
        return (self._rows - rows) / elapsed, (self._tokens - tokens) / elapsed


class ProfileCallback(TrainerCallback):  # type: ignore[misc]  # transformers ships no types for callbacks
    """Profiles `steps` optimiser steps after the warm-up, and writes trace and table of them into `folder`.

    The stopwatch of `metrics` stands still in these steps, so that neither their time nor their rows count.
    """

    def __init__(self, steps: int, folder: Path, metrics: MetricsCallback) -> None:
        self._steps, self._folder, self._metrics = steps, folder, metrics
        self._profiler: Any = None

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Begin the profile, or after its last step write it."""
        first = self._metrics.warm_step + 1
        last = min(first + self._steps - 1, state.max_steps)
        if self._profiler is not None:
            device.synchronize()
            if state.global_step < last:
                self._profiler.step()
            else:
                self._profiler.stop()
                self._metrics.stopwatch.start()
                self._write(self._profiler, first, last - first + 1)
                self._profiler = None
        elif state.global_step + 1 == first <= last:
            self._metrics.stopwatch.stop()
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.has_gpu() else [])]
            self._profiler = profile(activities=activities, schedule=lambda _: ProfilerAction.RECORD)
            self._profiler.start()

    def _write(self, profiler: Any, first_step: int, steps: int) -> None:
        """Write the files. An error, as on a full disk, does not end the training."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            profiler.export_chrome_trace(str(self._folder / "trace.json.gz"))
            averages = profiler.key_averages()
            total_us, shares = shares_of(averages)
            step_ms = total_us / steps / 1000
            parts = ", ".join(f"{name} {share:g} %" for name, share in shares.items() if share)
            summary = f"{parts} of {step_ms:,.1f} ms per step"
            described = {"first_step": first_step, "steps": steps, "step_ms": step_ms, "shares_percent": shares}
            write_json(self._folder / PROFILE_JSON, {"summary": summary, **described})
            by = f"self_{'device' if device.has_gpu() else 'cpu'}_time_total"
            table = averages.table(sort_by=by, row_limit=_DEAREST, max_name_column_width=60)
            page = f"# Profile\n\n{summary}. Open trace.json.gz in https://ui.perfetto.dev.\n\n```text\n{table}\n```\n"
            (self._folder / "profile.md").write_text(page)
        except (OSError, RuntimeError) as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._metrics.events.write(0, {}, message=f"there is no profile: {first_line(error)}")


def shares_of(averages: Iterable[Any]) -> tuple[float, dict[str, float]]:
    """Microseconds of all steps in torch's `key_averages`, and per cent of them by part.

    If there are kernels of a GPU, their time is that of its parts; else the time of operators. `idle` is what remains:
    Python between operators, and waiting.
    """
    items = list(averages)
    here = [item for item in items if item.device_type == DeviceType.CPU]
    kernels = [item for item in items if item not in here and not getattr(item, "is_user_annotation", False)]

    def total(beginning: str, column: str = "device_time_total" if kernels else "cpu_time_total") -> float:
        return float(sum(getattr(item, column) for item in here if item.key.startswith(beginning)))

    whole = total(_STEP, "cpu_time_total") - total(_NOT_TRAINING, "cpu_time_total")
    data, optimiser = total("enumerate(DataLoader)", "cpu_time_total"), total("Optimizer.")
    if kernels:
        times = {item.key: float(item.self_device_time_total) for item in kernels}
        busy = sum(times.values()) - total(_NOT_TRAINING)
        idle = whole - busy - data
    else:
        times = {item.key: float(item.self_cpu_time_total) for item in here}
        idle = total(_STEP, "self_cpu_time_total")
        busy = whole - data - idle
    communication = sum(time for key, time in times.items() if key.startswith(_COMMUNICATION))
    compute = busy - optimiser - communication
    parts = {"compute": compute, "optimiser": optimiser, "communication": communication, "data": data, "idle": idle}
    return whole, {name: round(100 * max(0.0, time) / whole, 1) for name, time in parts.items()}
