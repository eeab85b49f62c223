"""Properties that hold for every data set, batch plan and number of devices."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paretune.specification.parallelism import BatchPlan
from paretune.training.rows.tokenised import GlobalBatchSampler

LENGTHS = st.lists(st.integers(1, 512), min_size=1, max_size=200).map(np.array)
WHOLE = st.builds(
    BatchPlan,
    per_device_train_batch_size=st.integers(1, 9),
    gradient_accumulation_steps=st.integers(1, 5),
    devices=st.integers(1, 5),
    learning_rate=st.just(1e-4),
)


def uneven(devices: int, share: int, most: int) -> BatchPlan:
    """The plan of a step whose micro-batches may differ by a row."""
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


def by_rank(lengths: np.ndarray, plan: BatchPlan, seed: int, epoch: int) -> list[list[list[int]]]:
    """Micro-batches of every rank, as a job of `plan.devices` processes sees them."""
    ranks = []
    for rank in range(plan.devices):
        sampler = GlobalBatchSampler(lengths, plan, rank=rank, seed=seed)
        sampler.set_epoch(epoch)
        ranks.append(list(sampler))
    return ranks


@given(lengths=LENGTHS, plan=PLANS, seed=SEEDS, epoch=EPOCHS)
def test_every_row_is_trained_on_exactly_once_per_epoch(
    lengths: np.ndarray, plan: BatchPlan, seed: int, epoch: int
) -> None:
    ranks = by_rank(lengths, plan, seed, epoch)

    rows: list[int] = []
    for together in zip(*ranks, strict=True):
        given_out = [row for mine in together for row in mine]
        if len(set(given_out)) < plan.devices:  # fewer rows than devices: the others repeat one of them
            given_out = sorted(set(given_out))
        rows += given_out
    assert Counter(rows) == Counter(range(len(lengths)))


@given(lengths=LENGTHS, plan=PLANS, seed=SEEDS, epoch=EPOCHS)
def test_all_ranks_get_as_many_micro_batches_as_len_says_none_empty_or_too_large(
    lengths: np.ndarray, plan: BatchPlan, seed: int, epoch: int
) -> None:
    ranks = by_rank(lengths, plan, seed, epoch)

    expected = len(GlobalBatchSampler(lengths, plan, rank=0, seed=seed))
    assert {len(batches) for batches in ranks} == {expected}
    assert all(1 <= len(batch) <= plan.per_device_train_batch_size for batches in ranks for batch in batches)


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


@given(lengths=LENGTHS, plan=PLANS, seed=SEEDS, epoch=EPOCHS)
def test_micro_batches_of_all_ranks_make_up_their_step(
    lengths: np.ndarray, plan: BatchPlan, seed: int, epoch: int
) -> None:
    ranks = by_rank(lengths, plan, seed, epoch)
    steps = GlobalBatchSampler(lengths, plan, rank=0, seed=seed).epoch_steps(epoch)

    accumulation = plan.gradient_accumulation_steps
    for number, step in enumerate(steps):
        part = slice(number * accumulation, (number + 1) * accumulation)
        assert {row for batches in ranks for batch in batches[part] for row in batch} == set(step.tolist())


@given(lengths=LENGTHS, plan=PLANS, seed=SEEDS, epoch=EPOCHS)
def test_the_items_of_a_step_are_those_that_all_ranks_compute(
    lengths: np.ndarray, plan: BatchPlan, seed: int, epoch: int
) -> None:
    ranks = by_rank(lengths, plan, seed, epoch)
    sampler, steps = GlobalBatchSampler(lengths, plan, rank=0, seed=seed), plan.gradient_accumulation_steps

    for number in range(sampler.steps):
        part = slice(number * steps, (number + 1) * steps)
        computed = sum(int(lengths[batch].sum()) for batches in ranks for batch in batches[part])
        assert sampler.items(epoch * sampler.steps + number, lengths) == computed


@given(lengths=LENGTHS, plan=PLANS, seed=SEEDS)
def test_the_first_step_of_all_holds_the_longest_row_in_its_first_micro_batch(
    lengths: np.ndarray, plan: BatchPlan, seed: int
) -> None:
    ranks = by_rank(lengths, plan, seed, 0)

    assert max(lengths[row] for batches in ranks for row in batches[0]) == lengths.max()
