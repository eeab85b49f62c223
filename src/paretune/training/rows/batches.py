"""The rows of each optimiser step: grouped by length, the same on every cluster.

The rows of a step depend only on the global batch size and the seed, not on the number of devices and micro-batches. So
one process with batch 64, two with 32, and one with 16 and four accumulation steps train on the same steps and differ
only by rounding.
"""

from collections.abc import Iterator

import numpy as np
import torch

from paretune.specification.parallelism import BatchPlan

POOL_STEPS = 50  # steps sorted by length together, as in transformers' LengthGroupedSampler


class GlobalBatchSampler(torch.utils.data.Sampler[list[int]]):
    """Yields this rank's rows, micro-batch by micro-batch.

    Each epoch: rows in random order; pools of up to 50 steps (at least four pools where the data allows) sorted by
    length and cut into steps; steps in random order. Only the last step of an epoch may be smaller; its rows are
    distributed evenly. In the first epoch the step with the longest row comes first, so that a job that does not fit
    into memory fails in its first step. `lengths` are the tokens of each row; `rank` is the index of this device.
    """

    def __init__(self, lengths: np.ndarray, plan: BatchPlan, *, rank: int, seed: int) -> None:
        self._lengths = lengths
        self._plan = plan
        self._rank = rank
        self._seed = seed
        self._epoch = 0
        self._cached: tuple[int, list[np.ndarray]] | None = None  # an epoch and its steps

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order of the rows."""
        self._epoch = epoch

    @property
    def steps(self) -> int:
        """Number of optimiser steps per epoch."""
        return -(-len(self._lengths) // self._plan.global_batch_size)

    def __len__(self) -> int:
        """Number of micro-batches per epoch."""
        full, rest = divmod(len(self._lengths), self._plan.global_batch_size)
        return full * self._plan.gradient_accumulation_steps + self._micro_batches(rest)

    def __iter__(self) -> Iterator[list[int]]:
        for step in self.epoch_steps(self._epoch):
            for part in np.array_split(step, self._micro_batches(len(step))):
                # Rows of similar length go to the devices in turn. Every device needs a row, or the others wait for
                # it: with too few rows it repeats the first.
                rows = part[self._rank :: self._plan.devices] if self._rank < len(part) else part[:1]
                yield rows.tolist()

    def epoch_steps(self, epoch: int) -> list[np.ndarray]:
        """Rows of each optimiser step of `epoch`, over all devices, longest row first within a step."""
        if self._cached is None or self._cached[0] != epoch:
            self._cached = epoch, self._make_steps(epoch)
        return self._cached[1]

    def _make_steps(self, epoch: int) -> list[np.ndarray]:
        size, rows = self._plan.global_batch_size, len(self._lengths)
        random = np.random.default_rng((self._seed, epoch))
        order = random.permutation(rows)
        if epoch == 0:  # keep the longest row out of the smaller last step
            longest = int(np.argmax(self._lengths[order]))
            order[[0, longest]] = order[[longest, 0]]
        whole, rest = np.split(order, [rows - rows % size])
        pool = size * max(1, min(POOL_STEPS, rows // (4 * size)))
        pools = [self._by_length(whole[start : start + pool]) for start in range(0, len(whole), pool)]
        steps = [part[start : start + size] for part in pools for start in range(0, len(part), size)]
        steps = [steps[index] for index in random.permutation(len(steps))]
        if epoch == 0 and steps:
            first = max(range(len(steps)), key=lambda index: self._lengths[steps[index][0]])
            steps.insert(0, steps.pop(first))
        return steps + ([self._by_length(rest)] if len(rest) else [])

    def _by_length(self, rows: np.ndarray) -> np.ndarray:
        return rows[np.argsort(-self._lengths[rows], kind="stable")]

    def _micro_batches(self, rows: int) -> int:
        return -(-rows // (self._plan.per_device_train_batch_size * self._plan.devices))
