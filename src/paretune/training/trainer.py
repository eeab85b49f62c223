"""The Hugging Face Trainer with our batches, loss, metrics and default arguments."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, confusion_matrix
from transformers import EvalPrediction, Trainer, TrainingArguments

from paretune.estimating.workload import EVALUATIONS, LEAST_EVALUATED_ROWS
from paretune.specification.container import CHECKPOINTS_KEPT, JobDocument, JobFolder
from paretune.specification.metrics import CLASSIFICATION, MULTI_LABEL, REGRESSION
from paretune.training import checkpoints, device
from paretune.training.callback import MetricsCallback
from paretune.training.rows.batches import GlobalBatchSampler
from paretune.training.rows.data import TokenRows, macro_f1
from paretune.training.shared.together import Step
from paretune.training.shared.turns import Seat
from paretune.training.tasks.judging import MultiLabelMetrics, RegressionMetrics
from paretune.training.tasks.losses import Units, multi_label_loss, regression_loss

LOG_POINTS = 50
"""Least number of points on a training curve; all steps where there are fewer."""


DIVERGED_STEPS = 10
"""Optimiser steps in a row with a loss that is no finite number, after which a training is given up."""


class Diverged(Exception):
    """The training cannot recover: its weights are no finite numbers any more."""


class LengthGroupedTrainer(Trainer):  # type: ignore[misc]  # transformers ships no types for Trainer
    """A Trainer with batches from a `GlobalBatchSampler`; its stopwatch excludes evaluation and checkpoints."""

    def __init__(self, *, sampler: GlobalBatchSampler, callback: MetricsCallback, **arguments: Any) -> None:
        super().__init__(callbacks=[callback], **arguments)
        # The Trainer scales losses itself; in transformers 5.3 accelerate divides them by the steps a second time.
        self.accelerator.gradient_accumulation_steps = 1
        self._sampler = sampler
        self.callback = callback
        self._seen = 0
        self._not_finite: Any = 0  # batches in a row; a tensor, so that the device is asked only now and then

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
        """The loss of the base class.

        Raises:
            Diverged: in one of the processes it has not been a finite number for DIVERGED_STEPS optimiser steps in a
                row, looked at as often. All processes raise it.
        """
        loss = self.forward_and_backward(*args, **kwargs)
        self._not_finite = torch.where(torch.isfinite(loss).all(), 0, self._not_finite + 1)
        self._seen += 1
        window = DIVERGED_STEPS * self.args.gradient_accumulation_steps
        if self._seen % window == 0 and self._most_in_a_row() >= window:
            raise Diverged(f"the loss is not a finite number (NaN or infinite) for {DIVERGED_STEPS} steps in a row")
        return loss

    def forward_and_backward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The loss of one micro-batch, after its gradients were added to the parameters'; as the Trainer does it."""
        loss: torch.Tensor = super().training_step(*args, **kwargs)
        return loss

    def _most_in_a_row(self) -> int:
        """Batches without a finite loss, of the process that has most of them."""
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
            checkpoints.wait_for_all()
            if self.is_world_process_zero():
                checkpoints.seal(checkpoint)

    def floating_point_ops(self, inputs: Mapping[str, Any]) -> int:
        """0: transformers would count all parameters in every step; `metrics.training_flops` does it once."""
        return 0


class SideBySideTrainer(LengthGroupedTrainer):
    """A Trainer whose steps are done together with those of others where that is possible."""

    def __init__(self, *, seat: Seat, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._seat = seat
        self._trained = {name: item for name, item in self.model.named_parameters() if item.requires_grad}

    def forward_and_backward(
        self, model: Any, inputs: Mapping[str, torch.Tensor], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """The same as alone, computed with those whose batch and masks are equal."""
        is_last_of_step = self.accelerator.sync_gradients
        is_whole = self.compute_loss_func is not None or num_items_in_batch is not None  # else divided afterwards
        step = Step(trainer=self, trained=self._trained, inputs=inputs, rows=num_items_in_batch)
        loss: torch.Tensor | None = self._seat.meet(step if is_whole else None)
        self.accelerator.gradient_state._set_sync_gradients(is_last_of_step)  # all Trainers of a process share it
        return super().forward_and_backward(model, inputs, num_items_in_batch) if loss is None else loss


def training_arguments(
    document: JobDocument, output: Path, *, steps_per_epoch: int, of_strategy: Mapping[str, Any] | None = None
) -> TrainingArguments:
    """The Trainer's arguments for this job, with checkpoints in `output`.

    The user's `training_arguments` override the defaults of the strategy, which override those here.
    """
    spec, plan = document.spec, document.plan
    precision = device.choose_precision(spec.precision)
    limit = spec.probe_steps or int(spec.training_arguments.get("max_steps", -1))  # none if not positive
    total = limit if limit > 0 else int(np.ceil(steps_per_epoch * spec.num_train_epochs))
    by_steps = spec.num_train_epochs < EVALUATIONS or limit > 0
    chosen: dict[str, Any] = {
        "logging_steps": max(1, min(50, total // LOG_POINTS)),
        "logging_nan_inf_filter": False,  # the filter waits for the GPU in every step and hides NaN
        "save_strategy": "epoch",
        "save_total_limit": CHECKPOINTS_KEPT if spec.on_sagemaker else 1,
        "per_device_eval_batch_size": max(LEAST_EVALUATED_ROWS, plan.per_device_train_batch_size),
        "remove_unused_columns": False,  # batches are already tensors
        "use_cpu": not device.has_gpu(),
        "ddp_broadcast_buffers": False,  # buffers such as position ids are constant
        "prediction_loss_only": spec.task == "causal-lm",
        "eval_strategy": "steps" if by_steps else "epoch",
        **({"eval_steps": max(1, -(-total // EVALUATIONS))} if by_steps else {}),
        **(of_strategy or {}),
        **spec.training_arguments,
    }
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


class ClassificationMetrics:
    """Computes the metrics of an evaluation and keeps the last confusion matrix: C rows (true classes) of C counts."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self.confusion: np.ndarray | None = None

    @property
    def shown(self) -> Mapping[str, Any] | None:
        """What a report shows of the last evaluation in this process; None before one."""
        if self.confusion is None:
            return None
        return {"confusion_matrix": tuple(tuple(map(int, row)) for row in self.confusion)}

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Macro F1 and accuracy, from logits (N, C) and labels (N,)."""
        logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
        predicted = np.asarray(logits).argmax(axis=-1)
        labels = np.asarray(prediction.label_ids)
        self.confusion = confusion_matrix(labels, predicted, labels=np.arange(self._classes))
        return {"f1": macro_f1(labels, predicted), "accuracy": float(accuracy_score(labels, predicted))}


def classification_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None, *, smoothing: float = 0.0
) -> torch.Tensor:
    """Summed cross-entropy of one micro-batch, divided by the number of rows of the optimiser step over all devices.

    Without the division loss and gradients would grow with accumulation steps and devices: the Trainer leaves it to
    models that take keyword arguments, and sequence classifiers take them but do not divide (transformers 5.23).
    `outputs` has logits (B, C), `labels` B classes; without `num_items_in_batch` the rows are the B of this batch.
    """
    total = torch.nn.functional.cross_entropy(outputs["logits"], labels, reduction="sum", label_smoothing=smoothing)
    return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def judge_of(
    task: str, classes: int, units: Units
) -> ClassificationMetrics | RegressionMetrics | MultiLabelMetrics | None:
    """What computes the metrics of an evaluation; None where the loss says all."""
    if task == REGRESSION:
        return RegressionMetrics(units)
    if task == MULTI_LABEL:
        return MultiLabelMetrics()
    return ClassificationMetrics(classes) if task == CLASSIFICATION else None


def loss_of(task: str, smoothing: float) -> Callable[..., torch.Tensor] | None:
    """The loss of a micro-batch as the Trainer calls it; None where the model's own is right."""
    if task == CLASSIFICATION:
        return partial(classification_loss, smoothing=smoothing)
    return {REGRESSION: regression_loss, MULTI_LABEL: multi_label_loss}.get(task)


def open_split(folder: JobFolder, split: str, pad_id: int, units: Units | None = None) -> TokenRows | None:
    """The rows of `split`, or None where the data set has no such split. Evaluation rows are sorted longest first."""
    path = folder.dataset / f"{split}.arrow"
    if not path.exists():
        return None
    # Tensor cores are fastest with multiples of 8; on a CPU they bring nothing.
    multiple = 8 if device.has_gpu() else 1
    is_evaluated = split != "train"
    return TokenRows(path, pad_id=pad_id, pad_multiple=multiple, longest_first=is_evaluated, units=units or Units())
