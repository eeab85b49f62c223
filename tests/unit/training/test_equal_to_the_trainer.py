"""Training runs compared with the steps of Hugging Face's Trainer on the same rows: losses, norms and weights.

The Trainer's own training step, loss, optimizer and schedule run over the micro-batches of paretune's sampler. Its loop
would choose other rows.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from paretune.specification.container import Event, JobFolder
from paretune.specification.job import JobSpec
from paretune.training.model import build_model, find_formats, load_tokenizer
from paretune.training.rows import tokenized
from paretune.training.rows.tokenized import GlobalBatchSampler, Rows, TokenRows
from tests.support.instances import model_without_dropout
from tests.support.trainings import give, report_of

WORDS = ["great", "warm", "dull", "cold", "the", "film"]
RANDOM = np.random.default_rng(3)
SETTINGS: dict[str, Any] = {
    "weight_decay": 0.1,
    "max_grad_norm": 0.5,
    "warmup_steps": 2,
    "logging_steps": 1,
    "eval_strategy": "no",
    "save_strategy": "no",
}
SPEC = JobSpec(
    precision="fp32",
    max_seq_length=16,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=3,
    num_train_epochs=3.0,
    learning_rate=1e-3,
    training_arguments=SETTINGS,
)
TASKS: dict[str, dict[str, Any]] = {
    "classification": {"task": "classification"},
    "multi-label": {"task": "multi-label"},
    "token-classification": {"task": "token-classification"},
    "causal-lm": {"task": "causal-lm"},
    "lora": {"task": "causal-lm", "fine_tuning": "lora", "lora": {"r": 2, "merge": False}},
}


def rows_of(task: str, count: int) -> Rows:
    """Return rows of three to twelve words with random labels."""
    texts = [" ".join(RANDOM.choice(WORDS, size=RANDOM.integers(3, 13))) for _ in range(count)]
    labels: Any = {
        "classification": lambda: RANDOM.integers(0, 3, count),
        "multi-label": lambda: RANDOM.integers(0, 2, (count, 3)).astype(np.float32),
        "token-classification": lambda: labels_of_words(texts),
        "causal-lm": lambda: None,
    }[task]()
    return Rows(texts=texts, labels=labels)


def labels_of_words(texts: list[str]) -> np.ndarray:
    labels = np.empty(len(texts), dtype=object)
    for number, text in enumerate(texts):
        labels[number] = RANDOM.integers(0, 3, len(text.split())).tolist()
    return labels


def loss_of_labels(outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor) -> torch.Tensor:
    """Return the loss as the Trainer's `compute_loss_func`: the models would divide by the labels of a micro-batch."""
    functional = torch.nn.functional
    if labels.dtype == torch.float32:
        return functional.binary_cross_entropy_with_logits(outputs.logits, labels, reduction="sum") / num_items_in_batch
    total = functional.cross_entropy(outputs.logits.flatten(0, -2), labels.flatten(), reduction="sum")
    return total / num_items_in_batch


@pytest.mark.parametrize("name", TASKS)
def test_losses_norms_and_weights_are_those_of_the_trainer(
    name: str, tiny_model: Path, tiny_causal_model: Path, tmp_path: Path
) -> None:
    spec = SPEC.replace(**TASKS[name])
    is_language_model = spec.task == "causal-lm"
    source = model_without_dropout(tiny_causal_model if is_language_model else tiny_model, tmp_path / "model")
    folder, tokenizer = JobFolder(tmp_path / "job"), load_tokenizer(source)
    folder.make()
    labels = () if is_language_model else ("a", "b", "c")
    splits = {"train": rows_of(spec.task, 43), "validation": rows_of(spec.task, 8)}  # the last step is smaller
    give(folder, tokenized.prepare(spec.data_arguments, splits, labels, tokenizer, tmp_path / "prepared"), source)

    report_of(spec, folder)

    events = [Event.model_validate_json(line).metrics for line in folder.events.read_text().splitlines()]
    curves = [(event["train/loss"], event["train/grad_norm"]) for event in events if "train/loss" in event]
    expected, weights = of_the_trainer(spec, folder, labels, tokenizer)
    assert len(curves) == len(expected) >= 9
    assert np.array(curves) == pytest.approx(np.array(expected), rel=5e-6)
    (written,) = [load_file(file) for file in folder.model.glob("*.safetensors")]
    # transformers 5.3 saves a BERT that it has loaded with the names of old checkpoints, which it can read.
    newer = {".gamma": ".weight", ".beta": ".bias"}
    written = {re.sub(r"\.(gamma|beta)$", lambda old: newer[old[0]], name): value for name, value in written.items()}
    for key, value in weights.items():
        assert (written[key.replace(".default", "")] - value).abs().max() < 1e-6, key


def of_the_trainer(
    spec: JobSpec, folder: JobFolder, labels: tuple[str, ...], tokenizer: Any
) -> tuple[list[tuple[float, float]], dict[str, torch.Tensor]]:
    """Return loss and norm of each step of the Trainer, and the weights that it has trained."""
    transformers.set_seed(spec.seed)
    source = folder.model_source.resolve()
    formats = find_formats(spec.model_arguments, spec.degrees, spec.precision, source)
    model, _ = build_model(spec.model_arguments, source, labels, tokenizer, formats)
    plan, rows = spec.plan(), TokenRows(folder.dataset / "train", pad_id=tokenizer.pad_token_id)
    sampler = GlobalBatchSampler(rows.lengths, plan, rank=0, seed=spec.seed)
    steps = sampler.steps * int(spec.num_train_epochs)
    settings = {"output_dir": str(folder.root / "theirs"), "learning_rate": plan.learning_rate, "use_cpu": True}
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(**settings, **SETTINGS, max_steps=steps, report_to="none"),
        compute_loss_func=loss_of_labels if labels else None,
    )
    trainer.create_optimizer_and_scheduler(steps)
    curves = []
    for step in range(steps):
        items = torch.tensor(int(rows.label_counts[sampler.rows(step)].sum()))
        batches = [rows.batch(own) for own, _ in sampler.micro_batches(step)]
        loss = sum(float(trainer.training_step(model, batch, num_items_in_batch=items)) for batch in batches)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["max_grad_norm"])
        curves.append((loss, float(norm)))
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        model.zero_grad()
    return curves, {key: item.detach() for key, item in model.named_parameters() if item.requires_grad}
