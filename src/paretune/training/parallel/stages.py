"""The layers of a model divided into the stages of a pipeline.

A stage is the whole Hugging Face model without the parts of other stages: names of weights stay those of the whole
model, and the model's own code makes masks and positions from `inputs_embeds`, which are the outputs of the stage
before. What a family needs for it stands in `_FAMILIES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

OWN = "model."
"""Prefix of the names of a stage's weights to those of the model."""


@dataclass(frozen=True, kw_only=True)
class _Family:
    """Names in the base model: what precedes its layers, the list of them, and what follows.

    `first` are modules that return what they are given in later stages; `added` ones, whose output is added there, add
    nothing; `last` come after the layers. `pools` says that a classifier reads one token, chosen by padding.
    """

    first: tuple[str, ...]
    layers: str
    last: tuple[str, ...]
    added: tuple[str, ...] = ()
    pools: bool = True


_LLAMA = _Family(first=("embed_tokens",), layers="layers", last=("norm",))
_FAMILIES: Mapping[str, _Family] = {
    "gpt2": _Family(first=("wte", "drop"), added=("wpe",), layers="h", last=("ln_f",)),
    "gpt_neox": _Family(first=("embed_in", "emb_dropout"), layers="layers", last=("final_layer_norm",)),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "bert": _Family(first=("embeddings",), layers="encoder.layer", last=("pooler",), pools=False),
}
"""Model type to its parts, in transformers 5.23."""


def stage_faults(config: Any, degree: int, name: str, *, classifies: bool) -> list[str]:
    """Why the layers of the model `name` cannot be divided into `degree` stages; empty if they can."""
    family = _FAMILIES.get(config.model_type)
    if family is None or not (family.pools or classifies):
        rule = f"pipeline_parallel_degree goes with models of type {', '.join(_FAMILIES)}"
        return [f"{rule}, got {name} ({config.model_type}): set strategy=fsdp without it, which shards the weights"]
    layers = config.num_hidden_layers
    if layers % degree == 0:
        return []
    fits = ", ".join(str(number) for number in range(1, layers + 1) if layers % number == 0)
    return [f"pipeline_parallel_degree must divide the {layers} layers of {name}, got {degree}: use {fits}"]


class Stage(torch.nn.Module):
    """Stage `number` of `stages` of a Hugging Face model, which loses the parts of the others.

    Attributes:
        model: what is left of the model.
        classifies: whether the head gives one row of logits per text, not per token.
        is_tied: whether the output layer of the whole model has the weights of the embedding table.
        table: name of the embedding table's weights in the whole model.
    """

    accepts_loss_kwargs = True
    """Read by the Trainer: losses are divided by the items of the optimiser step."""
    pipeline: Any = None
    """The `Pipeline` that this stage belongs to, once there is one."""

    def __init__(self, model: Any, *, number: int, stages: int) -> None:
        super().__init__()
        self.model, self.number, self.stages = model, number, stages
        self._family = _FAMILIES[model.config.model_type]
        self.head = next(name for name, child in model.named_children() if child is not model.base_model)
        head, table = model.get_output_embeddings(), model.get_input_embeddings()
        self.classifies = head is None
        self.is_tied = head is not None and head.weight is table.weight
        self.table = next(name for name, item in model.named_parameters() if item is table.weight)
        if self.is_tied and self.is_last:
            head.weight = torch.nn.Parameter(table.weight.detach().clone())
        self._remove_others()

    @property
    def config(self) -> Any:
        """The configuration of the whole model."""
        return self.model.config

    @property
    def loss_type(self) -> str | None:
        """Read by the Trainer: whether the loss shifts labels by one token, so that there are fewer of them."""
        return getattr(self.model, "loss_type", None)

    @property
    def is_first(self) -> bool:
        """Whether this stage has the embeddings."""
        return self.number == 0

    @property
    def is_last(self) -> bool:
        """Whether this stage has the head."""
        return self.number == self.stages - 1

    def tied_weight(self) -> torch.nn.Parameter | None:
        """The copy of a table that embeddings and head share; None where they do not, and in stages without the two."""
        if not self.is_tied or not (self.is_first or self.is_last):
            return None
        owner = self.model.get_input_embeddings() if self.is_first else getattr(self.model, self.head)
        weight: torch.nn.Parameter = owner.weight
        return weight

    def forward(self, inputs: torch.Tensor, tokens: torch.Tensor, **others: Any) -> torch.Tensor:
        """What the next stage gets, (B, T, hidden size); of the last stage logits, (B, T, vocabulary) or (B, classes).

        `inputs` are tokens (B, T) in the first stage, else the output of the stage before; `tokens` and the `others`,
        such as `attention_mask`, are the same for all stages.
        """
        name = "input_ids" if self.is_first else "inputs_embeds"
        decodes = {} if not self._family.pools else {"use_cache": False}
        if self.is_last and not self._family.pools:
            logits: torch.Tensor = self.model(**{name: inputs}, **others).logits
            return logits
        hidden: torch.Tensor = self.model.base_model(**{name: inputs}, **decodes, **others).last_hidden_state
        if not self.is_last:
            return hidden
        scores: torch.Tensor = getattr(self.model, self.head)(hidden)
        return self._of_last_token(scores, tokens) if self.classifies else scores

    def _of_last_token(self, scores: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Of (B, T, classes) the entry of the last token that is no padding, as transformers chooses it."""
        places = torch.arange(tokens.shape[-1], device=tokens.device)
        last = (places * (tokens != self.config.pad_token_id)).argmax(-1)
        return scores[torch.arange(len(tokens), device=tokens.device), last]

    def _remove_others(self) -> None:
        base, family = self.model.base_model, self._family
        layers = base.get_submodule(family.layers)
        each = len(layers) // self.stages
        for index in range(len(layers)):
            if index // each != self.number:
                layers[index] = _Passing()
        if not self.is_first:
            for name in family.first:
                setattr(base, name, _Passing())
            for name in family.added:
                setattr(base, name, _Nothing())
        if not self.is_last:
            for name in family.last:
                setattr(base, name, None if name == "pooler" else _Passing())
            for name, child in list(self.model.named_children()):
                if child is not base:
                    setattr(self.model, name, None)


class _Passing(torch.nn.Module):
    """A part that another stage has: hidden states pass unchanged."""

    def forward(self, hidden: Any = None, *_: Any, **named: Any) -> Any:
        return named["inputs_embeds"] if hidden is None else hidden


class _Nothing(torch.nn.Module):
    """A part that another stage has already added."""

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return torch.zeros((), device=positions.device)
