"""The variants of training that `training_throughput.py` compares, and their limit. Each runs in its own process.

Every function takes the options of the command line and a prepared data set, and returns samples per second without the
warm-up.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import training_jobs
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_linear_schedule_with_warmup,
    set_seed,
)

from paretune.specification.container import PreparedDataset
from paretune.specification.job import JobSpec
from paretune.specification.metrics import THROUGHPUT_SAMPLES
from paretune.training import device
from paretune.training.rows.tokenized import GlobalBatchSampler, TokenRows, masked

WARM_UP = 5  # steps that are not timed in the Trainer and the loop


def paretune_job(options: argparse.Namespace, prepared: PreparedDataset) -> float:
    """Run the training process of a paretune job, in its own job folder."""
    spec = JobSpec(
        learning_rate=options.learning_rate,
        per_device_train_batch_size=options.batch,
        seed=options.seed,
        max_seq_length=options.max_seq_length,
        precision=options.precision,
        training_arguments={"max_steps": options.steps, "eval_strategy": "no"},
    )
    with tempfile.TemporaryDirectory(prefix="throughput-job-") as root:
        report = training_jobs.trained(spec, prepared.folder, Path(options.model), Path(root))
    return report.metrics[THROUGHPUT_SAMPLES]


class Examples(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Returns single rows without padding, as `datasets` does."""

    def __init__(self, folder: Path, split: str) -> None:
        self._rows = TokenRows(folder / split, pad_id=0)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return row `index`: input_ids and attention_mask (T,), labels ()."""
        return {name: value[0] for name, value in self._rows.batch([index]).items()}


class Timer(TrainerCallback):  # type: ignore[misc]  # transformers ships no types for callbacks
    """Measures seconds and steps after the warm-up."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps = 0
        self._started = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock after the warm-up."""
        if state.global_step == WARM_UP:
            device.synchronize()
            self._started = time.perf_counter()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock."""
        device.synchronize()
        self.seconds = time.perf_counter() - self._started
        self.steps = state.global_step - WARM_UP


def collate(examples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return a batch padded to its longest row."""
    width = max(len(example["input_ids"]) for example in examples)
    batch = {
        name: torch.stack(
            [torch.nn.functional.pad(example[name], (0, width - len(example[name]))) for example in examples]
        )
        for name in ("input_ids", "attention_mask")
    }
    return batch | {"labels": torch.stack([example["labels"] for example in examples])}


def trainer_defaults(options: argparse.Namespace, prepared: PreparedDataset) -> float:
    """Run the Trainer, used as in its documentation."""
    set_seed(options.seed)
    timer = Timer()
    with tempfile.TemporaryDirectory(prefix="throughput-trainer-") as output:
        Trainer(
            model=AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=len(prepared.labels)),
            args=TrainingArguments(
                output_dir=output,
                learning_rate=options.learning_rate,
                per_device_train_batch_size=options.batch,
                max_steps=options.steps,
                save_strategy="no",
                report_to="none",
                seed=options.seed,
                disable_tqdm=True,
            ),
            train_dataset=Examples(prepared.folder, "train"),
            data_collator=collate,
            callbacks=[timer],
        ).train()
    return float(timer.steps * options.batch / timer.seconds)


def bare_loop(options: argparse.Namespace, prepared: PreparedDataset) -> float:
    """Run only forward, backward, clipping and optimizer step."""
    set_seed(options.seed)
    device_type = "cuda" if device.has_gpu() else "cpu"
    rows, sampler = _rows_of(options, prepared)
    model = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=len(prepared.labels)).to(
        device_type
    )
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.0, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, 0, options.steps)
    samples, started = 0, time.perf_counter()
    for step in range(options.steps):
        if step == WARM_UP:
            device.synchronize()
            samples, started = 0, time.perf_counter()
        batch = masked(rows.batch(sampler.rows(step).tolist()))
        samples += len(batch["labels"])
        if device_type == "cuda":
            batch = {name: value.pin_memory().to(device_type, non_blocking=True) for name, value in batch.items()}
        with torch.autocast(device_type, torch.bfloat16, enabled=device.choose_precision(options.precision) == "bf16"):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    device.synchronize()
    return samples / (time.perf_counter() - started)


def matrix_products(options: argparse.Namespace, prepared: PreparedDataset) -> float:
    """Compute only the matrix products of the layers, forward and backward, for the batches of a paretune job."""
    device_type = "cuda" if device.has_gpu() else "cpu"
    rows, sampler = _rows_of(options, prepared)
    config = AutoConfig.from_pretrained(options.model)
    kind = device.DTYPES[device.choose_precision(options.precision)]
    make = partial(torch.randn, dtype=kind, device=device_type)
    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.num_attention_heads
    shapes = [(hidden, hidden)] * 4 + [(hidden, inner), (inner, hidden)]
    layers = [[make(*shape) for shape in shapes] for _ in range(config.num_hidden_layers)]
    widest = options.batch * int(rows.lengths.max())
    columns = {size: make(widest, size) for size in {hidden, inner}}
    samples, started = 0, time.perf_counter()
    for step in range(options.steps):
        if step == WARM_UP:
            device.synchronize()
            samples, started = 0, time.perf_counter()
        count, width = rows.batch(sampler.rows(step).tolist())["input_ids"].shape
        parts = make(count * heads, width, hidden // heads)
        scores = make(count * heads, width, width)
        for weights in layers:
            for weight in weights:
                _three(columns[weight.shape[0]][: count * width], weight, columns[weight.shape[1]][: count * width])
            _three(parts, parts.mT, scores)  # queries and keys
            _three(scores, parts, parts)  # weights and values
        samples += count
    device.synchronize()
    return samples / (time.perf_counter() - started)


def _three(left: torch.Tensor, right: torch.Tensor, gradient: torch.Tensor) -> None:
    """Compute the product of (N, K) and (K, M) and, from its gradient (N, M), the gradients of both factors."""
    torch.matmul(left, right)
    torch.matmul(gradient, right.mT)
    torch.matmul(left.mT, gradient)


def _rows_of(options: argparse.Namespace, prepared: PreparedDataset) -> tuple[TokenRows, GlobalBatchSampler]:
    """Return the rows and the batches of a paretune job."""
    rows = TokenRows(prepared.folder / "train", pad_id=0, has_few_lengths=device.has_gpu())
    plan = replace(JobSpec().plan(), per_device_train_batch_size=options.batch, global_batch_size=0)
    return rows, GlobalBatchSampler(rows.lengths, plan, rank=0, seed=options.seed)
