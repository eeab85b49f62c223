"""Losses of the tasks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from paretune.specification import metrics


def loss_of(task: str, smoothing: float) -> Callable[..., torch.Tensor] | None:
    """The loss of a micro-batch as the Trainer calls it; None if the model's own loss is right."""
    if task == metrics.CLASSIFICATION:
        return partial(classification_loss, smoothing=smoothing)
    return {metrics.MULTI_LABEL: multi_label_loss, metrics.WORDS: token_loss}.get(task)


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
