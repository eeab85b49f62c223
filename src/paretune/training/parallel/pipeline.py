"""Batches through the stages of a pipeline, and the whole state of a model whose stages are in different processes.

The schedule is PyTorch's 1F1B (`torch.distributed.pipelining`): after a warm-up each stage alternates between the
forward pass of one micro-batch and the backward pass of an earlier one, so that a stage holds the activations of at
most as many micro-batches as there are stages.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, distribute_tensor

from paretune.training.parallel.stages import STAGE_PREFIX, Stage

Batch = Mapping[str, torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of logits and labels, not averaged over micro-batches


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
        squares = _whole(norm).to(self._device).square()
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


def _reshard(stage: Stage) -> None:
    """Free the gathered weights of a sharded stage, which evaluation leaves gathered."""
    for module in stage.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gather_state(stage: Stage, optimizer: Any | None) -> dict[str, Any] | None:
    """Weights of all stages, and the state of `optimizer` unless it is None, on the CPU of the first process.

    None in the other processes; all must call it. Names are those of the whole model. A tied table has both its
    names among the weights, and moments under that of the embeddings, as in the state of an undivided model.
    """
    _reshard(stage)  # the optimiser has the sharded parameters
    parameters = {name.removeprefix(STAGE_PREFIX): item for name, item in stage.named_parameters()}
    tied = stage.tied_weight() if not stage.is_first else None
    weights, moments = {}, {}
    for name, item in parameters.items():
        weights[name] = _whole(item.detach()).cpu()
        state = {} if optimizer is None else optimizer.state[item]
        whole = {key: _whole(value).cpu() if torch.is_tensor(value) else value for key, value in state.items()}
        if item is not tied:
            moments[name] = whole
    names = {id(parameters[name]): name for name in moments}
    groups = [
        {**group, "params": [names[id(item)] for item in group["params"] if id(item) in names]}
        for group in ([] if optimizer is None else optimizer.param_groups)
    ]
    return _merge({"model": weights, "optimizer": {"state": moments, "param_groups": groups}}, stage.stages)


def _merge(part: dict[str, Any], stages: int) -> dict[str, Any] | None:
    """The parts of all stages as one, in the first process; one process of each stage sends its part."""
    parts: list[Any] | None = [None] * distributed.get_world_size() if distributed.get_rank() == 0 else None
    is_first_of_stage = distributed.get_rank() % (distributed.get_world_size() // stages) == 0
    distributed.gather_object(part if is_first_of_stage else None, parts)
    if parts is None:
        return None
    merged = parts[0]
    for other in filter(None, parts[1:]):
        merged["model"] |= other["model"]
        merged["optimizer"]["state"] |= other["optimizer"]["state"]
        for group, more in zip(merged["optimizer"]["param_groups"], other["optimizer"]["param_groups"], strict=True):
            group["params"] = sorted({*group["params"], *more["params"]})
    return dict(merged)


def scatter_state(stage: Stage, optimizer: Any, state: dict[str, Any] | None) -> None:
    """Give each stage its part of the whole `state`, which the first process has; all must call it.

    One tensor after another is sent to all, so that no process except the first holds the whole state.
    """
    _reshard(stage)
    parameters = {name.removeprefix(STAGE_PREFIX): item for name, item in stage.named_parameters()}
    if stage.is_tied and (copy := stage.tied_weight()) is not None:
        parameters[stage.table] = copy
    content = [None if state is None else _description(state)]
    distributed.broadcast_object_list(content)
    assert content[0] is not None  # the first process has the state
    tensors, groups = content[0]
    for (kind, name, key), (shape, dtype) in tensors.items():
        if state is None:
            value = torch.empty(shape, dtype=dtype)
        else:
            value = state["model"][name] if kind == "model" else state["optimizer"]["state"][name][key]
        value = value.to(next(stage.parameters()).device).contiguous()
        distributed.broadcast(value, 0)
        if name in parameters:
            _assign(parameters[name], value, optimizer.state[parameters[name]] if kind != "model" else None, key)
    for group, settings in zip(optimizer.param_groups, groups, strict=True):
        group.update(settings)


def _description(state: dict[str, Any]) -> tuple[dict[tuple[str, str, str], Any], list[dict[str, Any]]]:
    """Shape and number format of every tensor of a state, and the settings of the optimiser's groups."""
    tensors = {("model", name, ""): (item.shape, item.dtype) for name, item in state["model"].items()}
    for name, moments in state["optimizer"]["state"].items():
        tensors |= {("optimizer", name, key): (item.shape, item.dtype) for key, item in moments.items()}
    settings = [
        {key: value for key, value in group.items() if key != "params"} for group in state["optimizer"]["param_groups"]
    ]
    return tensors, settings


@torch.no_grad()
def _assign(parameter: torch.nn.Parameter, value: torch.Tensor, moments: Any | None, key: str) -> None:
    """Set the parameter, or the entry `key` of its `moments` unless they are None, to the whole `value`."""
    if isinstance(parameter, DTensor) and value.shape == parameter.shape:
        value = distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None)
    if moments is None:
        parameter.copy_(value)
    else:
        moments[key] = value.clone()
