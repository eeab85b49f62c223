"""Matrices divided over a group of one process: the whole plan runs, and changes no result."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from paretune.training.sharding import divide_matrices

SIZES = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.fixture
def mesh() -> Iterator[Any]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("tensor",))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (LlamaForCausalLM, LlamaConfig),
        (GPTNeoXForCausalLM, GPTNeoXConfig),
        (MistralForCausalLM, MistralConfig),
        (Qwen2ForCausalLM, Qwen2Config),
    ],
)
def test_every_parameter_lies_on_the_mesh_and_a_tied_head_stays_tied(
    mesh: Any, kind: Any, config: Any, tied: bool
) -> None:
    torch.manual_seed(0)
    model = kind(config(**SIZES, num_key_value_heads=2, tie_word_embeddings=tied)).eval()
    tokens = torch.arange(6)[None]
    expected = model(input_ids=tokens).logits.detach()

    divide_matrices(model, mesh)

    assert all(isinstance(item, DTensor) for item in model.parameters())
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
    result = model(input_ids=tokens).logits
    assert type(result) is torch.Tensor
    assert torch.allclose(result, expected, atol=1e-6)
