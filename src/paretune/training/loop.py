"""Runs the steps of a training run. Between steps it evaluates, writes checkpoints, and stops on request.

    a step:  its rows, the same for any number of processes -> this device's micro-batches
             -> summed loss / number of labels of all rows -> backward -> clip -> AdamW at the scheduled rate
    after:   the processes exchange values, at least every ten steps -> curves, evaluation, checkpoint, stop

For example, take 64 rows per step on two processes in micro-batches of 16. `GlobalBatchSampler.rows` gives both
processes the same 64 rows, so each can count the labels of the step without asking the other. `micro_batches` cuts the
rows into two parts of 32, and each process takes every second row of a part. The loss of a micro-batch is summed over
its labels and divided by the number of labels in all 64 rows. It is then doubled, because DDP averages the gradients of
the two processes. The first micro-batch only accumulates gradients, in fp32. After the second, the processes exchange
them and both make the same update, or none if the gradients are not finite numbers. If a part has fewer rows than there
are processes, a process without a row computes a row of another process and multiplies its loss by 0.

The random numbers of a step depend only on seed, step and rank. So if a job continues on the same number of devices,
its result is the same as without a stop (except that with fp16 the loss scale may grow at a later step). If it
continues on a different number of devices, it trains on the same rows but with different dropout.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import torch
from torch import distributed
from torch.profiler import record_function

from paretune.estimating.workload import Schedule
from paretune.specification.container import CHECKPOINT_EVERY_S, JobFolder
from paretune.specification.metrics import SKIPPED_STEPS
from paretune.training import checkpoints, processes
from paretune.training.arguments import Arguments, schedule_of
from paretune.training.meter import Diverged, EventWriter, Meter
from paretune.training.optimizer import MasterAdamW, Update
from paretune.training.profile import BATCH, Profile
from paretune.training.rows.tokenized import GlobalBatchSampler, TokenRows
from paretune.training.strategies import Replicas
from paretune.training.tasks import SummedLoss

_BETWEEN_SAVES = 20.0  # shortest time between checkpoints on spot, as a multiple of the time to write one


@contextmanager
def _no_automatic_collection() -> Iterator[None]:
    """Switch off automatic garbage collection inside the block: a collection in one process makes all others wait.

    Instead, `Meter.exchange` collects garbage in all processes after the same step. Objects created before the block
    are frozen, so collections do not examine them.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


@dataclass
class Progress:
    """The progress of a training run: everything in a checkpoint that is not a tensor."""

    step: int = 0  # completed optimizer steps
    best: float | None = None  # best metric so far; higher is better, so losses are negated
    best_step: int | None = None
    loss_scale: float | None = None
    skipped_steps: int = 0  # steps whose gradients were not finite numbers


class Loop:
    """One training run of the model in `strategy`.

    Training minimizes the function `loss`. `evaluate` measures the model and returns its metrics, one of them named
    "loss". `sampler` chooses which `rows` each step trains on. Checkpoints, curves and the profile are written into
    `folder`. On spot instances (`on_spot`), a checkpoint is also written every two minutes, or less often if
    checkpoints would take more than a twentieth of the time.
    """

    def __init__(
        self,
        strategy: Replicas,
        optimizer: MasterAdamW,
        rows: TokenRows,
        sampler: GlobalBatchSampler,
        arguments: Arguments,
        *,
        loss: SummedLoss,
        evaluate: Callable[[], dict[str, float]],
        folder: JobFolder,
        on_spot: bool = False,
    ) -> None:
        self.strategy, self.optimizer, self.arguments = strategy, optimizer, arguments
        self.rows, self._sampler = rows, sampler
        self._rate_of = schedule_of(arguments, optimizer.inner.defaults["lr"])
        self.progress = Progress()
        self._evaluation: dict[str, float] | None = None  # metrics of the model in its current state
        self._best: dict[str, torch.Tensor] = {}  # the best weights so far, with load_best_model_at_end
        self.events = EventWriter(folder.events if processes.is_first() else None)
        self._loss, self._evaluate, self._folder, self._on_spot = loss, evaluate, folder, on_spot

    def resume(self) -> bool:
        """Load the newest checkpoint that is complete in all processes. Returns False if there is none."""
        checkpoint = checkpoints.agree(self._folder.checkpoints)
        if checkpoint is None:
            return False
        self.progress = progress = Progress(**checkpoints.progress(checkpoint))
        if progress.best_step is not None:
            self._keep_best()
        checkpoints.read(checkpoint, self.optimizer.state() | self._best)
        self.optimizer.round()
        if progress.loss_scale is not None and self.optimizer.scale is not None:
            self.optimizer.scale.fill_(progress.loss_scale)
        self.events.write(0, {}, message=f"continuing from {checkpoint.name}")
        return True

    def run(self, stop_requested: Callable[[], bool], profile_steps: int | None = None) -> bool:
        """Train to the last step and return True, or stop earlier, write a checkpoint and return False.

        Once `stop_requested` returns true in any process, all processes stop at their next exchange: after at most ten
        steps or about five seconds, whichever comes first, but never within a step. If an evaluation is due at that
        step, it comes before the checkpoint.
        """
        self.meter = meter = Meter(self.progress.step, self.arguments.max_steps, self.strategy.device)
        profile = None
        if profile_steps is not None and processes.is_first():
            profile = Profile(meter.warm_step + 1, profile_steps, self._folder.profile, meter.stopwatch, self.events)
        self._save_due_at, stops = time.perf_counter() + CHECKPOINT_EVERY_S, False
        with _no_automatic_collection():
            for step in range(self.progress.step, self.arguments.max_steps):
                for group in self.optimizer.inner.param_groups:
                    group["lr"] = rate = self._rate_of(step)
                update = self._step(step)
                stops = self._after_step(rate, update, stop_requested())
                if profile is not None:
                    profile.after(step + 1, self.arguments.max_steps)
                if stops:
                    break
        meter.stopwatch.stop()
        if stops:
            message = f"stopped after step {self.progress.step}, checkpoint written"
            self.events.write(self.progress.step, {}, message=message)
            return False
        if self._best and self.progress.best_step != self.progress.step:
            for name, weight in self.optimizer.weights().items():
                weight.copy_(self._best[f"best.{name}"])
            self.optimizer.round()
            self._evaluation = None
        self._require_finite_weights()
        return True

    def _step(self, step: int) -> Update:
        """Perform optimizer step `step`, counted from 0."""
        strategy, rows = self.strategy, self._sampler.rows(step)  # indices into `self.rows`
        torch.manual_seed(hash((self.arguments.seed, step, strategy.rank)))  # for dropout; a rerun gets the same seed
        strategy.model.train()
        micro_batches, losses = self._sampler.micro_batches(step), []
        # Gradients are averaged over `strategy.shares` groups of rows, so each loss is multiplied by that number.
        factor = strategy.shares / max(1, int(self.rows.label_counts[rows].sum()))
        # If `is_real` is false, the rows are another process's. Their loss is multiplied by 0: this process computes
        # them only because the other processes would wait for it.
        for number, (own, is_real) in enumerate(micro_batches, 1):
            is_last = number == len(micro_batches)
            with record_function(BATCH):
                batch = self.rows.batch(own)
            if is_last and strategy.averages_in_backward:
                self.optimizer.round_sums()
            losses.append(
                strategy.backward(
                    batch,
                    replace(self._loss, factor=factor if is_real else 0.0),
                    scale=self.optimizer.scale,
                    is_last=is_last,
                )
            )
            if not is_last:
                self.optimizer.keep_gradients()
        update = self.optimizer.step(strategy.norm)
        self.progress.step, self._evaluation = step + 1, None
        self.meter.count(step + 1, losses, update, len(rows), int(self.rows.lengths[rows].sum()))
        return update

    def _after_step(self, rate: float, update: Update, stop_requested: bool) -> bool:
        """Write curves, evaluate and save when due. Returns whether to stop, which is the same in all processes."""
        arguments, step = self.arguments, self.progress.step
        is_last = step == arguments.max_steps
        logs, evaluates, saves = (
            Schedule(strategy, every).is_due(step, arguments.max_steps, self._sampler.steps)
            for strategy, every in (
                ("steps", arguments.logging_steps),
                (arguments.eval_strategy, arguments.eval_steps or 1),
                (arguments.save_strategy, arguments.save_steps),
            )
        )
        stops = False
        stops_now = stop_requested and not distributed.is_initialized()  # there is no other process to agree with
        if logs or evaluates or saves or is_last or stops_now or step >= self.meter.next_exchange:
            is_late = self._on_spot and time.perf_counter() >= self._save_due_at
            stops, saves_now, norm_value = self.meter.exchange(step, update.norm, stops=stop_requested, saves=is_late)
            self._count_skipped_steps()
            saves = saves or saves_now or stops
            if logs:
                curves = {"learning_rate": rate, "grad_norm": norm_value, "epoch": step / self._sampler.steps}
                self._log({f"train/{name}": value for name, value in curves.items()} | self.meter.curves())
        if evaluates and self._update_best(self.evaluate()):
            saves = saves or arguments.save_strategy == "best"
        if saves and not is_last:  # not needed after the last step: the caller writes the model itself
            self._save()
        return stops and not is_last

    def _count_skipped_steps(self) -> None:
        """Record the steps since the last exchange that were skipped, if any."""
        skipped, progress = self.meter.skipped_steps(), self.progress
        if not skipped:
            return
        progress.skipped_steps += skipped
        reason = "their gradients are not finite numbers (NaN or infinite), so the weights stayed the same"
        message = f"{skipped} of the steps up to {progress.step} skipped: {reason}"
        self.events.write(progress.step, {f"train/{SKIPPED_STEPS}": progress.skipped_steps}, message=message)

    def _require_finite_weights(self) -> None:
        """Raise Diverged if a weight is not a finite number, in any process: such weights are never written."""
        if not all(processes.gather(self.optimizer.is_finite())):
            raise Diverged("a weight is not a finite number (NaN or infinite)")

    def evaluate(self) -> dict[str, float]:
        """Evaluate the model, and log and return its metrics. Later calls reuse them until the weights change."""
        if self._evaluation is None:
            with self.meter.stopwatch.paused():
                self._evaluation = self._evaluate()
            self._log({f"eval/{name}": value for name, value in self._evaluation.items()})
        return self._evaluation

    def _log(self, curves: dict[str, float]) -> None:
        """Add a point to each of these curves, and print them as one line of the log."""
        step, total = self.progress.step, self.arguments.max_steps
        if processes.is_first():
            shown = [f"{name} {value:.4g}" for name, value in curves.items() if not name.startswith("system/")]
            print(f"step {step} of {total}: {', '.join(shown)}", flush=True)
        self.events.write(step, curves, total_steps=total)

    def _update_best(self, values: dict[str, float]) -> bool:
        """Remember this evaluation if it is the best so far. Returns whether it is."""
        name, progress = (self.arguments.metric_for_best_model or "loss").removeprefix("eval_"), self.progress
        value = values.get(name, math.nan) * (1 if self.arguments.greater_is_better else -1)
        is_best = math.isfinite(value) and (progress.best is None or value > progress.best)
        if is_best:
            progress.best, progress.best_step = value, progress.step
            self._keep_best()
        return is_best

    def _keep_best(self) -> None:
        """Copy the current weights to main memory if load_best_model_at_end is set.

        `_update_best` calls this when the current weights are the best so far. `resume` calls it to allocate the
        tensors into which it reads the best weights. At the end of training, the best weights cannot be read from a
        checkpoint, because each instance has only the files that its own processes wrote.
        """
        if self.arguments.load_best_model_at_end:
            weights = self.optimizer.weights()
            self._best = {f"best.{name}": weight.to("cpu", copy=True) for name, weight in weights.items()}

    def _save(self) -> None:
        began, progress = time.perf_counter(), self.progress
        path = self._folder.checkpoints / f"checkpoint-{progress.step}"
        scale = self.optimizer.scale
        progress.loss_scale = None if scale is None else float(scale)
        with self.meter.stopwatch.paused():
            self._require_finite_weights()
            keep = self.arguments.save_total_limit
            checkpoints.write(path, self.optimizer.state() | self._best, asdict(progress), keep=keep)
        now = time.perf_counter()
        self._save_due_at = now + max(CHECKPOINT_EVERY_S, _BETWEEN_SAVES * (now - began))
