"""Losses equal transformers' own."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel

from paretune.training.tasks import summed_loss


def test_the_loss_of_labels_is_that_of_transformers_also_in_parts(tiny_model: Path) -> None:
    labels, loss = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]), partial(summed_loss, "multi-label")
    torch.manual_seed(0)
    problem: dict[str, Any] = {"num_labels": 4, "problem_type": "multi_label_classification"}
    model = AutoModelForSequenceClassification.from_pretrained(tiny_model, **problem).eval()
    tokens = torch.randint(5, 30, (3, 7))

    with torch.no_grad():
        outputs = model(input_ids=tokens, labels=labels)
    items = int(labels.ne(-100).sum())  # as the Trainer counts them
    parts = [
        loss({"logits": outputs.logits[part]}, labels[part], num_items_in_batch=items)
        for part in (slice(0, 2), slice(2, 3))
    ]

    assert loss(outputs, labels).item() == pytest.approx(outputs.loss.item())
    assert sum(part.item() for part in parts) == pytest.approx(outputs.loss.item())


def test_the_loss_of_next_tokens_is_that_of_transformers() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)).eval()
    tokens = torch.randint(0, 20, (3, 7))
    labels = tokens.where(torch.arange(7) < 5, -100)
    with torch.no_grad():
        outputs = model(input_ids=tokens, labels=labels)

    assert summed_loss("causal-lm", outputs, labels).item() == pytest.approx(outputs.loss.item())
    assert summed_loss("causal-lm", outputs, labels, 1).item() == pytest.approx(12 * outputs.loss.item())
