"""Advice follows from figures, and what it says to type is taken."""

import json
from typing import Any

import pytest

from paretune.specification.job import JobSpec
from paretune.training.profiling.page import Circumstances, advice_of
from paretune.training.profiling.trace import PARTS, Operator, StepTime


def time_of(operators: tuple[Operator, ...] = (), **percent: int) -> StepTime:
    """Two steps of 100 us in all; what is not given is compute."""
    parts = dict.fromkeys(PARTS, 0) | {name: 1000 * share for name, share in percent.items()}
    parts["compute"] += 100_000 - sum(parts.values())
    return StepTime(steps=2, parts=parts, communication_ns=0, operators=operators, on_gpu=False)


def circumstances(spec: JobSpec, **changes: Any) -> Circumstances:
    plan = spec.plan()
    usual = {
        "spec": spec,
        "batch": plan.per_device_train_batch_size,
        "accumulation": plan.gradient_accumulation_steps,
        "precision": "fp32",
        "has_bf16": False,
        "processes": plan.devices,
    }
    return Circumstances(**(usual | changes))


def products(percent: int) -> tuple[Operator, ...]:
    return (Operator(name="aten::addmm", calls=4, self_ns=1000 * percent),)


CASES = [
    (time_of(data=10), {}, {}, "data 10 %", {"training_arguments": '{"dataloader_num_workers": 2}'}),
    (
        time_of(data=10),
        {"training_arguments": {"dataloader_num_workers": 2, "weight_decay": 0.1}},
        {},
        "data 10 %",
        {"training_arguments": '{"dataloader_num_workers": 4, "weight_decay": 0.1}'},
    ),
    (time_of(products(60)), {}, {"has_bf16": True}, "matrix products in fp32 60.0 %", {"precision": "bf16"}),
    (
        time_of((Operator(name="aten::copy_", calls=9, self_ns=20_000),)),
        {},
        {"precision": "bf16"},
        "casts and copies 20.0 %",
        {"per_device_train_batch_size": "32"},
    ),
    (
        time_of((Operator(name="aten::mm", calls=10, self_ns=70_000),), idle=30),
        {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "global_batch_size": 32},
        {},
        "idle 30 % of the step, 5 operators per step of 7 us each",
        {"per_device_train_batch_size": "16", "gradient_accumulation_steps": "2"},
    ),
    (
        time_of(communication=30),
        {"strategy": "fsdp", "instance_count": 2},
        {},
        "communication that no compute hides 30 %",
        {"strategy": "ddp"},
    ),
    (
        time_of(communication=30),
        {"instance_count": 2, "global_batch_size": 64},
        {},
        "communication that no compute hides 30 %",
        {"gradient_accumulation_steps": "4", "global_batch_size": "128"},
    ),
    (time_of(optimiser=25), {}, {}, "optimiser 25 %", {"gradient_accumulation_steps": "2"}),
]


@pytest.mark.parametrize(("time", "job", "changes", "figure", "parameters"), CASES)
def test_the_first_advice_names_its_figure_and_parameters_that_a_job_takes(
    time: StepTime, job: dict[str, Any], changes: dict[str, Any], figure: str, parameters: dict[str, str]
) -> None:
    spec = JobSpec(**job)
    advice = advice_of(time, circumstances(spec, **changes))[0]

    assert advice.figure.startswith(figure)
    assert advice.parameters == parameters
    used = JobSpec.from_text(spec.changed() | dict(advice.parameters))
    assert used != spec


def test_what_is_typed_can_be_pasted_into_a_shell() -> None:
    (advice,) = advice_of(time_of(data=10), circumstances(JobSpec()))

    assert advice.typed == """--training_arguments '{"dataloader_num_workers": 2}'"""
    assert json.loads(advice.parameters["training_arguments"]) == {"dataloader_num_workers": 2}


@pytest.mark.parametrize(
    ("time", "changes"),
    [
        (time_of(data=4), {}),
        (time_of(products(60)), {"has_bf16": False}),
        (time_of(products(60)), {"has_bf16": True, "precision": "bf16"}),
        (time_of((Operator(name="aten::copy_", calls=9, self_ns=20_000),)), {}),  # fp32 casts no weights
        (time_of(communication=30), {"processes": 1}),
        (time_of(products(75), idle=19), {}),
    ],
)
def test_figures_that_ask_for_nothing_give_no_advice(time: StepTime, changes: dict[str, Any]) -> None:
    assert advice_of(time, circumstances(JobSpec(), **changes)) == []


def test_the_advice_on_the_largest_share_comes_first() -> None:
    result = advice_of(time_of(products(40), data=10, idle=25), circumstances(JobSpec(), has_bf16=True))

    assert [advice.figure.partition(" ")[0] for advice in result] == ["matrix", "idle", "idle", "data"]
