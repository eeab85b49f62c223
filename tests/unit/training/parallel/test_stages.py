"""A model in stages computes what it computes in one piece."""

import copy
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from paretune.training.parallel.stages import STAGE_PREFIX, Stage

SIZES = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
SPECIAL = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None}
GROUPED = {"num_key_value_heads": 1}
MODELS = (
    (BertForSequenceClassification, BertConfig(**SIZES)),
    (GPT2ForSequenceClassification, GPT2Config(**SIZES, **SPECIAL)),
    (GPT2LMHeadModel, GPT2Config(**SIZES, **SPECIAL)),
    (GPTNeoXForCausalLM, GPTNeoXConfig(**SIZES, **SPECIAL)),
    (LlamaForCausalLM, LlamaConfig(**SIZES, **SPECIAL, **GROUPED)),
    (MistralForCausalLM, MistralConfig(**SIZES, **SPECIAL, **GROUPED, sliding_window=2)),
    (Qwen2ForCausalLM, Qwen2Config(**SIZES, **SPECIAL, **GROUPED)),
)


def stages_of(model: Any) -> list[Stage]:
    return [Stage(copy.deepcopy(model), number=number, stages=2).eval() for number in range(2)]


@pytest.mark.parametrize(("kind", "config"), MODELS, ids=lambda item: getattr(item, "__name__", ""))
def test_the_stages_of_a_model_compute_its_logits(kind: Any, config: Any) -> None:
    torch.manual_seed(0)
    model = kind(config).eval()
    tokens = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 0, 0]])
    mask = (tokens != 0).long()
    first, last = stages_of(model)

    hidden = first(tokens, tokens=tokens, attention_mask=mask)
    result = last(hidden, tokens=tokens, attention_mask=mask)

    assert hidden.shape == (2, 5, 8)
    assert torch.allclose(result, model(input_ids=tokens, attention_mask=mask).logits, atol=1e-6)


def test_each_weight_is_in_one_stage_under_its_own_name_and_a_tied_table_in_two() -> None:
    model = GPT2LMHeadModel(GPT2Config(**SIZES, **SPECIAL))
    first, last = (
        {name.removeprefix(STAGE_PREFIX) for name, _ in stage.named_parameters()} for stage in stages_of(model)
    )

    assert first | last == {*dict(model.named_parameters()), "lm_head.weight"}
    assert not first & last
    assert [stage.table for stage in stages_of(model)] == ["transformer.wte.weight"] * 2
    assert all(stage.tied_weight() is not None for stage in stages_of(model))
