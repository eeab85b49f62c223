"""Losses of regression and of several labels a row, and the units in which numbers are learnt.

Numbers are learnt divided by their standard deviation, less their mean: with the learning rates that suit a head, an
output of 100 is out of reach. Before the trained model is written, its last layer is multiplied accordingly, so that
what it answers is in the labels' own units.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from paretune.specification import metrics


@dataclass(frozen=True, kw_only=True)
class Units:
    """A number is learnt as (number - shift) / factor."""

    shift: float = 0.0
    factor: float = 1.0

    @classmethod
    def of(cls, facts: Mapping[str, float], model: Any) -> "Units":
        """Those of a prepared data set for a model: without a shift where its last layer has no bias to hold it.

        Those that change nothing where the data set is none of regression.
        """
        if metrics.LABEL_STD not in facts:
            return cls()
        mean, std = facts[metrics.LABEL_MEAN], facts[metrics.LABEL_STD]
        if last_layer(model).bias is None:
            return cls(factor=math.hypot(mean, std))
        return cls(shift=mean, factor=std)

    def learnt(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers as they are learnt."""
        learnt: np.ndarray = (numbers - self.shift) / self.factor
        return learnt

    def restored(self, numbers: np.ndarray) -> np.ndarray:
        """The inverse of `learnt`."""
        restored: np.ndarray = np.asarray(numbers, dtype=np.float64) * self.factor + self.shift
        return restored

    @torch.no_grad()
    def put_into(self, model: Any) -> None:
        """Make a model that answers in learnt units answer in the labels' own ones."""
        from torch.distributed.fsdp import FSDPModule  # a second, which the check before a job has no use for

        for part in model.modules():
            if isinstance(part, FSDPModule):
                part.reshard()  # else what is changed is a copy for the forward pass, which is not saved
        layer = last_layer(model)
        layer.weight.mul_(self.factor)
        if layer.bias is not None:
            layer.bias.mul_(self.factor).add_(self.shift)

    @torch.no_grad()
    def take_out_of(self, model: Any) -> None:
        """The inverse of `put_into`: for a model that was trained on such numbers before."""
        layer = last_layer(model)
        if layer.bias is not None:
            layer.bias.sub_(self.shift).div_(self.factor)
        layer.weight.div_(self.factor)


def last_layer(model: Any) -> torch.nn.Linear:
    """The trained linear layer with one output that comes last in a model: the end of its head.

    Raises:
        ValueError: it has none.
    """
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    ends = [layer for layer in layers if layer.out_features == 1 and layer.weight.requires_grad]
    if not ends:
        raise ValueError(f"{type(model).__name__} has no linear layer with one output: it cannot learn numbers")
    return ends[-1]


def regression_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Summed squared error of one micro-batch, divided by the rows of the optimiser step over all devices.

    `outputs` has logits (B, 1), `labels` B numbers; without `num_items_in_batch` the rows are the B of this batch. The
    division is that of `trainer.classification_loss`.
    """
    total = torch.nn.functional.mse_loss(outputs["logits"].float().squeeze(-1), labels.float(), reduction="sum")
    return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def multi_label_loss(
    outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Summed binary cross-entropy of one micro-batch, divided by rows times labels of the optimiser step.

    `outputs` has logits (B, C), `labels` 0 and 1 (B, C). `num_items_in_batch` are the entries of `labels` of all
    micro-batches, as the Trainer counts them.
    """
    logits = outputs["logits"]
    total = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), reduction="sum")
    return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)
