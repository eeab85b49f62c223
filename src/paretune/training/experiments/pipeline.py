"""Pipeline parallelism: divides a model into stages, and sends batches through them.

A stage is the Hugging Face model without the parts of other stages. Its weights keep the names that they have in the
whole model. Every stage but the first gets the output of the previous stage as `inputs_embeds`, from which the model's
own code makes masks and positions. `_FAMILIES` lists the supported model families.

The schedule is PyTorch's 1F1B (`torch.distributed.pipelining`). After a warm-up, each stage alternates between the
forward pass of one micro-batch and the backward pass of an earlier one. So with S stages, a stage keeps the activations
of at most S micro-batches.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor

from paretune.core.errors import BadInput
from paretune.training import device, processes
from paretune.training.strategies import Batch, Shards, sent
from paretune.training.tasks import SummedLoss


class _Family(NamedTuple):
    """Names of modules in the base model: `first` before its layers, the list `layers`, and `last` after them.

    In all stages but the first, the modules `first` are replaced by the identity. `added` is a module whose output the
    first stage adds to the embeddings; other stages add 0 instead. The classification heads of these families read the
    last token that is not padding.
    """

    first: tuple[str, ...]
    layers: str
    last: str
    added: str | None = None


_LLAMA = _Family(first=("embed_tokens",), layers="layers", last="norm")
_FAMILIES: Mapping[str, _Family] = {  # maps model types to the names of their modules in transformers 5.23
    "gpt2": _Family(first=("wte", "drop"), added="wpe", layers="h", last="ln_f"),
    "gpt_neox": _Family(first=("embed_in", "emb_dropout"), layers="layers", last="final_layer_norm"),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
}


def stage_faults(config: Any, stages: int, name: str, precision: str) -> list[str]:
    """Return reasons why the layers of the model `name` cannot be divided into stages; empty if they can."""
    faults = list[str]()
    if config.model_type not in _FAMILIES:
        rule = f"pipeline_parallel_degree works only with models of type {', '.join(_FAMILIES)}"
        remedy = "set strategy=fsdp without it, which shards the weights"
        faults.append(f"{rule}, got {name} ({config.model_type}): {remedy}")
    elif (layers := config.num_hidden_layers) % stages:
        fits = ", ".join(str(number) for number in range(1, layers + 1) if layers % number == 0)
        rule = f"pipeline_parallel_degree must divide the {layers} layers of {name}"
        faults.append(f"{rule}, got {stages}: use {fits}")
    if precision == "fp16":
        faults.append("pipeline_parallel_degree works only with precision bf16 or fp32, got fp16: set precision=bf16")
    return faults


class Stages(Shards):
    """Divides a model into stages, one in each process of a pipeline. All stages train on the same rows.

    The parts of other stages are removed from the Hugging Face model, and its `forward` is replaced. With B rows of T
    tokens, the first stage takes tokens (B, T), and the others take the output of the previous stage, (B, T, hidden
    size). The last stage returns logits, (B, T, vocabulary) or (B, classes).
    """

    _gathers_again = False  # otherwise each layer would be gathered again for each micro-batch

    def _divide(self, mesh: DeviceMesh) -> None:
        if self.formats.scales:  # each stage would choose its own scale of the loss
            raise BadInput([f"a pipeline needs precision bf16 or fp32 on {device.device_name()}: set precision=fp32"])
        self._group = mesh["pipeline"].get_group()
        self._number, self._stages = mesh.get_local_rank("pipeline"), self._degrees.pipeline
        self._micro_batches = self._parts
        self._is_first, self._is_last = self._number == 0, self._number == self._stages - 1
        self._schedules: dict[tuple[int, ...], Schedule1F1B] = {}
        model = self.model
        self._head = next(name for name, child in model.named_children() if child is not model.base_model)
        head, table = model.get_output_embeddings(), model.get_input_embeddings()
        self._classifies = head is None  # logits are per text, not per token
        self._is_tied = head is not None and head.weight is table.weight
        # Name of the output layer's weights in the last stage, if the whole model ties them to the embedding table.
        self._copy = f"{self._head}.weight" if self._is_tied and self._is_last else None
        if self._copy is not None:
            head.weight = torch.nn.Parameter(table.weight.detach().clone())
        self._remove_other_stages()
        model.forward = self._forward_stage

    def _remove_other_stages(self) -> None:
        model, base, family = self.model, self.model.base_model, _FAMILIES[self.model.config.model_type]
        layers = base.get_submodule(family.layers)
        per_stage = len(layers) // self._stages
        for index in range(len(layers)):
            if index // per_stage != self._number:
                layers[index] = _Identity(getattr(layers[index], "attention_type", None))
        if not self._is_first:
            for name in family.first:
                setattr(base, name, _Identity())
            if family.added is not None:
                setattr(base, family.added, _Zero())
        if not self._is_last:
            setattr(base, family.last, _Identity())
            for name, child in list(model.named_children()):
                if child is not base:
                    setattr(model, name, None)

    def _forward_stage(self, inputs: torch.Tensor, tokens: torch.Tensor, **others: Any) -> torch.Tensor:
        """Compute this stage's output. All stages get the same `tokens` and `others` (see `_others`)."""
        model, name = self.model, "input_ids" if self._is_first else "inputs_embeds"
        with self._autocast():
            hidden: torch.Tensor = model.base_model(**{name: inputs}, use_cache=False, **others).last_hidden_state
            scores = getattr(model, self._head)(hidden).float() if self._is_last else hidden.float()
        if not (self._is_last and self._classifies):
            return scores
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        last = (positions * (tokens != model.config.pad_token_id)).argmax(-1)  # as in transformers
        return scores[torch.arange(len(tokens), device=tokens.device), last]

    def backward(self, batch: Batch, loss: SummedLoss, *, scale: torch.Tensor | None, is_last: bool) -> torch.Tensor:
        """Cut a micro-batch into smaller ones, and add their gradients. All stages return the loss of the whole."""
        inputs = _pad_rows(self._on_device(batch), self._micro_batches)
        self._loss = loss  # the schedules read it
        tokens, losses = inputs["input_ids"], list[torch.Tensor]()
        self._schedule(tokens).step(
            *((tokens,) if self._is_first else ()),
            target=inputs["labels"] if self._is_last else None,
            losses=losses,
            return_outputs=False,
            tokens=tokens,
            **_others(inputs),
        )
        total = torch.stack(losses).sum().detach() if losses else torch.zeros((), device=self.device)
        distributed.broadcast(total, group=self._group, group_src=self._stages - 1)
        if is_last:
            self._add_up_tied_gradients()
        return total

    @torch.no_grad()
    def outputs(self, batch: Batch, loss: SummedLoss) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        """Return loss and logits of a batch in the last stage, and None in the others."""
        inputs = self._on_device(batch)
        received = tokens = inputs["input_ids"]
        if not self._is_first:
            received = self._hidden(*tokens.shape, device=self.device)
            distributed.recv(received, group=self._group, group_src=self._number - 1)
        output: torch.Tensor = self.model(received, tokens=tokens, **_others(inputs))
        if self._is_last:
            return loss.of_logits(output, inputs["labels"]), output
        distributed.send(output.contiguous(), group=self._group, group_dst=self._number + 1)
        return None

    def find_output_layer(self) -> None:
        """Do nothing: the schedules exchange logits."""

    def _masked(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return batch  # keeps the mask (B, T), which the schedule cuts together with the tokens

    def norm(self, weights: list[torch.Tensor]) -> torch.Tensor:
        """Return the norm of the gradients of all stages. A tied embedding table counts once."""
        left_out = self._tied_weight() if not self._is_first else None
        items = [item.grad for item in self.model.parameters() if item.grad is not None and item is not left_out]
        norm = torch.nn.utils.get_total_norm(items) if items else torch.zeros((), device=self.device)
        squares = processes.whole(norm).to(self.device).square()
        distributed.all_reduce(squares, group=self._group)
        return squares.sqrt()

    def _tied_weight(self) -> torch.nn.Parameter | None:
        """Return this stage's copy of the tied embedding table; None in a middle stage, or if the table is not tied."""
        owner = None
        if self._is_tied and (self._is_first or self._is_last):
            owner = self.model.get_input_embeddings() if self._is_first else getattr(self.model, self._head)
        return None if owner is None else owner.weight

    def _add_up_tied_gradients(self) -> None:
        """Give both copies of a tied table the sum of their gradients. Call this once per step, before clipping."""
        weight = self._tied_weight()
        if weight is None:
            return
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        gradient = weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad  # shares its memory
        received = torch.empty_like(gradient)
        peer = self._stages - 1 if self._is_first else 0
        exchange = [
            distributed.P2POp(distributed.isend, gradient.contiguous(), group=self._group, group_peer=peer),
            distributed.P2POp(distributed.irecv, received, group=self._group, group_peer=peer),
        ]
        for work in distributed.batch_isend_irecv(exchange):
            work.wait()
        gradient.add_(received)

    def _weights_of(self, model: Any) -> Iterator[tuple[str, torch.Tensor]]:
        own = {name: item for name, item in model.state_dict().items() if name != self._copy}
        seen, per_stage = set[str](), distributed.get_world_size() // self._stages
        for stage in range(self._stages):
            is_own = distributed.get_rank() // per_stage == stage
            for name, value in sent(own if is_own else {}, stage * per_stage):
                if name not in seen:
                    seen.add(name)
                    yield name, value

    def _hidden(self, rows: int, length: int, **options: Any) -> torch.Tensor:
        """Return an empty tensor with the shape of the output that a stage sends to the next one."""
        return torch.empty(rows, length, self.model.config.hidden_size, **options)

    def _schedule(self, tokens: torch.Tensor) -> Schedule1F1B:
        """Return the schedule for batches with the shape of `tokens`. PyTorch need not infer shapes between stages."""
        rows, length = key = tokens.shape[0] // self._micro_batches, tokens.shape[1]
        if key not in self._schedules:
            config = self.model.config
            inputs = output = self._hidden(*key, device="meta", requires_grad=True)
            if self._is_first:
                inputs = torch.empty(key, dtype=tokens.dtype, device="meta")
            if self._is_last:
                shape = (rows, config.num_labels) if self._classifies else (rows, length, config.vocab_size)
                output = torch.empty(shape, device="meta", requires_grad=True)
            stage = _StageOfKnownShape(
                self.model,
                self._number,
                self._stages,
                self.device,
                input_args=inputs,
                output_args=output,
                group=self._group,
            )
            self._schedules[key] = Schedule1F1B(
                stage,
                self._micro_batches,
                loss_fn=lambda logits, labels: self._loss.of_logits(logits, labels),
                scale_grads=False,
            )
        return self._schedules[key]


class _Identity(torch.nn.Module):
    """Replaces a part of the model that belongs to another stage, and returns the hidden states unchanged."""

    def __init__(self, attention_type: str | None = None) -> None:
        super().__init__()
        self.attention_type = attention_type  # transformers 5.3 chooses a layer's mask by its attention type

    def forward(self, hidden: Any = None, *_: Any, **options: Any) -> Any:
        return options["inputs_embeds"] if hidden is None else hidden


class _Zero(torch.nn.Module):
    """Replaces a part of the model whose output the first stage has already added."""

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return torch.zeros((), device=positions.device)


class _StageOfKnownShape(PipelineStage):
    def _post_metadata_inference_cleanup(self) -> None:
        """Do nothing. Here, PyTorch 2.13 would delete earlier gradients, although it did not infer any shapes."""


def _others(inputs: Batch) -> dict[str, Any]:
    """Return what all stages need beside the tokens: `attention_mask`, or `position_ids` of rows with several texts."""
    return {name: inputs[name] for name in ("attention_mask", "position_ids") if name in inputs}


def _pad_rows(batch: Batch, micro_batches: int) -> dict[str, torch.Tensor]:
    """Repeat the first row of a batch, without its labels, until `micro_batches` divides the number of rows."""
    missing = -len(batch["input_ids"]) % micro_batches
    if not missing:
        return dict(batch)
    padded = {name: torch.cat([item, item[:1].expand(missing, *item.shape[1:])]) for name, item in batch.items()}
    padded["labels"][-missing:] = -100  # cross_entropy ignores this label
    return padded
