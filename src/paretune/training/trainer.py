"""The Hugging Face Trainer with our batches and default arguments."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import find_executable_batch_size
from transformers import EvalPrediction, Trainer, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput

from paretune.estimating.workload import EVALUATIONS
from paretune.specification.container import CHECKPOINTS_KEPT, JobDocument
from paretune.specification.metrics import CAUSAL_LM
from paretune.training import device, processes
from paretune.training.callback import MetricsCallback
from paretune.training.rows.tokenised import GlobalBatchSampler
from paretune.training.strategies import Division
from paretune.training.tasks import summed_loss

LOG_POINTS = 50  # least number of points on a training curve; all steps if there are fewer


class _InPlace(TrainingArguments):  # type: ignore[misc]  # transformers ships no types
    place_model_on_device = False


def training_arguments(
    document: JobDocument,
    output: Path,
    *,
    steps_per_epoch: int,
    of_strategy: Mapping[str, Any] | None = None,
    in_place: bool = False,
) -> TrainingArguments:
    """The Trainer's arguments for this job, with checkpoints in `output`; `in_place` leaves the model where it is.

    The user's `training_arguments` override the defaults of the strategy, which override those here: precision, and
    when to log, evaluate and write checkpoints.
    """
    spec, plan = document.spec, document.plan
    precision = device.choose_precision(spec.precision)
    limit = spec.probe_steps or int(spec.training_arguments.get("max_steps", -1))  # no limit unless positive
    total = limit if limit > 0 else int(np.ceil(steps_per_epoch * spec.num_train_epochs))
    options: dict[str, Any] = {
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        "disable_tqdm": True,
        "report_to": "none",
        "logging_steps": max(1, min(50, total // LOG_POINTS)),
        "logging_nan_inf_filter": False,  # the filter waits for the GPU in every step and hides NaN
        "save_strategy": "epoch",
        "save_total_limit": CHECKPOINTS_KEPT if spec.on_sagemaker else 1,
        "remove_unused_columns": False,  # batches are already tensors
        "use_cpu": not device.has_gpu(),
        "ddp_broadcast_buffers": False,  # buffers such as position ids are constant
        "prediction_loss_only": spec.task == CAUSAL_LM,
        # The returned model is evaluated in any case.
        "eval_strategy": "steps" if "eval_steps" in spec.training_arguments else "no",
        "eval_steps": max(1, -(-total // EVALUATIONS)),
        **(of_strategy or {}),
        **spec.training_arguments,
    }
    options.pop("gradient_checkpointing", None)  # strategies.checkpoint_activations does it for every kind of model
    if "warmup_ratio" in options:  # transformers 5 takes a share of all steps as warmup_steps
        options["warmup_steps"] = options.pop("warmup_ratio")
    if spec.probe_steps:
        options |= {"max_steps": spec.probe_steps, "eval_strategy": "no", "save_strategy": "no"}
    made = (_InPlace if in_place else TrainingArguments)(
        output_dir=str(output),
        learning_rate=plan.learning_rate,
        per_device_train_batch_size=plan.per_device_train_batch_size,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
        num_train_epochs=spec.num_train_epochs,
        seed=spec.seed,
        **options,
    )
    made._n_gpu = 1  # with several GPUs in one process the Trainer would multiply gradients by their number
    return made


class EvaluatedBatch(NamedTuple):
    """B rows of an evaluation, computed by one process; predictions and labels are empty without metrics."""

    loss: float  # sum of the losses of `items`: rows, or for language models tokens
    items: int
    predictions: Sequence[Any] = ()
    labels: Sequence[Any] = ()


class LengthGroupedTrainer(Trainer):  # type: ignore[misc]  # transformers ships no types for Trainer
    """A Trainer with batches from a `GlobalBatchSampler`.

    An evaluation computes each row once, so that its metrics do not depend on the number of processes and the size of
    its batches, which become smaller if one does not fit into memory. With a division a forward pass needs all
    processes: none can repeat or leave out a batch.
    """

    def __init__(
        self,
        *,
        sampler: GlobalBatchSampler,
        callback: MetricsCallback,
        division: Division | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(callbacks=[*([] if division is None else [division]), callback], **arguments)
        # The Trainer scales losses itself; in transformers 5.3 accelerate divides them by the steps a second time.
        self.accelerator.gradient_accumulation_steps = 1
        self.model.floating_point_ops = lambda *_, **__: 0  # would count all parameters in every step
        # The Trainer would remove old checkpoints from this disk, and S3 would keep them.
        callback.checkpoints_kept, self.args.save_total_limit = self.args.save_total_limit, None
        self._sampler, self.callback, self.division = sampler, callback, division
        is_shifted = self.compute_loss_func is None and getattr(self, "_loss_shifts_labels", False)
        self._items = self.train_dataset.items(shifted=is_shifted)
        self._summed_loss = self.compute_loss_func or partial(summed_loss, CAUSAL_LM)
        if division is not None:
            # Mixed precision only: else accelerate would add plain data parallelism when training begins.
            self.accelerator.prepare_model(self.model, device_placement=False, evaluation_mode=True)
            self.accelerator.prepare_model = lambda model, **_: model
            self.accelerator.clip_grad_norm_ = self._clip

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

    def _get_num_items_in_batch(self, batch_samples: Any, device: Any) -> Any:
        """The labels of the optimiser step on all devices: known from the rows, so that no process waits for others."""
        args = self.args
        if not args.average_tokens_across_devices and args.world_size > 1:
            return super()._get_num_items_in_batch(batch_samples, device)
        times = args.world_size // self._sampler.plan.devices  # that a row is computed, in a tensor group or a pipeline
        items = times * self._sampler.items(self.state.global_step, self._items)
        return torch.full((), items, dtype=torch.float32, device=device)

    def _prepare_input(self, data: Any) -> Any:
        if isinstance(data, torch.Tensor):
            return data.to(self.args.device, non_blocking=True)
        return super()._prepare_input(data)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """The loss of one micro-batch, after its gradients were added to the parameters'."""
        pipeline = None if self.division is None else self.division.pipeline
        if pipeline is None:
            loss: torch.Tensor = super().training_step(model, inputs, num_items_in_batch)
        else:  # it divides the batch into smaller ones
            model.train()
            copies = self.accelerator.num_processes if self.args.average_tokens_across_devices else 1

            def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # as the Trainer computes it
                return self._summed_loss({"logits": logits}, labels, num_items_in_batch=num_items_in_batch) * copies

            loss = pipeline.train(self._prepare_inputs(inputs), loss_of)
            if self.accelerator.sync_gradients:
                pipeline.add_up_tied_gradients()
        self.callback.count_loss(loss)
        return loss

    def _clip(self, _: Any, limit: float, norm_type: float = 2.0) -> torch.Tensor:
        assert self.division is not None  # only then the Trainer calls this
        self.accelerator.unscale_gradients()
        return self.division.clip(limit)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the model, or weights and optimiser of a checkpoint, whose other files follow."""
        if not _internal_call or output_dir is None:
            super().save_model(output_dir)
            return
        self.callback.begin_save(Path(output_dir))
        if self.division is None:
            super().save_model(output_dir, _internal_call=True)
        else:
            self.division.save(Path(output_dir), self.optimizer, self.lr_scheduler)
            self._save_scaler(output_dir)  # which the Trainer itself reads again
            self._save_rng_state(output_dir)

    def evaluation_loop(
        self, dataloader: Any, description: str, *_: Any, metric_key_prefix: str = "eval", **__: Any
    ) -> EvalLoopOutput:
        """Loss and metrics of the data set of `dataloader`, whose batches are not used."""
        with self.callback.stopwatch.paused():
            values = self._measure(dataloader.dataset)
        return EvalLoopOutput(
            predictions=None,
            label_ids=None,
            metrics={f"{metric_key_prefix}_{name}": value for name, value in values.items()},
            num_samples=len(dataloader.dataset),
        )

    def _measure(self, rows: Any) -> dict[str, float]:
        model = self.model
        if not self.accelerator._models:  # evaluated without a training
            model = self.accelerator.prepare_model(model, evaluation_mode=True)
        model.eval()
        if hasattr(self.optimizer, "eval"):
            self.optimizer.eval()
        size = self.args.eval_batch_size
        if self.division is not None:
            share = self._evaluate_share(size, model, rows)
        else:
            share = find_executable_batch_size(self._evaluate_share, starting_batch_size=size)(model, rows)
        batches = [batch for part in processes.gather(share) for batch in part]
        items = sum(batch.items for batch in batches)
        values = {"loss": sum(batch.loss for batch in batches) / items} if items else {}
        if self.compute_metrics is not None and batches:
            predictions = [row for batch in batches for row in batch.predictions]
            labels = [row for batch in batches for row in batch.labels]
            values |= self.compute_metrics(EvalPrediction(predictions=predictions, label_ids=labels))
        return values

    @torch.no_grad()
    def _evaluate_share(self, size: int, model: Any, rows: Any) -> list[EvaluatedBatch]:
        """The results of every n-th row for n shares of the data, in batches of `size`.

        All processes compute equally many batches; one that has no row left computes another's and leaves it out.
        """
        (rank, shares, is_reported), pipeline = (self.args.process_index, self.args.world_size, True), None
        if self.division is not None:
            (rank, shares, is_reported), pipeline = self.division.share(), self.division.pipeline
        share, measured = np.arange(len(rows))[rank::shares], []
        for start in range(0, -(-len(rows) // shares), size):
            index = share[start : start + size].tolist()
            batch = self.data_collator(rows.__getitems__(index or [0]))
            answers = batch["labels"]
            batch = self._prepare_inputs(batch)
            labels = batch.pop("labels")
            with self.compute_loss_context_manager():
                logits = model(**batch)["logits"] if pipeline is None else pipeline.predict(batch)
            if logits is None or not index or not is_reported:
                continue
            loss = self._summed_loss({"logits": logits}, labels, num_items_in_batch=1, smoothing=0.0)
            counted = answers if self.compute_loss_func is not None else answers[:, 1:]  # of words, those with a label
            items = counted.numel() if answers.is_floating_point() else int((counted != -100).sum())
            results = () if self.compute_metrics is None else (self.compute_metrics.predict(logits), answers)
            measured.append((loss, items, results))
        # Read at the end: for each batch by itself the device would wait.
        return [
            EvaluatedBatch(float(loss), items, *(result.cpu().numpy() for result in results))
            for loss, items, results in measured
        ]
