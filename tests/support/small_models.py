"""Models with two layers and random weights, and a counter of calls to PyTorch's operators."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig

from paretune.training.model import auto_class

SMALL = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "num_key_value_heads": 2,
    "num_labels": 3,
    "head_dim": 8,
}
NAMES_OF = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48},
    "electra": {"embedding_size": 16},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40},
}


def small(kind: str, task: str = "classification", attention: str = "sdpa", **more: Any) -> Any:
    """Return a model of this `kind` (transformers' model_type) with two layers and random weights."""
    torch.manual_seed(0)
    values = {name: value for name, value in SMALL.items() if kind != "gpt2" or name in ("vocab_size", "num_labels")}
    config = AutoConfig.for_model(kind, **{**values, "pad_token_id": 0, **NAMES_OF.get(kind, {}), **more})
    return auto_class(task).from_config(config, attn_implementation=attention)


def batch_of(lengths: list[int]) -> dict[str, torch.Tensor]:
    inside = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": torch.randint(5, 60, inside.shape) * inside, "attention_mask": inside}


class Calls(TorchDispatchMode):
    """Counts the calls to PyTorch's operator `of`, or to all operators."""

    def __init__(self, of: Any = None) -> None:
        super().__init__()
        self.of, self.count = of, 0

    def __torch_dispatch__(self, function: Any, types: Any, inputs: Any = (), options: Any = None) -> Any:
        self.count += self.of in (None, function)
        return function(*inputs, **(options or {}))
