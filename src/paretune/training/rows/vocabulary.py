"""Train only the embedding rows that the data uses.

A word embedding table holds half of MiniLM's parameters and most of a multilingual model's, but a data set touches a
part of its rows. A row that is never looked up has a zero gradient, so Adam's moments for it stay zero and, without
weight decay, it never moves. Leaving such rows out of the optimiser changes no result and saves their share of
gradient memory, clipping and optimiser time.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


class UsedRows(torch.nn.Module):
    """Looks up token ids (B, T) int64 in a table of U used rows; returns (B, T, D).

    Args:
        table: the whole table, (V, D).
        used: the U token ids that occur, rising.
    """

    def __init__(self, table: torch.nn.Embedding, used: np.ndarray) -> None:
        super().__init__()
        self.table = [table]  # in a list, so that it is no part of this module's parameters
        self.used = torch.from_numpy(used)
        self.weight = torch.nn.Parameter(table.weight.detach()[self.used].clone())
        place = torch.full((table.num_embeddings,), -1)
        place[self.used] = torch.arange(len(used))
        self.register_buffer("place", place, persistent=False)
        padding = table.padding_idx
        self.padding_idx = None if padding is None or place[padding] < 0 else int(place[padding])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embeddings of `tokens`."""
        place: torch.Tensor = self.get_buffer("place")
        return torch.nn.functional.embedding(place[tokens], self.weight, padding_idx=self.padding_idx)


def optimizer_allows(options: Mapping[str, Any]) -> bool:
    """Whether the optimiser that these training arguments choose leaves a weight alone whose gradient is always zero.

    AdamW without weight decay does, and it is the default. Others may scale a step by a norm over the whole table
    (Adafactor), and `optim_args` may hold another weight decay.
    """
    is_adamw = str(options.get("optim", "adamw_torch_fused")).startswith("adamw_torch")
    return is_adamw and not options.get("optim_args") and not float(options.get("weight_decay", 0.0))


def use_only(model: Any, used: np.ndarray) -> bool:
    """Replace the model's word embeddings by their used rows where that cannot change a result; say whether.

    It could with an output layer tied to the table (every row gets a gradient) and with a table of another class than
    `torch.nn.Embedding`; it gains nothing when the table is frozen. Ask `optimizer_allows` first.
    """
    table = model.get_input_embeddings()
    if type(table) is not torch.nn.Embedding or not table.weight.requires_grad:
        return False
    holders = [name for name, item in model.named_parameters(remove_duplicate=False) if item is table.weight]
    if len(holders) != 1 or table.max_norm is not None or table.sparse or len(used) >= table.num_embeddings:
        return False
    model.set_input_embeddings(UsedRows(table, used))
    return True


def restore(model: Any) -> None:
    """Put the whole table back, its used rows as trained; nothing to do when `use_only` was not applied."""
    part = model.get_input_embeddings()
    if isinstance(part, UsedRows):
        table = part.table[0]
        with torch.no_grad():
            table.weight[part.used] = part.weight.detach().to(table.weight.device)
        model.set_input_embeddings(table)


def unused_parameters(model: Any) -> int:
    """Parameters of the embedding table that were left out of the training; 0 when `use_only` was not applied."""
    part = model.get_input_embeddings()
    return part.table[0].weight.numel() - part.weight.numel() if isinstance(part, UsedRows) else 0
