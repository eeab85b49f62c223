"""What a model consists of: from its name, and from its configuration."""

from typing import Any

import pytest
import transformers

from paretune.estimating.architecture import of_config, well_known
from paretune.specification.inputs import BUNDLED_MODEL

LARGE: dict[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
PUBLISHED = {
    "bert-base-uncased": ("BertConfig", {}, "classification"),
    "bert-large-uncased": ("BertConfig", LARGE, "classification"),
    "distilbert-base-uncased": ("DistilBertConfig", {}, "classification"),
    "xlm-roberta-base": (
        "XLMRobertaConfig",
        {"vocab_size": 250_002, "max_position_embeddings": 514},
        "classification",
    ),
    "electra-small-discriminator": ("ElectraConfig", {}, "classification"),
    "deberta-v3-base": (
        "DebertaV2Config",
        {"vocab_size": 128_100, "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072}
        | {"num_attention_heads": 12, "relative_attention": True, "position_biased_input": False},
        "classification",
    ),
    "ModernBERT-base": ("ModernBertConfig", {}, "classification"),
    "gpt2": ("GPT2Config", {}, "causal-lm"),
    "opt-125m": ("OPTConfig", {}, "causal-lm"),
    "Qwen2.5-7B": (
        "Qwen2Config",
        {"vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28}
        | {"num_attention_heads": 28, "num_key_value_heads": 4, "tie_word_embeddings": False},
        "causal-lm",
    ),
    "Llama-3.2-1B": (
        "LlamaConfig",
        {"vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True},
        "causal-lm",
    ),
    "Mistral-7B-v0.1": ("MistralConfig", {"num_key_value_heads": 8}, "causal-lm"),
    "gpt2-xl": ("GPT2Config", {"n_layer": 48, "n_embd": 1600, "n_head": 25}, "causal-lm"),
    "gpt3-175b": (  # Brown et al. (arXiv 2005.14165), table 2.1
        "GPT2Config",
        {"n_layer": 96, "n_embd": 12_288, "n_head": 96, "n_positions": 2048},
        "causal-lm",
    ),
    "gpt-neox-20b": ("GPTNeoXConfig", {}, "causal-lm"),  # its defaults are those of the published model
    "mpt-7b": (
        "MptConfig",
        {"d_model": 4096, "n_layers": 32, "n_heads": 32, "vocab_size": 50_432, "tie_word_embeddings": True},
        "causal-lm",
    ),
    "Mixtral-8x7B-v0.1": ("MixtralConfig", {}, "causal-lm"),
    "Llama-2-13b-hf": (
        "LlamaConfig",
        {"hidden_size": 5120, "intermediate_size": 13_824, "num_hidden_layers": 40, "num_attention_heads": 40},
        "causal-lm",
    ),
    "Llama-2-70b-hf": (
        "LlamaConfig",
        {"hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80, "num_attention_heads": 64}
        | {"num_key_value_heads": 8},
        "causal-lm",
    ),
}


def config_of(name: str, values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = getattr(transformers, name)(**values).to_dict()
    return found


@pytest.mark.parametrize("model", PUBLISHED)
def test_a_configuration_is_counted_like_the_model_itself(model: str) -> None:
    name, values, task = PUBLISHED[model]
    counted, known = of_config(config_of(name, values), task), well_known(model)

    assert counted is not None
    assert known is not None
    assert counted.parameters == pytest.approx(known.parameters, rel=0.01)
    assert counted.matrices == pytest.approx(known.matrices, rel=0.01)
    assert (counted.layers, counted.hidden_size, counted.vocabulary) == (
        known.layers,
        known.hidden_size,
        known.vocabulary,
    )


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
