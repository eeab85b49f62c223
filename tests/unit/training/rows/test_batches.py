"""Properties that hold for every data set, batch plan and number of devices."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paretune.specification.parallelism import BatchPlan
from paretune.training.rows.tokenized import GlobalBatchSampler

LENGTHS = st.lists(st.integers(1, 512), min_size=1, max_size=200).map(np.array)
WHOLE = st.builds(
    BatchPlan,
    per_device_train_batch_size=st.integers(1, 9),
    gradient_accumulation_steps=st.integers(1, 5),
    devices=st.integers(1, 5),
    learning_rate=st.just(1e-4),
)


def uneven(devices: int, share: int, most: int) -> BatchPlan:
    """Return the plan of a step whose micro-batches may differ by a row."""
    steps = -(-share // most)
    return BatchPlan(
        per_device_train_batch_size=-(-share // steps),
        gradient_accumulation_steps=steps,
        devices=devices,
        learning_rate=1e-4,
        global_batch_size=share * devices,
    )


PLANS = WHOLE | st.builds(uneven, devices=st.integers(1, 5), share=st.integers(1, 40), most=st.integers(1, 9))
EPOCHS = st.integers(0, 3)
SEEDS = st.integers(0, 2**32 - 1)


def by_rank(lengths: np.ndarray, plan: BatchPlan, seed: int, epoch: int) -> list[list[list[tuple[list[int], bool]]]]:
    """Return the micro-batches of each step of every rank, as a job of `plan.devices` processes sees them."""
    samplers = [GlobalBatchSampler(lengths, plan, rank=rank, seed=seed) for rank in range(plan.devices)]
    steps = range(epoch * samplers[0].steps, (epoch + 1) * samplers[0].steps)
    return [[sampler.micro_batches(step) for step in steps] for sampler in samplers]


@given(lengths=LENGTHS, plan=PLANS, seed=SEEDS, epoch=EPOCHS)
def test_every_row_counts_exactly_once_per_epoch_in_its_step_and_all_ranks_have_as_many_micro_batches(
    lengths: np.ndarray, plan: BatchPlan, seed: int, epoch: int
) -> None:
    ranks, sampler = by_rank(lengths, plan, seed, epoch), GlobalBatchSampler(lengths, plan, rank=0, seed=seed)

    rows = []
    for number, together in enumerate(zip(*ranks, strict=True)):
        counted = [row for batches in together for batch, counts in batches if counts for row in batch]
        assert sorted(counted) == sorted(sampler.rows(epoch * sampler.steps + number))
        rows += counted
        assert len({len(batches) for batches in together}) == 1
        assert len(together[0]) <= plan.gradient_accumulation_steps
        sizes = [len(batch) for batches in together for batch, _ in batches]
        assert all(1 <= size <= plan.per_device_train_batch_size for size in sizes)
    assert Counter(rows) == Counter(range(len(lengths)))


@given(lengths=LENGTHS, plan=PLANS, seed=SEEDS, epoch=EPOCHS)
def test_the_rows_of_a_step_do_not_depend_on_devices_or_accumulation(
    lengths: np.ndarray, plan: BatchPlan, seed: int, epoch: int
) -> None:
    spread = GlobalBatchSampler(lengths, plan, rank=plan.devices - 1, seed=seed)
    size = plan.global_batch_size
    one = replace(plan, per_device_train_batch_size=size, gradient_accumulation_steps=1, devices=1)
    alone = GlobalBatchSampler(lengths, one, rank=0, seed=seed)

    steps = [step.tolist() for step in spread.epoch_steps(epoch)]
    assert steps == [step.tolist() for step in alone.epoch_steps(epoch)]
    assert spread.steps == alone.steps == len(steps)


@given(lengths=LENGTHS, plan=PLANS, seed=SEEDS)
def test_the_first_step_of_all_holds_the_longest_row_in_its_first_micro_batch(
    lengths: np.ndarray, plan: BatchPlan, seed: int
) -> None:
    ranks = by_rank(lengths, plan, seed, 0)

    assert max(lengths[row] for steps in ranks for row in steps[0][0][0]) == lengths.max()
