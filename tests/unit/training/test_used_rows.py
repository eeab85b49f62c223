"""Leaving unused rows of the embedding table out of the training changes nothing but its cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from paretune.spec.job import JobSpec
from paretune.training.model import (
    build_model,
    leave_out_unused_rows,
    load_tokenizer,
    optimizer_skips_zero_gradients,
    restore_embeddings,
    unused_parameters,
)

# peft 0.21 asks transformers 5.23 for an attribute that was renamed.
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")

USED = np.array([0, 2, 3, 5, 8, 13, 21, 30, 34])
STEPS = 12


def classifier(folder: Path) -> Any:
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3, dtype=torch.float32)


def batches() -> list[dict[str, torch.Tensor]]:
    source = np.random.default_rng(0)
    made = []
    for _ in range(STEPS):
        tokens = torch.from_numpy(source.choice(USED[1:], size=(4, 9)))
        tokens[:2, 6:] = 0  # padding
        labels = torch.from_numpy(source.integers(0, 3, size=4))
        made.append({"input_ids": tokens, "attention_mask": (tokens != 0).long(), "labels": labels})
    return made


def train(model: Any, *, weight_decay: float = 0.0) -> None:
    """AdamW with dropout and a clipping that takes effect, as the Trainer does it."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=weight_decay)
    model.train()
    for batch in batches():
        model(**batch).loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        assert norm > 0.5
        optimizer.step()
        optimizer.zero_grad()


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@pytest.fixture
def trained(tiny_model: Path) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """A model trained whole, one trained on its used rows (table still replaced), and the weights both began with."""
    whole, part = classifier(tiny_model), classifier(tiny_model)
    before = weights(whole)
    assert leave_out_unused_rows(part, USED)
    train(whole)
    train(part)
    return whole, part, before


def test_training_the_used_rows_gives_the_same_weights_as_training_all(
    trained: tuple[Any, Any, dict[str, torch.Tensor]],
) -> None:
    whole, part, before = trained
    restore_embeddings(part)

    expected, found = weights(whole), weights(part)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-6, msg=name)
    table = "bert.embeddings.word_embeddings.weight"
    moved = (expected[table] != before[table]).any(dim=1).nonzero().flatten().tolist()
    assert moved == USED[1:].tolist()  # padding, row 0, has no gradient


def test_the_model_answers_the_same_before_and_after_the_table_is_put_back(
    trained: tuple[Any, Any, dict[str, torch.Tensor]],
) -> None:
    _, part, _ = trained
    part.eval()
    batch = batches()[0]
    with torch.no_grad():
        replaced = part(**batch).logits
        restore_embeddings(part)
        restored = part(**batch).logits

    assert torch.equal(replaced, restored)
    assert type(part.get_input_embeddings()) is torch.nn.Embedding


def test_a_restored_model_is_saved_and_loaded_whole(
    trained: tuple[Any, Any, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    whole, part, _ = trained
    restore_embeddings(part)
    part.save_pretrained(tmp_path)

    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)

    assert loaded.state_dict().keys() == whole.state_dict().keys()
    assert all(torch.equal(value, weights(part)[name]) for name, value in loaded.state_dict().items())


def test_only_used_rows_are_parameters_and_the_others_are_counted(tiny_model: Path) -> None:
    model = classifier(tiny_model)
    total = sum(item.numel() for item in model.parameters())
    rows, width = model.get_input_embeddings().weight.shape

    leave_out_unused_rows(model, USED)

    left_out = (rows - len(USED)) * width
    assert sum(item.numel() for item in model.parameters()) == total - left_out
    assert unused_parameters(model) == left_out
    restore_embeddings(model)
    assert unused_parameters(model) == 0


def test_a_table_without_padding_among_the_used_rows_is_trained_the_same(tiny_model: Path) -> None:
    whole, part = classifier(tiny_model), classifier(tiny_model)
    tokens = torch.from_numpy(USED[1:])[None]
    leave_out_unused_rows(part, USED[1:])

    for model in (whole, part):
        model.eval()
        model(input_ids=tokens, labels=torch.tensor([1])).loss.backward()

    expected = whole.get_input_embeddings().weight.grad[USED[1:]]
    torch.testing.assert_close(part.get_input_embeddings().weight.grad, expected)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda _, causal: (AutoModelForCausalLM.from_pretrained(causal), USED), id="output layer is tied"),
        pytest.param(
            lambda tiny, _: (
                build_model(JobSpec(fine_tuning="head"), tiny, ("a", "b"), load_tokenizer(tiny)),
                USED,
            ),
            id="table is frozen",
        ),
        pytest.param(
            lambda tiny, _: (
                build_model(JobSpec(fine_tuning="lora"), tiny, ("a", "b"), load_tokenizer(tiny)),
                USED,
            ),
            id="adapters leave the table alone",
        ),
        pytest.param(
            lambda tiny, _: (
                classifier(tiny),
                np.arange(classifier(tiny).get_input_embeddings().num_embeddings),
            ),
            id="every row is used",
        ),
    ],
)
def test_a_table_is_left_alone_where_a_part_of_it_would_change_the_result_or_gain_nothing(
    tiny_model: Path, tiny_causal_model: Path, build: Callable[[Path, Path], tuple[Any, np.ndarray]]
) -> None:
    model, used = build(tiny_model, tiny_causal_model)
    table = model.get_input_embeddings()

    assert not leave_out_unused_rows(model, used)
    assert model.get_input_embeddings() is table
    restore_embeddings(model)
    assert model.get_input_embeddings() is table
    assert unused_parameters(model) == 0


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({}, True),
        ({"optim": "adamw_torch", "weight_decay": 0}, True),
        ({"weight_decay": 0.01}, False),
        ({"optim": "adafactor"}, False),
        ({"optim": "sgd"}, False),
        ({"optim_args": "weight_decay=0.1"}, False),
    ],
)
def test_only_adamw_without_weight_decay_leaves_unused_rows_where_they_are(
    options: dict[str, Any], allowed: bool
) -> None:
    assert optimizer_skips_zero_gradients(options) is allowed
