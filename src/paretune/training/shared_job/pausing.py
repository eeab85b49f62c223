"""Trainings that pause at an optimiser step and continue later as if they had never paused.

A paused training is a thread that waits inside its Trainer, so that model, optimiser, sampler and data loader stay as
they are. Its random numbers and settings are those of the thread (cooperative_threads). If memory is short, its tensors
are moved to main memory, or the thread ends and the training continues from its checkpoint.
"""

import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerState

from paretune.core.errors import first_line
from paretune.estimating.paused_states import state_bytes
from paretune.specification.job import JobSpec
from paretune.specification.metrics import TASKS
from paretune.training.shared_job.cooperative_threads import CooperativeThread, RandomState
from paretune.training.strategies import Strategy
from paretune.training.trainer import LengthGroupedTrainer


class TrialInterrupted(Exception):
    """A paused training is left as it is; its thread ends."""


class Pausable(Strategy):
    """Plain data parallelism with a Trainer that pauses at optimiser step `pause_at`.

    `frozen` holds the frozen weights of the trials before, which this one shares.
    """

    def __init__(self, spec: JobSpec, *, thread: CooperativeThread, pause_at: int, frozen: dict[Any, Any]) -> None:
        super().__init__(spec)
        self._thread = thread
        self._pause_at = pause_at
        self._frozen = frozen

    def make(self, build: Callable[[], Any]) -> Any:
        """The model, with the frozen weights of earlier trials where they are equal."""
        model = build()
        share_frozen(model, self._frozen)
        return model

    def trainer(self, **arguments: Any) -> LengthGroupedTrainer:
        """A Trainer that pauses."""
        return PausableTrainer(spec=self.spec, thread=self._thread, pause_at=self._pause_at, **arguments)


def share_frozen(model: Any, pool: dict[Any, Any]) -> None:
    """Replace frozen parameters by equal ones of the same name in `pool`, and add the others to it."""
    for prefix, module in model.named_modules():
        for name, item in module._parameters.items():
            if type(item) is torch.nn.Parameter and not item.requires_grad:
                other = pool.setdefault((prefix, name, item.shape, item.dtype), item)
                if other is not item and torch.equal(other, item.to(other.device)):
                    module._parameters[name] = other


class PausableTrainer(LengthGroupedTrainer):
    """A Trainer that evaluates its model and pauses when step `pause_at` is done, unless it is the last one."""

    def __init__(self, *, spec: JobSpec, thread: CooperativeThread, pause_at: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._task = TASKS[spec.task]
        self._thread = thread
        self._pause_at = pause_at
        self._saved_step = -1
        self._waiting: RandomState | None = None  # random numbers of the paused training
        self._moved: list[Callable[[], None]] = []
        self.is_between_epochs = False
        self.add_callback(_Moments(self))

    @property
    def is_saved(self) -> bool:
        """Whether there is a checkpoint of the last step."""
        return bool(self._saved_step == self.state.global_step)

    @property
    def quality(self) -> float:
        """The task's first measure in the newest evaluation, negative if less is better; -infinity if there is none."""
        measures = (entry.get(f"eval_{self._task.measures[0]}") for entry in reversed(self.state.log_history))
        value = next((float(measure) for measure in measures if measure is not None), math.inf)
        return value if self._task.direction == "maximize" and math.isfinite(value) else -value

    @property
    def is_on_device(self) -> bool:
        """Whether a device has the state of the paused training, and not main memory."""
        return self.args.device.type != "cpu" and not self._moved

    @property
    def state_bytes(self) -> float:
        """Estimated bytes of the paused training."""
        return state_bytes(sum(item.numel() for item in self.model.parameters() if item.requires_grad))

    def begin(self) -> None:
        """Note the checkpoint that the training continues from, and pause if it is old enough."""
        self._saved_step = self.state.global_step
        self._pause()

    def save(self) -> None:
        """Write a checkpoint of the paused training; any thread may call it."""
        self._save_checkpoint(self.model_wrapped, None)

    def move_to_main_memory(self) -> None:
        """Free the device of the trained weights and the optimiser's state of the paused training."""
        if not self.is_on_device:
            return
        for item in self.model.parameters():
            if item.requires_grad:
                self._move(item.data, item.__setattr__, "data")
        for values in self.optimizer.state.values():
            for name, value in list(values.items()):
                if isinstance(value, torch.Tensor):
                    self._move(value, values.__setitem__, name)
        torch.cuda.empty_cache()

    def _move(self, tensor: torch.Tensor, assign: Callable[[str, Any], None], name: str) -> None:
        """Replace a tensor of the device by a copy in main memory, and note how to undo it."""
        if tensor.device.type != "cpu":
            home, copy = tensor.device, tensor.cpu()
            assign(name, copy)
            self._moved.append(lambda: assign(name, copy.to(home)))

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        super()._maybe_log_save_evaluate(*args, **kwargs)
        self._pause()

    def _pause(self) -> None:
        """Wait while no later step is asked for. After the last step of an epoch, when the epoch has been evaluated."""
        state = self.state
        is_last_of_epoch = state.global_step > 0 and float(state.epoch or 0).is_integer()
        if self.control.should_training_stop or (is_last_of_epoch and not self.is_between_epochs):
            return
        while self._pause_at <= state.global_step < state.max_steps:
            self._waiting = RandomState.now()
            if not self._is_evaluated():
                self.evaluate()
                self._waiting.restore()
            if torch.distributed.is_initialized() and not self.is_saved:  # together: a thread must not communicate
                self.save()
            step = self._thread.ask(self)
            self._waiting = None
            if step is None:
                raise TrialInterrupted
            for undo in self._moved:
                undo()
            self._moved.clear()
            self._pause_at = step

    def _is_evaluated(self) -> bool:
        history = [entry for entry in self.state.log_history if "eval_loss" in entry]
        return bool(history) and history[-1]["step"] == self.state.global_step

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        if not self.is_saved:
            super()._save_checkpoint(*args, **kwargs)
            self._saved_step = self.state.global_step

    def _save_rng_state(self, output_dir: str) -> None:
        random = self._waiting
        if random is None or torch.distributed.is_initialized():
            super()._save_rng_state(output_dir)
            return
        states: Mapping[str, Any] = {"python": random.python, "numpy": random.numpy, "cpu": random.processor}
        if random.gpus:
            states = {**states, "cuda": random.gpus[torch.cuda.current_device()]}
        torch.save(states, Path(output_dir) / "rng_state.pth")  # as transformers does


class _Moments(TrainerCallback):  # type: ignore[misc]  # transformers ships no types for callbacks
    """Tells a `PausableTrainer` when its training and its epochs begin and end."""

    def __init__(self, trainer: PausableTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        self._trainer.is_between_epochs = True
        self._trainer.begin()

    def on_epoch_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        self._trainer.is_between_epochs = False

    def on_epoch_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        self._trainer.is_between_epochs = True


class CheckpointWriter:
    """Writes the checkpoints of paused trainings while others train, one at a time.

    `trainer` is the one whose checkpoint is being written; None if there is none.
    """

    def __init__(self) -> None:
        self.trainer: PausableTrainer | None = None
        self._thread: threading.Thread | None = None

    def begin(self, trainer: PausableTrainer) -> None:
        """Write the checkpoint of a paused training from now on."""
        self.wait()
        self.trainer = trainer
        self._thread = threading.Thread(target=self._write, args=(trainer,), name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Return when no checkpoint is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = self.trainer = None

    def _write(self, trainer: PausableTrainer) -> None:
        try:
            if torch.cuda.is_available():
                torch.cuda.set_device(trainer.args.device)
            trainer.save()
        except Exception as error:  # the training itself is whole
            sentence = f"no checkpoint of the paused trial could be written: {first_line(error)}"
            trainer.callback.events.write(trainer.state.global_step, {}, message=sentence)
