"""Computes the loss and the metrics of a split. Each row counts once, however many processes there are."""

import math
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from accelerate.utils import find_executable_batch_size

from paretune.specification import metrics
from paretune.training import processes
from paretune.training.rows.tokenized import TokenRows
from paretune.training.strategies import Replicas, Shards
from paretune.training.tasks import Evaluation, SummedLoss

Result = tuple[Any, ...]
"""One batch: the sum of its losses, the number of labels in it, predictions and labels (both None if not judged)."""


def evaluate(strategy: Replicas, rows: TokenRows, size: int, task: str, judge: Evaluation | None) -> dict[str, float]:
    """Return the mean loss per label and the metrics of `judge`, or the perplexity if there is no judge.

    Each process computes batches of `size` rows. If a batch does not fit in memory, the process starts again with
    smaller batches. This is impossible if the model is sharded, because each forward pass then needs all processes.
    """
    if isinstance(strategy, Shards):
        share = evaluate_share(size, strategy, rows, task, judge)
    else:
        share = find_executable_batch_size(evaluate_share, starting_batch_size=size)(strategy, rows, task, judge)
    strategy.reshard()
    batches = [batch for part in processes.gather(share) for batch in part]
    items = sum(batch[1] for batch in batches)
    values = {"loss": sum(batch[0] for batch in batches) / items} if items else {}
    if judge is not None and batches:
        values |= judge(*([row for batch in batches for row in batch[column]] for column in (2, 3)))
    elif items:
        with suppress(OverflowError):
            values[metrics.PERPLEXITY] = math.exp(values["loss"])
    return values


@torch.no_grad()
def evaluate_share(size: int, strategy: Replicas, rows: TokenRows, task: str, judge: Evaluation | None) -> list[Result]:
    """Evaluate this process's share of the rows in batches of `size`. With n shares, a share is every n-th row.

    Processes with the same `size` compute the same number of batches. A process that has no rows left computes the
    first row of the split and ignores the result.
    """
    strategy.model.eval()
    share, measured = np.arange(len(rows))[strategy.rank :: strategy.shares], []
    for start in range(0, -(-len(rows) // strategy.shares), size):
        index = share[start : start + size].tolist()
        batch = rows.batch(index or [0])
        output = strategy.outputs(batch, SummedLoss(task=task))
        if output is None or not index or not strategy.reports:
            continue
        loss, logits = output
        results = (None, None) if judge is None or logits is None else (judge.predict(logits), batch["labels"])
        measured.append((loss, int(rows.label_counts[index].sum()), *results))
    # Results are read at the end: reading them after each batch would leave the device idle between batches.
    return [
        (float(loss), items, *(None if result is None else result.cpu().numpy() for result in results))
        for loss, items, *results in measured
    ]
