"""The Hugging Face Trainer, given our batches and our stopwatch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from transformers import EvalPrediction, Trainer, TrainingArguments

from paretune.spec.container import JobDocument, JobFolder
from paretune.training import checkpoints, device
from paretune.training.recorder import Recorder
from paretune.training.rows.batches import GlobalBatchSampler
from paretune.training.rows.data import TokenRows

LOG_POINTS = 50
"""Points on a training curve, at least, where there are as many steps."""
EVAL_POINTS = 4
"""Evaluations of a training of fewer epochs; a longer one is evaluated once per epoch."""


class LengthGroupedTrainer(Trainer):  # type: ignore[misc]  # transformers ships no types for Trainer
    """A Trainer that takes its rows from a `GlobalBatchSampler` and counts only training as training."""

    def __init__(self, *, sampler: GlobalBatchSampler, recorder: Recorder, **arguments: Any) -> None:
        super().__init__(callbacks=[recorder], **arguments)
        # The Trainer scales losses itself; in transformers 5.3 accelerate then divides them by the steps once more.
        self.accelerator.gradient_accumulation_steps = 1
        self._sampler = sampler
        self._recorder = recorder

    def get_train_dataloader(self) -> torch.utils.data.DataLoader[Any]:
        """Batches of this device. Not prepared by accelerate, which would deal rows to devices a second time."""
        return torch.utils.data.DataLoader(
            self.train_dataset,
            batch_sampler=self._sampler,
            collate_fn=self.data_collator,
            pin_memory=device.has_gpu(),
        )

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate, off the clock."""
        with self._recorder.stopwatch.paused():
            metrics: dict[str, float] = super().evaluate(*args, **kwargs)
        return metrics

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with self._recorder.stopwatch.paused():
            checkpoint = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            if self.is_world_process_zero():
                checkpoints.unseal(checkpoint)
            super()._save_checkpoint(*args, **kwargs)
            checkpoints.wait_for_all()
            if self.is_world_process_zero():
                checkpoints.seal(checkpoint)

    def floating_point_ops(self, inputs: Mapping[str, Any]) -> int:
        """Nothing: transformers would walk all parameters every step; `metrics.training_flops` does it once."""
        return 0


def training_arguments(
    document: JobDocument, output: Path, *, steps_per_epoch: int, of_strategy: Mapping[str, Any] | None = None
) -> TrainingArguments:
    """The Trainer's arguments for this job. The user's own `training_arguments` win over these defaults.

    Args:
        document: the job.
        output: folder for its checkpoints.
        steps_per_epoch: optimiser steps.
        of_strategy: further defaults, of the way the job is spread over devices.
    """
    spec, plan = document.spec, document.plan
    precision = device.choose_precision(spec.precision)
    limit = spec.probe_steps or int(spec.training_arguments.get("max_steps", -1))  # none if not positive
    total = limit if limit > 0 else int(np.ceil(steps_per_epoch * spec.num_train_epochs))
    chosen: dict[str, Any] = {
        "logging_steps": max(1, min(50, total // LOG_POINTS)),
        "logging_nan_inf_filter": False,  # it would wait for the GPU in every step, and a NaN should be seen
        "save_strategy": "epoch",
        # On SageMaker the newest one may be lost while it is copied to S3.
        "save_total_limit": 2 if spec.on_sagemaker else 1,
        "per_device_eval_batch_size": max(64, plan.per_device_train_batch_size),
        "remove_unused_columns": False,  # our batches hold nothing else
        "use_cpu": not device.has_gpu(),
        "ddp_broadcast_buffers": False,  # position ids and the like never change
        "prediction_loss_only": spec.task == "causal-lm",
    }
    if spec.num_train_epochs < EVAL_POINTS or limit > 0:
        chosen |= {"eval_strategy": "steps", "eval_steps": max(1, -(-total // EVAL_POINTS))}
    else:
        chosen |= {"eval_strategy": "epoch"}
    chosen |= {**(of_strategy or {}), **spec.training_arguments}
    if spec.probe_steps:
        chosen |= {"max_steps": spec.probe_steps, "eval_strategy": "no", "save_strategy": "no"}
    return TrainingArguments(
        output_dir=str(output),
        learning_rate=plan.learning_rate,
        per_device_train_batch_size=plan.per_device_train_batch_size,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
        num_train_epochs=spec.num_train_epochs,
        seed=spec.seed,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        torch_compile=spec.compiler == "inductor",
        disable_tqdm=True,
        report_to="none",
        **chosen,
    )


class Judge:
    """Computes the metrics of an evaluation and keeps the last confusion matrix: C rows (truth) of C counts."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self.confusion: np.ndarray | None = None

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Macro F1 and accuracy, from logits (N, C) and labels (N,)."""
        logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
        answers = np.asarray(logits).argmax(axis=-1)
        truth = np.asarray(prediction.label_ids)
        self.confusion = confusion_matrix(truth, answers, labels=np.arange(self._classes))
        return {
            "f1": float(f1_score(truth, answers, average="macro", zero_division=0)),
            "accuracy": float(accuracy_score(truth, answers)),
        }


def classification_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None, *, smoothing: float = 0.0
) -> torch.Tensor:
    """Cross-entropy of one micro-batch's rows over the number of rows of the whole optimiser step, all devices.

    Without it loss and gradients would grow with accumulation and devices: the Trainer divides by neither when a model
    takes keyword arguments, and sequence classifiers take them but do not divide either (transformers 5.23).

    Args:
        outputs: what the model answers; logits (B, C).
        labels: B classes.
        num_items_in_batch: rows of the optimiser step; the B rows of this batch when None.
        smoothing: label smoothing, 0 to 1.
    """
    total = torch.nn.functional.cross_entropy(outputs["logits"], labels, reduction="sum", label_smoothing=smoothing)
    return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def open_split(folder: JobFolder, split: str, pad_id: int) -> TokenRows | None:
    """The rows of `split`, or None where the data set has none. Evaluation splits come longest first."""
    path = folder.dataset / f"{split}.arrow"
    if not path.exists():
        return None
    # Tensor cores want multiples of 8; a CPU gains nothing from them.
    return TokenRows(path, pad_id=pad_id, pad_multiple=8 if device.has_gpu() else 1, longest_first=split != "train")
