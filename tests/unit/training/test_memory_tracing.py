"""What a traced step holds, against counts by hand and against a step on real tensors."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, GPT2Config, LlamaConfig

from paretune.estimating.traced_step import Division, StepSetting, TracedStep
from paretune.training.memory_tracing import _answer, trace

pytestmark = [
    pytest.mark.slow,  # each builds models and traces three steps of them
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
]

BERT = BertConfig(
    vocab_size=1000, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
).to_dict()
SETTING = StepSetting(
    config=BERT,
    task="classification",
    fine_tuning="full",
    lora_rank=8,
    lora_dropout=0.0,
    lora_target_modules="all-linear",
    half="",
    frozen_in_half=False,
    on_processor=True,
    tokens=64,
    recomputes=False,
)
LAYER = 4 * (32 * 32 + 32) + 2 * 32 * 64 + 64 + 32 + 4 * 32
OTHER = (1000 + 512 + 2) * 32 + 2 * 32 + (32 * 32 + 32) + 2 * 33


def traced(**changes: Any) -> TracedStep:
    return trace(replace(SETTING, **changes))


def kept(step: TracedStep, rows: int = 1000) -> float:
    """Bytes beside weights, state and gradients where a step of many rows holds most, for each row."""
    return step.peak(Division(rows=rows)).passing / rows


def test_weights_gradients_and_moments_are_those_of_the_model() -> None:
    result = traced()

    assert (result.layers, result.layer_weights, result.other_weights) == (2, 2 * LAYER * 4, OTHER * 4)
    assert (result.layer_gradients, result.other_gradients) == (result.layer_weights, result.other_weights)
    assert result.input_weights == 1000 * 32 * 4
    assert result.state == pytest.approx(2 * result.gradients, rel=0.01)  # and a counter for each weight
    assert max(row[0] for row in result.train) == result.gradients


@pytest.mark.parametrize("rows", [3, 16])
def test_a_traced_forward_pass_keeps_what_a_real_one_keeps(rows: int) -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(BertConfig.from_dict(BERT)).train()
    mask = torch.ones(rows, 64, dtype=torch.int64)
    mask[0, 5:] = 0
    weights = {item.untyped_storage().data_ptr() for item in (*model.parameters(), *model.buffers())}
    held: dict[int, int] = {}

    def keep(item: torch.Tensor) -> torch.Tensor:
        storage = item.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage.nbytes()
        return item

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda item: item):
        outputs = model(input_ids=torch.zeros(rows, 64, dtype=torch.int64), attention_mask=mask)
    assert outputs.logits.requires_grad

    assert kept(traced(), rows) == pytest.approx(sum(held.values()) / rows, rel=0.05)


def test_only_what_is_trained_has_gradients_and_moments() -> None:
    head, adapters = traced(fine_tuning="head"), traced(fine_tuning="lora")

    assert head.gradients == 2 * 33 * 4
    assert head.layer_gradients == 0
    assert kept(head) < kept(traced()) / 2  # a frozen encoder keeps nothing
    assert 0 < adapters.gradients < adapters.layer_weights / 2
    assert adapters.quantisable == 2 * (4 * 32 * 32 + 2 * 32 * 64)


def test_frozen_weights_beside_adapters_have_two_bytes_in_half_precision() -> None:
    result = traced(fine_tuning="lora", half="bf16", frozen_in_half=True)

    assert result.quantisable_bytes == 2 * result.quantisable
    assert result.layer_gradients == traced(fine_tuning="lora").layer_gradients  # what is trained has four


def test_a_layer_whose_activations_are_made_again_keeps_its_input() -> None:
    again = traced(recomputes=True, config=BERT | {"num_hidden_layers": 8})

    assert kept(again) < kept(traced(config=BERT | {"num_hidden_layers": 8})) / 3
    assert max(row[len(row) // 2 + 2] for row in again.train) == 8 * 64 * 32 * 4  # inputs, of a row


def test_gpus_keep_no_attention_matrix() -> None:
    wide = BERT | {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 8}
    long = [
        kept(traced(config=wide, on_processor=location, tokens=512)) / kept(traced(config=wide, on_processor=location))
        for location in (False, True)
    ]

    assert long[0] == pytest.approx(8, rel=0.25)  # linear in the tokens, but for the mask
    assert long[1] > 20


def test_autocast_keeps_a_copy_of_the_weights_and_halves_what_layers_keep() -> None:
    full, half = traced(on_processor=False), traced(on_processor=False, half="bf16")
    casts = max(row[1] for row in half.train)

    assert casts == pytest.approx(2 * LAYER * 2, rel=0.1)
    assert max(row[1] for row in full.train) == 0
    assert 0.4 < kept(half) / kept(full) < 0.8


@pytest.mark.parametrize(
    "config",
    [
        GPT2Config(vocab_size=1000, n_embd=32, n_layer=2, n_head=2),
        LlamaConfig(vocab_size=1000, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4),
    ],
)
def test_language_models_are_traced_with_their_logits(config: Any) -> None:
    result = traced(config=config.to_dict(), task="causal-lm", on_processor=False, half="bf16", recomputes=True)

    assert result.layers == 2
    assert kept(result) > 64 * 1000 * 4  # a token's logits in fp32
    assert result.peak(Division(rows=1, evaluated_rows=64)).passing > 64 * 64 * 1000 * 4


def test_a_task_with_labels_of_tokens_is_traced() -> None:
    assert traced(task="token-classification", on_processor=False, half="bf16").layers == 2


def test_a_model_that_transformers_does_not_know_is_answered_with_the_reason() -> None:
    answer = _answer(replace(SETTING, config={"model_type": "nobody-s"}))

    assert answer.keys() == {"error"}
    assert "nobody-s" in answer["error"]
