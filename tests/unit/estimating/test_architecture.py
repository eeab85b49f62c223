"""What a model consists of: from its name, and from its configuration."""

from typing import Any

import pytest
import transformers

from paretune.estimating.architecture import of_config, well_known
from paretune.specification.inputs import BUNDLED_MODEL


def test_a_language_model_multiplies_by_its_vocabulary_and_keeps_one_table_when_it_is_tied() -> None:
    config = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 10, "vocab_size": 100}
    tied = of_config(config | {"tie_word_embeddings": True}, "causal-lm")
    free = of_config(config | {"tie_word_embeddings": False}, "causal-lm")

    # block: 4 x 64 and 2 x 8 x 32 = 768
    assert tied is not None
    assert free is not None
    assert tied.matrices == free.matrices == 768 + 800
    assert tied.parameters == 768 + 800 + 80
    assert free.parameters == tied.parameters + 800


@pytest.mark.parametrize("config", [{}, {"hidden_size": 8, "vocab_size": 5}, {"hidden_size": "8", "n_layer": 1}])
def test_a_configuration_of_an_unknown_kind_is_no_architecture(config: dict[str, Any]) -> None:
    assert of_config(config) is None


def test_a_well_known_model_is_found_with_and_without_its_organisation() -> None:
    assert well_known("google-bert/bert-base-uncased") == well_known("bert-base-uncased") is not None
    assert well_known(BUNDLED_MODEL) == well_known("all-MiniLM-L6-v2") is not None
    assert well_known("nobody/knows-this") is None


MIXTURES = {
    "Mixtral-8x7B": (
        {"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
        | {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "hidden_act": "silu"}
        | {"num_local_experts": 8, "num_experts_per_tok": 2},
        (46.7e9, 12.9e9),  # arXiv 2401.04088: 47 billion, 13 billion active
    ),
    "Qwen3-30B-A3B": (
        {"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32}
        | {"num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768}
        | {"vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8, "mlp_only_layers": []},
        (30.5e9, 3.3e9),  # arXiv 2505.09388
    ),
    "DeepSeek-V2-Lite": (
        {"model_type": "deepseek_v2", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16}
        | {"num_key_value_heads": 16, "intermediate_size": 10944, "moe_intermediate_size": 1408, "vocab_size": 102400}
        | {"n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1}
        | {"hidden_act": "silu"},
        (15.7e9, 2.4e9),  # arXiv 2405.04434
    ),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_all_experts_are_weights_and_the_chosen_ones_are_multiplied(name: str) -> None:
    config, (parameters, active) = MIXTURES[name]
    found = of_config(config, "causal-lm")

    assert found is not None
    assert found.parameters == pytest.approx(parameters, rel=0.01)
    assert found.matrices == pytest.approx(active, rel=0.1)  # embeddings, which are looked up, are published with them


def test_every_well_known_model_has_the_configuration_that_its_weights_were_counted_with() -> None:
    from paretune.estimating.architecture import _architectures

    for name, built in _architectures().items():
        if built.config is None:
            continue
        read = transformers.AutoConfig.for_model(**built.config).to_dict()
        counted = [found for task in ("classification", "causal-lm") if (found := of_config(read, task))]
        assert any(found.parameters == pytest.approx(built.parameters, rel=0.03) for found in counted), name
        assert {found.hidden_size for found in counted} == {built.hidden_size}, name


def test_adapters_are_counted_from_all_linear_layers() -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    }
    built = of_config(config, "causal-lm")

    assert built is not None
    assert 16 * built.adapted_widths == 41_943_040  # what peft counts for rank 16
