"""The Hugging Face Trainer with our batches and default arguments."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import Trainer, TrainingArguments

from paretune.estimating.workload import EVALUATIONS, LEAST_EVALUATED_ROWS
from paretune.specification.container import CHECKPOINTS_KEPT, JobDocument
from paretune.training import checkpoints, device, processes
from paretune.training.callback import MetricsCallback
from paretune.training.rows.batches import GlobalBatchSampler

LOG_POINTS = 50
"""Least number of points on a training curve; all steps if there are fewer."""
DIVERGED_STEPS = 10
"""Optimiser steps in a row whose loss is not a finite number, after which a training is given up."""


class Diverged(Exception):
    """The training cannot recover, because its weights are no longer finite numbers."""


def training_arguments(
    document: JobDocument, output: Path, *, steps_per_epoch: int, of_strategy: Mapping[str, Any] | None = None
) -> TrainingArguments:
    """The Trainer's arguments for this job, with checkpoints in `output`.

    The user's `training_arguments` override the defaults of the strategy, which override those here.
    """
    spec, plan = document.spec, document.plan
    options = _default_options(document, steps_per_epoch) | dict(of_strategy or {}) | dict(spec.training_arguments)
    if spec.probe_steps:
        options |= {"max_steps": spec.probe_steps, "eval_strategy": "no", "save_strategy": "no"}
    return TrainingArguments(
        output_dir=str(output),
        learning_rate=plan.learning_rate,
        per_device_train_batch_size=plan.per_device_train_batch_size,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
        num_train_epochs=spec.num_train_epochs,
        seed=spec.seed,
        **options,
    )


def _default_options(document: JobDocument, steps_per_epoch: int) -> dict[str, Any]:
    """Precision, and when to log, evaluate and write checkpoints, unless the strategy or the user says otherwise."""
    spec = document.spec
    precision = device.choose_precision(spec.precision)
    limit = spec.probe_steps or int(spec.training_arguments.get("max_steps", -1))  # no limit unless positive
    total = limit if limit > 0 else int(np.ceil(steps_per_epoch * spec.num_train_epochs))
    by_steps = spec.num_train_epochs < EVALUATIONS or limit > 0
    return {
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        "torch_compile": spec.compiler == "inductor",
        "disable_tqdm": True,
        "report_to": "none",
        "logging_steps": max(1, min(50, total // LOG_POINTS)),
        "logging_nan_inf_filter": False,  # the filter waits for the GPU in every step and hides NaN
        "save_strategy": "epoch",
        "save_total_limit": CHECKPOINTS_KEPT if spec.on_sagemaker else 1,
        "per_device_eval_batch_size": max(LEAST_EVALUATED_ROWS, document.plan.per_device_train_batch_size),
        "remove_unused_columns": False,  # batches are already tensors
        "use_cpu": not device.has_gpu(),
        "ddp_broadcast_buffers": False,  # buffers such as position ids are constant
        "prediction_loss_only": spec.task == "causal-lm",
        "eval_strategy": "steps" if by_steps else "epoch",
        **({"eval_steps": max(1, -(-total // EVALUATIONS))} if by_steps else {}),
    }


class LengthGroupedTrainer(Trainer):  # type: ignore[misc]  # transformers ships no types for Trainer
    """A Trainer with batches from a `GlobalBatchSampler`; its stopwatch excludes evaluation and checkpoints."""

    def __init__(self, *, sampler: GlobalBatchSampler, callback: MetricsCallback, **arguments: Any) -> None:
        super().__init__(callbacks=[callback], **arguments)
        # The Trainer scales losses itself; in transformers 5.3 accelerate divides them by the steps a second time.
        self.accelerator.gradient_accumulation_steps = 1
        self._sampler = sampler
        self.callback = callback
        self._batches = 0
        # Batches in a row without a finite loss: a tensor, so that reading it rarely makes the GPU wait.
        self._not_finite: Any = 0

    def get_train_dataloader(self) -> torch.utils.data.DataLoader[Any]:
        """Batches of this device. Not prepared by accelerate, which would distribute rows to devices a second time."""
        args = self.args
        return torch.utils.data.DataLoader(
            self.train_dataset,
            batch_sampler=self._sampler,
            collate_fn=self.data_collator,
            pin_memory=args.dataloader_pin_memory and device.has_gpu(),
            num_workers=args.dataloader_num_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            persistent_workers=args.dataloader_persistent_workers,
        )

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The loss of one micro-batch, after its gradients were added to the parameters'.

        Raises:
            Diverged: in one of the processes the loss was not a finite number for DIVERGED_STEPS optimiser steps in a
                row, which is checked every DIVERGED_STEPS steps. All processes raise it.
        """
        loss = self.forward_and_backward(*args, **kwargs)
        self._not_finite = torch.where(torch.isfinite(loss).all(), 0, self._not_finite + 1)
        self._batches += 1
        window = DIVERGED_STEPS * self.args.gradient_accumulation_steps
        if self._batches % window == 0 and self._most_not_finite() >= window:
            raise Diverged(f"the loss is not a finite number (NaN or infinite) for {DIVERGED_STEPS} steps in a row")
        return loss

    def forward_and_backward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The Trainer's own training step; subclasses replace it."""
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        return loss

    def _most_not_finite(self) -> int:
        """The largest number of batches in a row without a finite loss, over all processes."""
        most = torch.as_tensor(self._not_finite, device=self.args.device)
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
        return int(most)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """The metrics of the base class; the stopwatch is paused meanwhile."""
        with self.callback.stopwatch.paused():
            metrics: dict[str, float] = super().evaluate(*args, **kwargs)
        return metrics

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with self.callback.stopwatch.paused():
            checkpoint = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            if self.is_world_process_zero():
                checkpoints.unseal(checkpoint)
            super()._save_checkpoint(*args, **kwargs)
            processes.wait_for_all()
            if self.is_world_process_zero():
                checkpoints.seal(checkpoint)

    def floating_point_ops(self, inputs: Mapping[str, Any]) -> int:
        """0: transformers would count all parameters in every step; `metrics.training_flops` does it once."""
        return 0
