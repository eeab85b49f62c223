"""Records a training run: its events, curves and speed. Exchanges losses and stop requests between processes."""

import gc
import math
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import distributed
from torch.profiler import record_function

from paretune.estimating.workload import warmup_steps
from paretune.specification.container import Event
from paretune.training import device, processes
from paretune.training.optimizer import Update

NOT_TRAINING = "paretune: evaluation or checkpoint"  # name of blocks in a profile that are not training
DIVERGED_STEPS = 10  # consecutive optimizer steps without a finite loss and norm after which training ends
LOAD_S = 10.0  # at least this long between two measurements of the machine's load, as in MLflow
_GPU_USE = re.compile(r"system/gpu_\d+_utilization_percentage")
FEWEST_LOADS = 5  # measurements after the warm-up below which the load of the GPUs is not judged
AGREE_STEPS, AGREE_S = 10, 5.0  # maximum steps and seconds between two exchanges; one step may take longer


class Diverged(Exception):
    """The loss, its gradients or the weights are not finite numbers, so training cannot recover."""


class EventWriter:
    """Appends events as lines to the file `path`, and prints them. Does nothing without a path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(
        self, step: int, metrics: Mapping[str, Any], *, total_steps: int | None = None, message: str = ""
    ) -> None:
        """Write an event with these metrics; values that are not finite numbers are left out."""
        numbers = {name: float(value) for name, value in metrics.items() if math.isfinite(float(value))}
        if self._path is None or not (numbers or message):
            return
        event = Event(time=time.time(), step=step, metrics=numbers, message=message, total_steps=total_steps)
        with self._path.open("a") as file:
            file.write(event.line() + "\n")
        print(event.line(), flush=True)


class Stopwatch:
    """Measures the seconds spent training. Each reading first waits until the device has finished its queued work."""

    def __init__(self) -> None:
        self._seconds = self._since = 0.0
        self.is_running = False

    def start(self) -> None:
        """Start, or continue after a stop."""
        device.synchronize()
        self._since, self.is_running = time.perf_counter(), True

    def stop(self) -> None:
        """Stop; `start` continues."""
        self._seconds, self.is_running = self.seconds(), False

    def seconds(self) -> float:
        """Return the seconds measured so far."""
        device.synchronize()
        return self._seconds + (time.perf_counter() - self._since if self.is_running else 0.0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the block from the measured seconds."""
        was_running = self.is_running
        self.stop()
        with record_function(NOT_TRAINING):
            yield
        if was_running:
            self.start()


class Meter:
    """Measures losses and speed from step `first` to step `total`, and exchanges values between processes.

    Speed is rows and tokens per second after the warm-up, without evaluations, checkpoints and profiled steps.

    All processes must stop or save after the same step. Otherwise, a collective operation would wait for a process that
    never joins. On GPUs, collectives are queued, so processes may be several steps apart. Therefore they exchange their
    requests after the same steps: every ten, or more often if a step takes longer than half a second, and at each log,
    evaluation and checkpoint. The host waits for the device only at these exchanges, and when the stopwatch is read.
    """

    def __init__(self, first: int, total: int, place: torch.device) -> None:
        self.stopwatch = Stopwatch()
        self.warm_step = first + warmup_steps(total - first)  # last step of the warm-up
        self._place, self._last_exchange, self.next_exchange = place, first, first + 1
        self._losses: list[torch.Tensor] = []  # of this process's micro-batches since the last exchange
        self._counts: list[int] = []  # number of micro-batches in each of these steps
        self._logged: list[float] = []  # losses of the steps since the last point of the curves
        self._updates: list[Update] = []  # of these steps
        self._skipped = 0  # steps that were skipped since the last call of `skipped_steps`
        self._not_finite = 0  # consecutive steps so far without a finite loss or norm
        self._rows = self._tokens = 0  # of all devices: the sampler counts them without communication
        self._warm: tuple[float, int, int] | None = None  # seconds, rows, tokens at the end of the warm-up
        self._last = (0.0, 0)  # seconds and rows at the last point of the curves
        self._load_due_at = 0.0
        self._gpu_use: list[
            float
        ] = []  # mean share of this machine's GPUs in use, at each measurement after the warm-up
        psutil.cpu_percent()  # the first call starts the interval and returns 0
        self._exchanged_at = time.perf_counter()
        self.stopwatch.start()

    def count(self, step: int, losses: list[torch.Tensor], update: Update, rows: int, tokens: int) -> None:
        """Record a step: the losses of this process's micro-batches, its update, and rows and tokens of all devices.

        The losses must be weighted like the gradients: their sum, averaged over processes, is the loss of the step.
        """
        self._losses += losses
        self._counts.append(len(losses))
        self._updates.append(update)
        if self.stopwatch.is_running:
            self._rows, self._tokens = self._rows + rows, self._tokens + tokens
        if step == self.warm_step:
            self._warm = (self.stopwatch.seconds(), self._rows, self._tokens)

    def exchange(self, step: int, norm: torch.Tensor, *, stops: bool, saves: bool) -> tuple[bool, bool, float]:
        """Tell all processes whether this one wants to stop or save after this step.

        Returns whether any process wants to stop, whether any wants to save, and the norm of the gradients. All
        processes must call this after the same step. Raises Diverged if the loss or the norm of the gradients was not
        finite for ten steps in a row. In fp16, a norm counts only if the loss is not scaled up.
        """
        seconds = (time.perf_counter() - self._exchanged_at) / max(1, step - self._last_exchange)  # per step
        wanted = torch.tensor([float(stops), float(saves), seconds], device=self._place)
        flags = [flag for update in self._updates for flag in (update.is_skipped, update.is_lost)]
        shown = torch.stack([norm.to(self._place), *(flag.to(self._place) for flag in flags)]).float()
        values = torch.cat([wanted, shown, torch.stack(self._losses).float()])
        if distributed.is_initialized():
            distributed.all_reduce(values)
            values /= distributed.get_world_size()
        stop_share, save_share, seconds, mean_norm, *rest = values.tolist()
        losses = iter(rest[len(flags) :])
        for count, is_skipped, is_lost in zip(
            self._counts, rest[: len(flags) : 2], rest[1 : len(flags) : 2], strict=True
        ):
            loss = sum(islice(losses, count))
            self._logged.append(loss)
            self._skipped += is_skipped > 0
            self._not_finite = self._not_finite + 1 if is_lost > 0 or not math.isfinite(loss) else 0
            if self._not_finite >= DIVERGED_STEPS:
                rule = "the loss or the norm of its gradients was not a finite number (NaN or infinite)"
                raise Diverged(f"{rule} for {DIVERGED_STEPS} steps in a row")
        self._losses, self._counts, self._updates = [], [], []
        gc.collect(1)  # the loop has switched automatic collections off
        self._exchanged_at, self._last_exchange = time.perf_counter(), step
        self.next_exchange = step + max(1, int(min(AGREE_STEPS, AGREE_S / max(seconds, 1e-9))))
        return stop_share > 0, save_share > 0, mean_norm

    def skipped_steps(self) -> int:
        """Return how many steps were skipped since the last call, as far as the processes have exchanged them."""
        skipped, self._skipped = self._skipped, 0
        return skipped

    def curves(self) -> dict[str, float]:
        """Return mean loss and throughput since the last call.

        At most every ten seconds, the first process, which records them, adds the machine's load.
        """
        seconds, rows = self.stopwatch.seconds(), self._rows
        (before_s, before_rows), self._last = self._last, (seconds, rows)
        curves = {"train/loss": sum(self._logged) / len(self._logged)}
        self._logged = []
        if processes.is_first() and time.perf_counter() >= self._load_due_at:
            self._load_due_at = time.perf_counter() + LOAD_S
            load = device.load()
            used = [percent / 100 for name, percent in load.items() if _GPU_USE.fullmatch(name)]
            if used and self._warm is not None:
                self._gpu_use.append(sum(used) / len(used))
            curves |= load
        if seconds > before_s and rows > before_rows:
            curves["train/samples_per_second"] = (rows - before_rows) / (seconds - before_s)
        return curves

    def gpu_idle_share(self) -> float | None:
        """Return the share of the time after the warm-up in which this machine's GPUs were idle; None if unknown."""
        if len(self._gpu_use) < FEWEST_LOADS:
            return None
        return 1 - sum(self._gpu_use) / len(self._gpu_use)

    def throughput(self) -> tuple[float, float] | None:
        """Return samples and tokens per second after the warm-up, or None if there was no measured step after it."""
        if self._warm is None:
            return None
        seconds, rows, tokens = self._warm
        elapsed = self.stopwatch.seconds() - seconds
        if self._rows <= rows or elapsed <= 0:
            return None
        return (self._rows - rows) / elapsed, (self._tokens - tokens) / elapsed
