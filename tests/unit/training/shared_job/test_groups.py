"""Which trials are trained side by side, and how trainings take turns."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from paretune.specification.container import JobDocument
from paretune.specification.job import JobSpec
from paretune.training.cpu_kernels import drop
from paretune.training.shared_job.cooperative_threads import CooperativeThread, run_in_turns
from paretune.training.shared_job.side_by_side import groups_of

LORA = JobSpec(fine_tuning="lora")


def sizes(*specs: JobSpec, is_possible: bool = True) -> list[int]:
    documents = [JobDocument(job_name=f"job.{n}", spec=spec, plan=spec.plan()) for n, spec in enumerate(specs)]
    groups = groups_of(documents, is_possible=is_possible)
    assert [document for group in groups for document in group] == documents
    return [len(group) for group in groups]


def test_lora_trials_that_differ_in_the_learning_rate_are_side_by_side() -> None:
    other = replace(LORA, learning_rate=1e-3)

    assert sizes(LORA, other, replace(LORA, learning_rate=2e-3, max_runtime_minutes=5)) == [3]
    assert sizes(LORA, other, is_possible=False) == [1, 1]
    assert sizes(LORA, JobSpec(), other, LORA) == [1, 1, 2]  # in their order


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"lora_rank": 4},
        {"lora_alpha": 4.0},
        {"num_train_epochs": 2.0},
        {"per_device_train_batch_size": 4},
        {"gradient_accumulation_steps": 2},
        {"precision": "fp32"},
        {"training_arguments": {"weight_decay": 0.1}},
    ],
    ids=str,
)
def test_trials_that_differ_in_anything_else_are_not(change: dict[str, Any]) -> None:
    assert sizes(LORA, replace(LORA, **change)) == [1, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"fine_tuning": "full"},
        {"fine_tuning": "qlora"},
        {"compiler": "inductor"},
        {"probe_steps": 20},
        {"profile_steps": 5},
        {"training_arguments": {"gradient_checkpointing": True}},
        {"training_arguments": {"optim": "adafactor"}},
    ],
    ids=str,
)
def test_what_is_not_known_to_be_equal_side_by_side_is_trained_alone(change: dict[str, Any]) -> None:
    spec = replace(LORA, **change)

    assert sizes(spec, replace(spec, learning_rate=1e-3)) == [1, 1]


def test_each_training_draws_what_it_would_draw_alone() -> None:
    drawn: dict[int, list[float]] = {0: [], 1: []}

    def draw(number: int) -> None:
        drawn[number] += [random.random(), float(np.random.rand()), float(torch.rand(()))]

    def task(number: int, thread: CooperativeThread) -> None:
        random.seed(number)
        np.random.seed(number)
        torch.manual_seed(number)
        for _ in range(3):
            draw(number)
            assert thread.ask(number) == -number
        draw(number)

    run_in_turns(
        [lambda thread: task(0, thread), lambda thread: task(1, thread)],
        lambda threads: [-thread.request for thread in threads],
    )
    used, drawn = drawn, {0: [], 1: []}
    for number in (0, 1):
        random.seed(number)
        np.random.seed(number)
        torch.manual_seed(number)
        for _ in range(4):
            draw(number)

    assert used == drawn
    assert used[0] != used[1]


def test_what_a_training_raises_is_raised_where_it_is_conducted() -> None:
    def fails(thread: CooperativeThread) -> None:
        thread.ask(1)
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_in_turns([fails], lambda threads: [None for _ in threads])


def test_inside_vmap_one_mask_is_dropped_for_all_and_it_is_that_of_one_alone() -> None:
    inputs = torch.randn(3, 40, 5, requires_grad=True)
    torch.manual_seed(1)
    together = torch.vmap(lambda item: drop(item, 26), randomness="same")(inputs)
    together.sum().backward()
    torch.manual_seed(1)
    alone = drop(inputs[1].detach(), 26)

    assert torch.equal(together[1].detach(), alone)
    assert inputs.grad is not None
    assert torch.equal(inputs.grad[0], inputs.grad[2])
    assert 0 < int((inputs.grad[0] == 0).sum()) < 100
