"""Losses of the tasks, and the units in which numbers are learnt.

Numbers are learnt less their mean and divided by their standard deviation: with the learning rates that suit a head, an
output of 100 is out of reach. Before the trained model is written, its last layer is scaled back, so that it answers in
the labels' own units.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from paretune.specification import metrics


def loss_of(task: str, smoothing: float) -> Callable[..., torch.Tensor] | None:
    """The loss of a micro-batch as the Trainer calls it; None if the model's own loss is right."""
    if task == metrics.CLASSIFICATION:
        return partial(classification_loss, smoothing=smoothing)
    return {
        metrics.REGRESSION: regression_loss,
        metrics.MULTI_LABEL: multi_label_loss,
        metrics.WORDS: token_loss,
        metrics.SEQ2SEQ: token_loss,
    }.get(task)


def classification_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None, *, smoothing: float = 0.0
) -> torch.Tensor:
    """Summed cross-entropy of one micro-batch, divided by the number of rows of the optimiser step over all devices.

    Without the division loss and gradients would grow with accumulation steps and devices: the Trainer leaves it to
    models that take keyword arguments, and sequence classifiers take them but do not divide (transformers 5.23).
    `outputs` has logits (B, C), `labels` B classes; without `num_items_in_batch` the rows are the B of this batch.
    """
    total = torch.nn.functional.cross_entropy(outputs["logits"], labels, reduction="sum", label_smoothing=smoothing)
    return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def regression_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Summed squared error of logits (B, 1) and `labels` (B,), divided as in `classification_loss`."""
    total = torch.nn.functional.mse_loss(outputs["logits"].float().squeeze(-1), labels.float(), reduction="sum")
    return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def multi_label_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Summed binary cross-entropy of one micro-batch, divided by rows times labels of the optimiser step.

    `outputs` has logits (B, C), `labels` 0 and 1 (B, C). The Trainer counts the entries of `labels` of all
    micro-batches as `num_items_in_batch`.
    """
    logits = outputs["logits"]
    total = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)


def next_token_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Summed cross-entropy of the next tokens of one micro-batch, divided as in `classification_loss`.

    `outputs` has logits (B, T, V), `labels` tokens (B, T), or -100 where there is none. The copies that a cross-entropy
    needs are made of a piece of the tokens at a time.
    """
    return token_loss({"logits": outputs["logits"][:, :-1]}, labels[:, 1:], num_items_in_batch)


def token_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """The same for one label (B, T) per token, or -100 where there is none, with logits (B, T, V)."""
    pieces = zip(outputs["logits"], labels, strict=True)
    total = torch.stack(
        [
            torch.nn.functional.cross_entropy(logits.float(), row, reduction="sum", ignore_index=-100)
            for logits, row in pieces
        ]
    ).sum()
    return total / ((labels != -100).sum() if num_items_in_batch is None else num_items_in_batch)


@dataclass(frozen=True, kw_only=True)
class Units:
    """A number is learnt as (number - shift) / factor."""

    shift: float = 0.0
    factor: float = 1.0

    @classmethod
    def of(cls, facts: Mapping[str, float], model: Any) -> "Units":
        """The units for a model and its data; no effect but in regression, no shift if the head has no bias."""
        if metrics.LABEL_STD not in facts:
            return cls()
        mean, std = facts[metrics.LABEL_MEAN], facts[metrics.LABEL_STD]
        if last_layer(model).bias is None:
            return cls(factor=math.hypot(mean, std))
        return cls(shift=mean, factor=std)

    def scale(self, numbers: np.ndarray) -> np.ndarray:
        """Labels in the units in which they are learnt."""
        return np.asarray((numbers - self.shift) / self.factor)

    def unscale(self, numbers: np.ndarray) -> np.ndarray:
        """The inverse of `scale`."""
        return np.asarray(numbers, dtype=np.float64) * self.factor + self.shift

    @torch.no_grad()
    def unscale_model(self, model: Any) -> None:
        """Make a model that was trained on scaled labels answer in the labels' own units."""
        from torch.distributed.fsdp import FSDPModule  # takes a second, which the check before a job does not need

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # else this would change a copy for the forward pass, which is not saved
        layer = last_layer(model)
        layer.weight.mul_(self.factor)
        if layer.bias is not None:
            layer.bias.mul_(self.factor).add_(self.shift)

    @torch.no_grad()
    def scale_model(self, model: Any) -> None:
        """The inverse of `unscale_model`, for a model that already answers in the labels' own units."""
        layer = last_layer(model)
        if layer.bias is not None:
            layer.bias.sub_(self.shift).div_(self.factor)
        layer.weight.div_(self.factor)


def last_layer(model: Any) -> torch.nn.Linear:
    """The last trained linear layer with one output, the end of a model's head; raises ValueError without one."""
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    ends = [layer for layer in layers if layer.out_features == 1 and layer.weight.requires_grad]
    if not ends:
        raise ValueError(f"{type(model).__name__} has no linear layer with one output: it cannot learn numbers")
    return ends[-1]
