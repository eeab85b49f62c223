"""The stages of a pipeline, and batches through them.

A stage is the whole Hugging Face model without the parts of other stages: names of weights stay those of the whole
model, and the model's own code makes masks and positions from `inputs_embeds`, which are the outputs of the stage
before. `_FAMILIES` lists the supported model families.

The schedule is PyTorch's 1F1B (`torch.distributed.pipelining`): after a warm-up each stage alternates between the
forward pass of one micro-batch and the backward pass of an earlier one, so that a stage holds the activations of at
most as many micro-batches as there are stages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor

from paretune.training import processes

Batch = Mapping[str, torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of logits and labels, not averaged over micro-batches
STAGE_PREFIX = "model."  # prefix of the names of a stage's weights before the names in the whole model


@dataclass(frozen=True, kw_only=True)
class _Family:
    """Names of modules in the base model: before its layers, the list of layers, and after them.

    In later stages the modules `first` return their input, and the modules `added`, whose output is added to it, return
    0. A classifier of these models reads one token, chosen by padding.
    """

    first: tuple[str, ...]
    layers: str
    last: tuple[str, ...]
    added: tuple[str, ...] = ()


_LLAMA = _Family(first=("embed_tokens",), layers="layers", last=("norm",))
_FAMILIES: Mapping[str, _Family] = {
    "gpt2": _Family(first=("wte", "drop"), added=("wpe",), layers="h", last=("ln_f",)),
    "gpt_neox": _Family(first=("embed_in", "emb_dropout"), layers="layers", last=("final_layer_norm",)),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
}
"""Model type to its modules, in transformers 5.23."""


def stage_faults(config: Any, degree: int, name: str) -> list[str]:
    """The reasons why the layers of the model `name` cannot be divided into `degree` stages; empty if they can."""
    if config.model_type not in _FAMILIES:
        rule = f"pipeline_parallel_degree goes with models of type {', '.join(_FAMILIES)}"
        return [f"{rule}, got {name} ({config.model_type}): set strategy=fsdp without it, which shards the weights"]
    layers = config.num_hidden_layers
    if layers % degree == 0:
        return []
    fits = ", ".join(str(number) for number in range(1, layers + 1) if layers % number == 0)
    return [f"pipeline_parallel_degree must divide the {layers} layers of {name}, got {degree}: use {fits}"]


class Stage(torch.nn.Module):
    """Stage `number` of `stages` of a Hugging Face model, from which the parts of the other stages are removed.

    Attributes:
        model: the rest of the model.
        classifies: whether the head gives one row of logits per text, not per token.
        is_tied: whether the output layer of the whole model has the weights of the embedding table.
        table: name of the embedding table's weights in the whole model.
    """

    accepts_loss_kwargs = True  # read by the Trainer: losses are divided by the items of the optimiser step
    _keys_to_ignore_on_save = None  # read by the Trainer when it goes on from a checkpoint

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
        self._remove_other_stages()

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
        """The stage's copy of a table that embeddings and head share; None if they do not, or in a middle stage."""
        if not self.is_tied or not (self.is_first or self.is_last):
            return None
        owner = self.model.get_input_embeddings() if self.is_first else getattr(self.model, self.head)
        weight: torch.nn.Parameter = owner.weight
        return weight

    def forward(self, inputs: torch.Tensor, tokens: torch.Tensor, **others: Any) -> torch.Tensor:
        """The input of the next stage, (B, T, hidden size), or the logits, (B, T, vocabulary) or (B, classes).

        `inputs` are tokens (B, T) in the first stage, else the output of the stage before; `tokens` and the `others`,
        such as `attention_mask`, are the same for all stages.
        """
        name = "input_ids" if self.is_first else "inputs_embeds"
        output = self.model.base_model(**{name: inputs}, use_cache=False, **others)
        hidden: torch.Tensor = output.last_hidden_state
        if not self.is_last:
            return hidden
        scores: torch.Tensor = getattr(self.model, self.head)(hidden)
        return self._scores_of_last_token(scores, tokens) if self.classifies else scores

    def _scores_of_last_token(self, scores: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Scores (B, classes) of the last token that is not padding, as in transformers, from (B, T, classes)."""
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        last = (positions * (tokens != self.config.pad_token_id)).argmax(-1)
        return scores[torch.arange(len(tokens), device=tokens.device), last]

    def _remove_other_stages(self) -> None:
        base, family = self.model.base_model, self._family
        layers = base.get_submodule(family.layers)
        per_stage = len(layers) // self.stages
        for index in range(len(layers)):
            if index // per_stage != self.number:
                layers[index] = _Identity(getattr(layers[index], "attention_type", None))
        if not self.is_first:
            for name in family.first:
                setattr(base, name, _Identity())
            for name in family.added:
                setattr(base, name, _Zero())
        if not self.is_last:
            for name in family.last:
                setattr(base, name, _Identity())
            for name, child in list(self.model.named_children()):
                if child is not base:
                    setattr(self.model, name, None)


class _Identity(torch.nn.Module):
    """Replaces a part of another stage: hidden states pass unchanged.

    Models of transformers 5.3 read the `attention_type` of every layer to choose its mask.
    """

    def __init__(self, attention_type: str | None = None) -> None:
        super().__init__()
        self.attention_type = attention_type

    def forward(self, hidden: Any = None, *_: Any, **options: Any) -> Any:
        return options["inputs_embeds"] if hidden is None else hidden


class _Zero(torch.nn.Module):
    """Replaces a part whose output another stage has already added."""

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return torch.zeros((), device=positions.device)


class Pipeline:
    """The stages of a copy of a model, each in a process of `group`, `stage` in this one; all get the same batches."""

    def __init__(
        self, stage: Stage, group: distributed.ProcessGroup, *, micro_batches: int, device: torch.device
    ) -> None:
        self.stage, self._group, self._device = stage, group, device
        self._micro_batches = micro_batches
        self._schedules: dict[tuple[int, ...], Schedule1F1B] = {}
        self._loss: Loss = _no_loss

    def train(self, batch: Batch, loss: Loss) -> torch.Tensor:
        """The loss of a batch, in every process, after its gradients were added to the stages'."""
        batch = _pad_rows(batch, self._micro_batches)
        tokens, others = batch["input_ids"], _without(batch, "input_ids", "labels")
        self._loss = loss
        losses: list[torch.Tensor] = []
        inputs = (tokens,) if self.stage.is_first else ()
        target = batch["labels"] if self.stage.is_last else None
        schedule = self._schedule(tokens)
        schedule.step(*inputs, target=target, losses=losses, return_outputs=False, tokens=tokens, **others)
        return self._from_last(torch.stack(losses).sum() if losses else torch.zeros((), device=self._device))

    @torch.no_grad()
    def predict(self, batch: Batch) -> torch.Tensor | None:
        """The logits of a batch in the process of the last stage; None in the others."""
        tokens, others = batch["input_ids"], _without(batch, "input_ids", "labels")
        inputs = tokens
        if not self.stage.is_first:
            inputs = torch.empty(self._hidden(*tokens.shape), device=self._device)
            distributed.recv(inputs, group=self._group, group_src=self.stage.number - 1)
        output: torch.Tensor = self.stage(inputs, tokens=tokens, **others)
        if self.stage.is_last:
            return output
        distributed.send(output.contiguous(), group=self._group, group_dst=self.stage.number + 1)
        return None

    def _from_last(self, value: torch.Tensor) -> torch.Tensor:
        value = value.detach().contiguous()
        distributed.broadcast(value, group=self._group, group_src=self.stage.stages - 1)
        return value

    def add_up_tied_gradients(self) -> None:
        """Give both copies of a tied table the sum of their gradients; once per optimiser step, before clipping."""
        weight = self.stage.tied_weight()
        if weight is None:
            return
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        gradient = weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad  # shares its memory
        received = torch.empty_like(gradient)
        peer = self.stage.stages - 1 if self.stage.is_first else 0
        exchange = [
            distributed.P2POp(distributed.isend, gradient.contiguous(), group=self._group, group_peer=peer),
            distributed.P2POp(distributed.irecv, received, group=self._group, group_peer=peer),
        ]
        for work in distributed.batch_isend_irecv(exchange):
            work.wait()
        gradient.add_(received)

    def gradient_norm(self) -> torch.Tensor:
        """The norm of the gradients of all stages; a tied table counts once."""
        left_out = self.stage.tied_weight() if not self.stage.is_first else None
        items = [item.grad for item in self.stage.parameters() if item.grad is not None and item is not left_out]
        norm = torch.nn.utils.get_total_norm(items) if items else torch.zeros((), device=self._device)
        squares = processes.whole(norm).to(self._device).square()
        distributed.all_reduce(squares, group=self._group)
        return squares.sqrt()

    def _hidden(self, rows: int, length: int) -> tuple[int, int, int]:
        return rows, length, int(self.stage.config.hidden_size)

    def _schedule(self, tokens: torch.Tensor) -> Schedule1F1B:
        """The schedule for batches of this shape, with known shapes of the tensors that stages send to each other."""
        rows, length = tokens.shape[0] // self._micro_batches, tokens.shape[1]
        key = (rows, length)
        if key not in self._schedules:
            stage, config = self.stage, self.stage.config
            hidden = torch.empty(self._hidden(rows, length), device="meta", requires_grad=True)
            ids = torch.empty(key, dtype=tokens.dtype, device="meta")
            head_shape = (rows, config.num_labels) if stage.classifies else (rows, length, config.vocab_size)
            pipeline_stage = _StageOfKnownShape(
                stage,
                stage.number,
                stage.stages,
                self._device,
                input_args=ids if stage.is_first else hidden,
                output_args=torch.empty(head_shape, device="meta", requires_grad=True) if stage.is_last else hidden,
                group=self._group,
            )
            self._schedules[key] = Schedule1F1B(
                pipeline_stage,
                self._micro_batches,
                loss_fn=lambda logits, labels: self._loss(logits, labels),
                scale_grads=False,
            )
        return self._schedules[key]


class _StageOfKnownShape(PipelineStage):
    def _post_metadata_inference_cleanup(self) -> None:
        """No effect: PyTorch 2.13 removes the gradients of earlier batches here, also where it inferred no shapes."""


def _no_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("a pipeline has a loss only while it trains")


def _without(batch: Batch, *names: str) -> dict[str, Any]:
    return {name: item for name, item in batch.items() if name not in names}


def _pad_rows(batch: Batch, micro_batches: int) -> dict[str, torch.Tensor]:
    """The batch with its first row repeated, without labels, until `micro_batches` divides the number of rows."""
    missing = -len(batch["input_ids"]) % micro_batches
    if not missing:
        return dict(batch)
    padded = {name: torch.cat([item, item[:1].expand(missing, *item.shape[1:])]) for name, item in batch.items()}
    padded["labels"][-missing:] = -100  # transformers computes no loss for this label
    return padded
