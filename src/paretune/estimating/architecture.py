"""The few sizes of a model that time and memory depend on.

architectures.csv has the sizes of well-known models. Those of other models are read from their config.json. If a model
is on the Hugging Face Hub, only this file of a few kilobytes is downloaded, not the weights.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, did_you_mean, first_line
from paretune.core.hub import accepts_connections, hub_address, is_offline
from paretune.core.reading import config_in, is_folder, read_config
from paretune.estimating.formats import kind_of, stored_in
from paretune.specification.inputs import BUNDLED
from paretune.specification.metrics import CAUSAL_LM

# Names that configurations of different model families use for the same number.
_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim", "emb_dim")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
_INNER = ("intermediate_size", "ffn_dim", "n_inner", "hidden_dim", "d_ff", "encoder_ffn_dim")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_DECODER_LAYERS = ("num_decoder_layers", "decoder_layers")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_CHOSEN_EXPERTS = ("num_experts_per_tok", "experts_per_token")
_POSITIONS = ("max_position_embeddings", "n_positions")
_NUMBERED_AFTER_PADDING = frozenset(
    {"camembert", "data2vec-text", "ibert", "longformer", "mpnet", "xmod"}
    | {"roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl"}
)  # kinds of models that number positions from the padding token's id + 1
_WITHOUT_LIMIT = ("t5", "mpt", "bloom", "xlnet")  # relative positions; `n_positions` only describes the pre-training
# Families whose feed-forward block has a third matrix, the gate. Models with SiLU count as gated, too, as most are.
_GATED = ("llama", "mistral", "mixtral", "qwen", "gemma", "phi3", "modernbert", "olmo", "smollm")
# Families with rotary or relative positions, which need no table. All models with rope_parameters have them, too.
_WITHOUT_POSITION_TABLE = (*_GATED, "deberta-v2", "t5", "phi", "gpt_neox", "falcon")
# Factors and limits of the logits of a language model; None or 1 if it has none.
_OF_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
_COUNTED = ("parameters", "matrices", "layers", "hidden_size", "vocabulary", "adapted_widths")
_OF_EXPERTS = ("experts", "idle_experts")


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Sizes of a model."""

    parameters: int  # all weights
    matrices: int  # weights that a token is multiplied with; embedding tables are only looked up
    layers: int
    hidden_size: int
    vocabulary: int  # tokens that have an embedding
    adapted_widths: int
    """Sum of inputs and outputs of all linear layers below the head: the number of adapter weights at rank 1."""
    kind: str = ""  # the `model_type` of transformers, or "" if unknown
    positions: int | None = None  # longest row in tokens, or None if nothing limits it
    stored: str = "fp32"  # number format of the weights in its files
    changes_logits: bool = False  # whether a language model scales or caps what its output layer computes
    experts: int = 0  # weights of the experts in a mixture among which a router chooses; 0 without a mixture
    idle_experts: int = 0  # those of the experts that a token does not pass through, which `matrices` leaves out


def adapted_widths(config: Mapping[str, Any], hidden: int, layers: int) -> int:
    """Return the sum of inputs and outputs of all linear layers in `layers` blocks, each of which is `hidden` wide.

    Experts of a mixture are not counted, because peft does not adapt stacked weights. If a job adapts only some kinds
    of layers, the true sum is smaller.
    """
    config = _of_text(config)
    queries, grouped = _attention(config, hidden)
    widths = 2 * (hidden + queries) + 2 * (hidden + grouped)
    if (_first(config, _EXPERTS) or 1) == 1:
        widths += (3 if _has_gate(config) else 2) * (hidden + (_first(config, _INNER) or 4 * hidden))
    return layers * widths


def _of_text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration; for a model of text and images, values of its text part override the outer ones."""
    text = config.get("text_config")
    return {**config, **text} if isinstance(text, Mapping) else config


def _attention(config: Mapping[str, Any], hidden: int) -> tuple[int, int]:
    """Return the total width of the queries of a layer, and that of its keys, over all heads."""
    heads = _first(config, _HEADS)
    grouped = _first(config, ("num_key_value_heads", "num_kv_heads")) or heads or 1
    if config.get("multi_query") and not config.get("new_decoder_architecture"):  # as Falcon-7B and StarCoder write it
        grouped = 1
    size = _first(config, ("head_dim", "d_kv")) or (hidden // heads if heads else hidden)
    return size * (heads or 1), size * grouped


def _has_gate(config: Mapping[str, Any]) -> bool:
    kind = str(config.get("model_type", ""))
    is_gated = any(name in kind for name in _GATED) or config.get("hidden_act") in {"silu", "swish"}
    return is_gated or str(config.get("feed_forward_proj")).startswith("gated")  # T5's name for it


def well_known(model: str, task: str = CAUSAL_LM) -> Architecture | None:
    """Return the architecture of a well-known model by its hub id, with or without organization, or None.

    The output layer of a language model is counted only for the task causal-lm.
    """
    names = _architectures()
    built, output = names.get(model.removeprefix(BUNDLED)) or names.get(model.rpartition("/")[2]) or (None, 0)
    if built is None or task == CAUSAL_LM:
        return built
    own = output if built.parameters - built.matrices >= output else 0  # 0 if it shares the embedding table's weights
    return replace(built, parameters=built.parameters - own, matrices=built.matrices - output)


def of_config(config: Mapping[str, Any], task: str = "classification") -> Architecture | None:
    """Return the architecture that a config.json describes, within a few percent, or None if a main size is missing.

    Both counts include four attention projections, two or three matrices of each feed-forward block, the head and, in
    an encoder-decoder model, the decoder's attention to the encoder. Only `parameters` includes the embedding tables.
    In a mixture of experts, `matrices` counts only the experts that a token passes through, and `parameters` counts all
    of them. Both leave out biases, norms, adapters, routers and the parts that process images.
    """
    kind_of_all, config = kind_of(config), _of_text(config)
    hidden, layers = (_first(config, names) for names in (_HIDDEN, _LAYERS))
    vocabulary = _first(config, ("vocab_size", "n_words"))
    if not (hidden and layers and vocabulary):
        return None
    kind = str(config.get("model_type", ""))
    inner = _first(config, _INNER) or 4 * hidden
    (queries, grouped), gated = _attention(config, hidden), _has_gate(config)
    attention = 2 * hidden * (queries + grouped)
    unit = (3 if gated else 2) * hidden  # weights of a feed-forward block for each unit of its width
    block = attention + unit * inner
    embedding = _first(config, ("embedding_size", "input_embedding_size", "word_embed_proj_dim")) or hidden
    tables = vocabulary * embedding
    if not (any(name in kind for name in _WITHOUT_POSITION_TABLE) or config.get("rope_parameters")):
        tables += (_first(config, _POSITIONS) or 512) * embedding
    decoder = (_first(config, _DECODER_LAYERS) or layers) if config.get("is_encoder_decoder") else 0
    matrices = layers * block + decoder * (block + attention)
    all_experts, active, idle = _experts(config, layers, inner)
    matrices += unit * active
    shared = layers - (_first(config, ("num_hidden_groups",)) or layers)  # blocks that share the weights of others
    if task == CAUSAL_LM:
        matrices += vocabulary * embedding
        tables -= vocabulary * embedding if config.get("tie_word_embeddings", True) else 0
    else:
        matrices += hidden * hidden
    return Architecture(
        parameters=matrices + unit * idle + tables - shared * block,
        matrices=matrices,
        layers=layers + decoder,
        hidden_size=hidden,
        vocabulary=vocabulary,
        adapted_widths=adapted_widths(config, hidden, layers + decoder),
        kind=kind_of_all,
        positions=positions_of(config),
        stored=stored_in(config),
        changes_logits=any(config.get(name) not in (None, 1.0) for name in _OF_LOGITS),
        experts=unit * all_experts,
        idle_experts=unit * idle,
    )


def positions_of(config: Mapping[str, Any]) -> int | None:
    """Return how many tokens a row may have in a model with this configuration, or None if there is no limit."""
    config = _of_text(config)
    kind, longest = str(config.get("model_type", "")), _first(config, _POSITIONS)
    if longest is None or longest <= 0 or any(name in kind for name in _WITHOUT_LIMIT):
        return None
    return longest - (config.get("pad_token_id", 1) or 0) - 1 if kind in _NUMBERED_AFTER_PADDING else longest


def length_faults(model: str, positions: int | None, max_seq_length: int) -> list[str]:
    """Return one fault if rows may be longer than the model's number of positions."""
    if positions is None or max_seq_length <= positions:
        return []
    return [f"max_seq_length must be at most {positions} for {model}, got {max_seq_length}"]


def _experts(config: Mapping[str, Any], layers: int, inner: int) -> tuple[int, int, int]:
    """Return three widths of a mixture of experts, each summed over the layers that have experts.

    The first is the width of all experts that may be chosen. The second is the width of the experts that a token passes
    through, minus `inner`, which the caller has counted already. The third is the width of all other experts. An expert
    is `inner` wide unless the configuration has another width.
    """
    experts, chosen = _first(config, _EXPERTS) or 1, _first(config, _CHOSEN_EXPERTS) or 1
    if experts == 1:
        return 0, 0, 0
    width = _first(config, ("moe_intermediate_size",)) or inner
    common = _first(config, ("shared_expert_intermediate_size",))
    common = (_first(config, ("n_shared_experts",)) or 0) * width if common is None else common
    only_dense = config.get("mlp_only_layers")
    dense = (_first(config, ("first_k_dense_replace",)) or 0) + len(only_dense if isinstance(only_dense, list) else ())
    sparse = max(0, layers - dense)
    return sparse * experts * width, sparse * (chosen * width + common - inner), sparse * (experts - chosen) * width


def architecture_in(folder: str | Path, task: str) -> Architecture | None:
    """Return the architecture of the model in a folder, or None if its config.json is missing or cannot be read.

    It also has what else a job asks of the file: the longest row (`positions`) and the format of the files (`stored`).
    """
    config = config_in(folder)
    return None if config is None else of_config(config, task)


def hub_config(model: str, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Download the config.json of a model on the Hub, or read it from the cache. Raises BadInput if neither works."""
    from huggingface_hub import hf_hub_download  # takes a third of a second

    endpoint, offline = hub_address(environment), is_offline(environment)
    is_away = not offline and not accepts_connections(endpoint)
    try:
        token, only_cached = environment.get("HF_TOKEN"), offline or is_away
        path = hf_hub_download(model, "config.json", endpoint=endpoint, token=token, local_files_only=only_cached)
    except Exception as error:  # several libraries raise here; the message gives the reason
        why_none = "it accepts no connection" if is_away else first_line(error)
        reason = "HF_HUB_OFFLINE is set" if offline else f"{endpoint} did not provide it ({why_none})"
        near = did_you_mean(model.rpartition("/")[2], _architectures(), lead=" (", most=1, cutoff=0.9)
        fault = f"model {model} is not well known{near and near + ')'}, and its config.json is missing: {reason}"
        remedy = "a private or gated model needs HF_TOKEN; otherwise give a folder with this file, or a well-known"
        raise BadInput([f"{fault}; {remedy} model of the same size"]) from error
    return read_config(Path(path).parent)


_NOT_TEXT = {
    "images": {"image_size", "patch_size", "num_channels", "vision_config"},
    "speech or sound": {"num_mel_bins", "input_feat_per_channel", "conv_dim", "audio_config", "codebook_size"},
}
"""Entries of the config.json of a model that reads something other than text, without a text part of its own."""


def architecture_of(model: str, task: str, environment: Mapping[str, str]) -> Architecture:
    """Return the architecture of a model that is well known, in a folder or on the Hub. Raises BadInput if unknown."""
    architecture = well_known(model, task)
    if architecture is not None:
        return architecture
    config = read_config(model) if is_folder(model) else hub_config(model, environment)
    is_of_text_too = (
        "text_config" in config and "projection_dim" not in config
    )  # unlike CLIP, which compares with texts
    for kind, entries in _NOT_TEXT.items():
        if not is_of_text_too and not entries.isdisjoint(config):
            raise BadInput([f"model {model} is for {kind}: paretune estimates and trains only models for text"])
    architecture = of_config(config, task)
    if architecture is None:
        rule = f"model {model}: its config.json must have hidden size, number of layers and vocabulary size"
        raise BadInput([rule])
    return architecture


def _first(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Return the value of the first of these names that has a whole number in the configuration, or None."""
    return next((int(config[name]) for name in names if isinstance(config.get(name), int)), None)


@cache
def _architectures() -> Mapping[str, tuple[Architecture, int]]:
    """Read architectures.csv: for each model its architecture, and the number of weights in its output layer.

    The counts come from models that transformers 5.23 built from their published configurations, without memory for the
    weights. `matrices` counts all weights except embedding tables and the experts that a token does not pass through.
    `output_layer` counts the weights of a language model's output layer. gpt3-175b is the largest shape of Brown et al.
    (arXiv 2005.14165, table 2.1).
    """
    lines = files("paretune.estimating").joinpath("architectures.csv").read_text(encoding="utf-8").splitlines()
    return {
        row["model"]: (
            Architecture(
                **{name: int(row[name]) for name in (*_COUNTED, *_OF_EXPERTS)},  # type: ignore[arg-type]  # no bool
                kind=row["kind"],
                stored=row["stored"],
                positions=int(row["positions"]) if row["positions"] else None,
            ),
            int(row["output_layer"]),
        )
        for row in csv.DictReader(lines)
    }
