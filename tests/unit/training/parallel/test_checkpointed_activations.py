"""Activations that are computed again, or kept elsewhere."""

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from paretune.specification.job import JobSpec
from paretune.training.prepare import activation_faults
from paretune.training.strategies import checkpoint_activations

SPEC = JobSpec(training_arguments={"gradient_checkpointing": True})


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=3, n_head=2)).train()


def passes(model: Any) -> tuple[int, list[torch.Tensor]]:
    """How often the first layer is computed in a step, and the gradients."""
    computed: list[int] = []
    hook = model.transformer.h[0].attn.register_forward_hook(lambda *_: computed.append(1))
    torch.manual_seed(1)  # of dropout
    model(input_ids=torch.arange(6)[None], labels=torch.arange(6)[None]).loss.backward()
    hook.remove()
    return len(computed), [item.grad.clone() for item in model.parameters()]


def test_a_layer_is_computed_twice_and_its_gradients_stay_the_same(model: Any) -> None:
    once, expected = passes(model)
    model.zero_grad()
    checkpoint_activations(model, SPEC)

    more, result = passes(model)

    assert (once, more) == (1, 2)
    assert all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))


def test_a_model_whose_layers_transformers_cannot_compute_again_is_refused() -> None:
    (fault,) = activation_faults(torch.nn.Linear, "mine")

    assert fault == "gradient_checkpointing: transformers cannot compute the layers of mine again: leave it out"
    assert not activation_faults(GPT2LMHeadModel, "gpt2")
