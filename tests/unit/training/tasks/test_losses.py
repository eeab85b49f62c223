"""Losses equal transformers' own, and the written model answers in the labels' own units."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, GPT2Config, GPT2LMHeadModel

from paretune.training.tasks.losses import Units, last_layer, multi_label_loss, next_token_loss, regression_loss

LABELS = {
    "regression": (1, torch.tensor([0.5, -1.0, 2.0]), regression_loss),
    "multi_label_classification": (4, torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]), multi_label_loss),
}


def model_of(folder: Path, labels: int, problem: str) -> Any:
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(folder, num_labels=labels, problem_type=problem).eval()


@pytest.mark.parametrize("problem", LABELS)
def test_the_loss_is_that_of_transformers_also_in_parts(tiny_model: Path, problem: str) -> None:
    count, labels, loss = LABELS[problem]
    model = model_of(tiny_model, count, problem)
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


def test_a_model_answers_in_the_units_of_the_labels_and_can_go_on_learning(tiny_model: Path) -> None:
    model = model_of(tiny_model, 1, "regression")
    units = Units.of({"label_mean": 100.0, "label_std": 20.0}, model)
    tokens = torch.randint(5, 30, (4, 7))
    before = model(input_ids=tokens).logits.detach().numpy()

    units.unscale_model(model)
    after = model(input_ids=tokens).logits.detach().numpy()
    units.scale_model(model)
    again = model(input_ids=tokens).logits.detach().numpy()

    assert (units.shift, units.factor) == (100.0, 20.0)
    assert after == pytest.approx(units.unscale(before), rel=1e-5)
    assert units.scale(after) == pytest.approx(before, abs=1e-4)
    assert again == pytest.approx(before, abs=1e-4)


def test_a_head_without_a_bias_learns_numbers_without_a_shift(tiny_causal_model: Path) -> None:
    model = model_of(tiny_causal_model, 1, "regression")

    units = Units.of({"label_mean": 30.0, "label_std": 40.0}, model)

    assert last_layer(model).bias is None
    assert (units.shift, units.factor) == (0.0, math.hypot(30.0, 40.0))
    assert Units.of({}, model) == Units()
    assert units.unscale(units.scale(np.array([7.0]))) == pytest.approx([7.0])


def test_a_model_without_such_a_layer_is_said_to_have_none(tiny_model: Path) -> None:
    with pytest.raises(ValueError, match="has no linear layer with one output"):
        last_layer(model_of(tiny_model, 3, "regression"))


def test_the_loss_of_next_tokens_is_that_of_transformers() -> None:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2)).eval()
    tokens = torch.randint(0, 20, (3, 7))
    labels = tokens.where(torch.arange(7) < 5, -100)
    with torch.no_grad():
        outputs = model(input_ids=tokens, labels=labels)

    assert next_token_loss(outputs, labels).item() == pytest.approx(outputs.loss.item())
    assert next_token_loss(outputs, labels, 1).item() == pytest.approx(12 * outputs.loss.item())
