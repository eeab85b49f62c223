"""The state of a sharded model, whole: what other ways of dividing it read."""

from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from paretune.training.model import leave_out_unused_rows
from paretune.training.parallel.sharding import _in_whole_table, _of_used_rows

TABLE = "model.embed_tokens.weight"


def test_a_checkpoint_has_the_whole_table_although_a_part_is_trained() -> None:
    sizes: dict[str, Any] = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=6, **sizes))
    before = model.get_input_embeddings().weight.detach().clone()
    leave_out_unused_rows(model, np.array([1, 4]))
    moments = {"step": torch.tensor(3.0), "exp_avg": torch.full((2, 4), 0.5)}
    state = {"model": {TABLE: torch.ones(2, 4)}, "optimizer": {"state": {TABLE: moments}}}

    whole = _in_whole_table(state, model)

    expected = before.clone()
    expected[[1, 4]] = 1.0
    assert torch.equal(whole["model"][TABLE], expected)
    assert whole["optimizer"]["state"][TABLE]["exp_avg"].sum(1).tolist() == [0, 2, 0, 0, 2, 0]
    assert whole["optimizer"]["state"][TABLE]["step"] == 3
    again = _of_used_rows(whole, model)
    assert torch.equal(again["model"][TABLE], torch.ones(2, 4))
    assert again["optimizer"]["state"][TABLE]["exp_avg"].shape == (2, 4)
    assert _of_used_rows(again, model) is again  # as earlier versions wrote it
