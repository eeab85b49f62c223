"""What a model consists of, derived from its name or its configuration."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paretune.core.errors import BadInput
from paretune.estimating.architecture import architecture_in, hub_config, of_config, well_known
from paretune.specification.inputs import BUNDLED_MODEL
from tests.support.stand_ins.hub import Hub


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


def test_a_well_known_model_is_found_with_and_without_its_organization() -> None:
    assert well_known("google-bert/bert-base-uncased") == well_known("bert-base-uncased") is not None
    assert well_known(BUNDLED_MODEL) == well_known("all-MiniLM-L6-v2") is not None
    assert well_known("nobody/knows-this") is None


@pytest.mark.parametrize(
    ("name", "parameters", "matrices"),
    [
        ("bert-base-uncased", 0, 0),
        ("gpt2", 0, 50257 * 768),  # its output layer is the embedding table
        ("Llama-3.1-8B", 128256 * 4096, 128256 * 4096),
        ("Mixtral-8x7B-v0.1", 32000 * 4096, 32000 * 4096),
    ],
)
def test_a_classifier_has_no_output_layer_of_a_language_model(name: str, parameters: int, matrices: int) -> None:
    whole, classifier = well_known(name), well_known(name, "classification")

    assert whole is not None
    assert classifier is not None
    assert (whole.parameters - classifier.parameters, whole.matrices - classifier.matrices) == (parameters, matrices)


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
    found = of_config(config | {"tie_word_embeddings": False}, "causal-lm")

    assert found is not None
    assert found.parameters == pytest.approx(parameters, rel=0.01)
    assert found.matrices == pytest.approx(active, rel=0.1)  # publications include embeddings, which are looked up
    embeddings = config["vocab_size"] * config["hidden_size"]
    assert found.parameters == pytest.approx(found.matrices + found.idle_experts + embeddings, rel=1e-3)
    if (known := well_known("Mixtral-8x7B-v0.1")) and name == "Mixtral-8x7B":
        assert (known.experts, known.idle_experts) == (found.experts, found.idle_experts)


GATED = {"feed_forward_proj": "gated-gelu"}
T5 = {"model_type": "t5", "is_encoder_decoder": True, "vocab_size": 32128}


@pytest.mark.parametrize(
    ("config", "task", "parameters"),
    [
        (
            {"model_type": "gemma", "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8}
            | {"num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 16384, "vocab_size": 256000},
            "causal-lm",
            2.506e9,  # google/gemma-2b, whose config.json does not say that its tables are tied
        ),
        (T5 | GATED | {"d_model": 768, "num_layers": 12, "num_heads": 12, "d_kv": 64, "d_ff": 2048}, "", 222.9e6),
        (T5 | {"d_model": 1024, "num_layers": 24, "num_heads": 32, "d_kv": 128, "d_ff": 16384}, "", 2.852e9),
        (
            {"model_type": "bart", "d_model": 1024, "encoder_layers": 12, "encoder_ffn_dim": 4096, "vocab_size": 50265}
            | {"is_encoder_decoder": True, "decoder_layers": 12, "max_position_embeddings": 1024},
            "",
            407.3e6,  # as transformers 5 writes it, without num_hidden_layers
        ),
        (
            {"model_type": "rembert", "hidden_size": 1152, "num_hidden_layers": 32, "num_attention_heads": 18}
            | {"intermediate_size": 4608, "input_embedding_size": 256, "vocab_size": 250300},
            "",
            576.0e6,
        ),
        ({"model_type": "flaubert", "emb_dim": 768, "n_layers": 12, "n_heads": 12, "n_words": 68729}, "", 138.2e6),
    ],
    ids=["gemma-2b", "flan-t5-base", "t5-3b", "bart-large", "rembert", "flaubert-base"],
)
def test_models_with_tied_tables_wide_heads_or_gates_are_counted(
    config: dict[str, Any], task: str, parameters: float
) -> None:
    built = of_config(config, task)

    assert built is not None
    assert built.parameters == pytest.approx(parameters, rel=0.005)


def test_adapters_are_counted_from_all_linear_layers() -> None:
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    config |= {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
    built = of_config(config, "causal-lm")

    assert built is not None
    assert 16 * built.adapted_widths == 41_943_040  # what peft counts for rank 16


CONFIG = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Return a hub with a good model, one whose file is not an object, and one that requires accepted terms."""
    for name, text in {"good/bert": json.dumps(CONFIG), "odd/list": "[1]", "gated/bert": json.dumps(CONFIG)}.items():
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(text)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # another test may have imported it offline
    with Hub(tmp_path, gated=("gated/bert",)) as server:
        yield server


def refusal(model: str, environment: dict[str, str]) -> str:
    with pytest.raises(BadInput) as refused:
        hub_config(model, environment)
    return str(refused.value)


def test_a_configuration_is_read_without_weights_and_what_cannot_be_had_is_refused_with_what_to_do(hub: Hub) -> None:
    assert hub_config("good/bert", {"HF_ENDPOINT": hub.url}) == CONFIG
    assert {path for _, path, _ in hub.requests} == {"/good/bert/resolve/main/config.json"}

    faults = {"nobody/knows": "404", "gated/bert": "needs HF_TOKEN", "odd/list": "is not a JSON object"}
    for model, message in faults.items():
        assert message in refusal(model, {"HF_ENDPOINT": hub.url})


def test_a_hub_that_does_not_answer_is_named_without_the_token() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # nothing listens on it
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        text = refusal("good/bert", {"HF_ENDPOINT": address, "HF_TOKEN": "hf_secret"})

        near = refusal("distilbert/distilbert-base-uncasd", {"HF_ENDPOINT": address})

    assert "http://hub:one did not provide it" in refusal("good/bert", {"HF_ENDPOINT": "http://hub:one"})
    assert "is not well known (did you mean distilbert-base-uncased?), and its config.json" in near
    assert "did you mean" not in text
    assert f"{address} did not provide it" in text
    assert "hf_secret" not in text


def test_one_reading_of_a_model_s_folder_has_sizes_longest_row_and_format(tmp_path: Path) -> None:
    config = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 512, "dtype": "bfloat16"}))

    built = architecture_in(tmp_path, "classification")

    assert built is not None
    assert (built.layers, built.positions, built.stored) == (2, 512, "bf16")
    assert architecture_in(tmp_path / "none", "classification") is None
