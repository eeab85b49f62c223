"""The number formats of a training run. They are chosen here; `training` uses them, and `estimating` counts with them.

A weight in bf16 has 8 significant bits, so an update smaller than 1/512 of the weight is lost. To avoid this, either
the optimizer updates an fp32 copy of each weight, its master, or the weights are in fp32 and each product casts them
(autocast). Only precision=bf16-true accepts such losses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paretune.specification.job import ADAPTERS
from paretune.specification.parallelism import DEVICE_MAP, SHARDED, ParallelDegrees
from paretune.specification.program import Program

PLAIN_ENCODERS = frozenset({"bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta"})
"""Kinds of encoders whose layers all use the same mask, and whose weights all get gradients in each step."""
PLAIN_DECODERS = frozenset({"gpt2", "gpt_neox", "llama", "mistral", "qwen2", "qwen3"})
"""Kinds of decoders whose weights all get gradients in each step."""
BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0}
LOADS_AS_STORED = (5, 0)
"""Version of transformers since which `from_pretrained` loads a model in the format of its files by default."""
_HALVES = ("bf16", "fp16")
_HALF_BASES = frozenset({"ddp", "smddp", "fsdp", DEVICE_MAP})


@dataclass(frozen=True, kw_only=True)
class Formats:
    """The number formats of a training run: fp32, bf16 or fp16."""

    weights: str  # trained weights as they are stored between computations of layers, and their gradients
    updated: str  # trained weights as the optimizer updates them; if it differs from `weights`, there are masters
    frozen: str  # weights that are neither trained nor in 4 bits
    compute: str  # matrix products; tf32 if they round fp32 numbers to TF32
    autocast: bool  # whether each product casts its inputs; if not, the weights of a layer have the format of products
    mask: str | None  # the attention mask that is added to the scores of all layers; None if the model makes its own
    scales: bool  # whether the loss is scaled, so that gradients do not underflow
    saved: str  # files of the trained model: the format of the original model's files

    @property
    def has_masters(self) -> bool:
        """Whether the optimizer keeps a copy of each weight in another format."""
        return self.updated != self.weights

    @property
    def is_half(self) -> bool:
        """Whether products are computed in bf16 or fp16."""
        return self.compute in _HALVES


def formats_of(fine_tuning: str, degrees: ParallelDegrees, kind: str, precision: str, stored: str = "fp32") -> Formats:
    """Return the formats of a job that trains a model of this `kind` in `precision`, which must not be auto.

    `kind_of` and `stored_in` read `kind` and `stored`, the format of the model's files, from a configuration.
    """
    compute, is_pure = precision.removesuffix("-true"), precision.endswith("-true")
    is_divided = degrees.strategy in SHARDED and (degrees.devices > 1 or degrees.cpu_offload)
    is_sharded = is_divided and (degrees.data > 1 or degrees.cpu_offload)
    # Without autocast, a layer computes with bf16 weights: either the model's own, or gathered from shards.
    is_whole_bf16 = compute == "bf16" and fine_tuning == "full" and is_plain(kind)
    has_bf16_layers = is_whole_bf16 and (is_sharded or not is_divided)
    adapts_half = fine_tuning in ADAPTERS and compute == "bf16" and degrees.strategy in _HALF_BASES
    return Formats(
        weights="bf16" if is_pure or (has_bf16_layers and not is_divided) else "fp32",
        updated="bf16" if is_pure else "fp32",
        frozen="bf16" if is_pure or adapts_half else "fp32",  # the range of fp16 is too small for weights
        compute=compute,
        autocast=compute != "fp32" and not has_bf16_layers,
        mask=compute if kind in PLAIN_ENCODERS else None,
        scales=compute == "fp16",
        saved=stored,
    )


def trainer_formats(program: Program, fine_tuning: str, kind: str, precision: str, stored: str) -> Formats:
    """Return the formats of a script with Hugging Face's Trainer.

    Its `fp16` and `bf16` mean autocast. transformers 5 loads a model in the format of its files, so that a model in
    bf16 is trained like with bf16-true; transformers 4 loads it in fp32. `auto` means that neither is set.
    """
    loads = "bf16" if stored == "bf16" and not program.is_before(*LOADS_AS_STORED) else "fp32"
    if precision == "auto":
        precision = "bf16-true" if loads == "bf16" else "fp32"
    compute, is_pure = precision.removesuffix("-true"), precision.endswith("-true")
    held = "bf16" if is_pure or (loads == "bf16" and compute == "bf16") else "fp32"
    adapts = fine_tuning in ADAPTERS  # PEFT keeps adapters in fp32
    return Formats(
        weights="fp32" if adapts else held,
        updated="fp32" if adapts else held,
        frozen="bf16" if held == "bf16" or (adapts and compute == "bf16") else "fp32",
        compute=compute,
        autocast=compute in _HALVES and not is_pure,
        mask=compute if kind in PLAIN_ENCODERS and compute != "tf32" else None,
        scales=compute == "fp16",
        saved=held,
    )


def is_plain(kind: str) -> bool:
    """Return whether all weights of such a model get gradients in each step, so that all of them may be bf16."""
    return kind in PLAIN_ENCODERS | PLAIN_DECODERS


def kind_of(config: Mapping[str, Any]) -> str:
    """Return the kind of a model from its configuration; "" for an encoder that is used as a decoder."""
    kind = str(config.get("model_type", ""))
    return "" if kind in PLAIN_ENCODERS and config.get("is_decoder") else kind


def stored_in(config: Mapping[str, Any]) -> str:
    """Return the format of a model's files, according to its configuration: fp32, bf16 or fp16."""
    name = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    return {"bfloat16": "bf16", "float16": "fp16"}.get(name, "fp32")
