"""Batches through the stages of a pipeline.

The schedule is PyTorch's 1F1B (`torch.distributed.pipelining`): after a warm-up each stage alternates between the
forward pass of one micro-batch and the backward pass of an earlier one, so that a stage holds the activations of at
most as many micro-batches as there are stages.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor

from paretune.training import processes
from paretune.training.parallel.stages import Stage

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
