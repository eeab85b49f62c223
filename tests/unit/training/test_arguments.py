"""What a training run reads from `training_arguments`, and its defaults."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from paretune.core.errors import BadInput
from paretune.estimating.workload import Schedule
from paretune.specification.job import JobSpec
from paretune.specification.training_arguments import READ
from paretune.training.arguments import argument_faults, schedule_of, training_arguments

BASE = JobSpec(precision="fp32")  # the same on every machine


def test_a_probe_neither_evaluates_nor_saves_whatever_the_arguments_are() -> None:
    custom = {"max_steps": 500, "eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    made = training_arguments(BASE.replace(probe_steps=40, training_arguments=custom), 40)

    assert (made.max_steps, made.eval_strategy, made.save_strategy) == (40, "no", "no")
    assert made.logging_steps == 1


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"wramup_steps": 5}, "does not support wramup_steps: did you mean warmup_steps"),
        ({"optim": "adafactor"}, "does not support optim: the supported ones are adam_beta1, adam_beta2, "),
        ({"lr_scheduler_type": "cosinus"}, "cannot be used: cosinus is not a valid SchedulerType"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"}, "depends on measured losses"),
        ({"load_best_model_at_end": True}, "needs evaluations during training: set eval_strategy to epoch or steps"),
        ({"load_best_model_at_end": True, "save_strategy": "no"}, "load_best_model_at_end needs evaluations"),
        ({"adam_beta1": 1.5}, "cannot be used: Invalid beta parameter at index 0: 1.5"),
        ({"weight_decay": -1}, "cannot be used: Invalid weight_decay value: -1"),
        ({"label_smoothing_factor": 2}, "label_smoothing_factor must be from 0 to 1, got 2"),
        ({"warmup_ratio": 10}, "warmup_ratio must be from 0 to 1, got 10"),
        ({"warmup_ratio": -0.5}, "warmup_ratio must be from 0 to 1, got -0.5"),
        ({"save_total_limit": 2.5}, "save_total_limit must be a whole number of at least 1"),
        ({"metric_for_best_model": "bleu"}, "metric_for_best_model must be one of loss, f1, accuracy, got bleu"),
        (
            {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"lr_end": 5e-5}},
            "must be smaller than initial lr",
        ),
        ({"weight_decay": "a lot"}, "training_arguments: weight_decay must be a number, got 'a lot'"),
        ({"weight_decay": True}, "training_arguments: weight_decay must be a number, got True"),
        ({"save_total_limit": True}, "training_arguments: save_total_limit must be a number, got True"),
        ({"torch_compile": "yes"}, "training_arguments: torch_compile must be true or false, got 'yes'"),
    ],
)
def test_what_cannot_work_is_refused_by_name(arguments: dict[str, Any], fault: str) -> None:
    (result,) = argument_faults(BASE.replace(training_arguments=arguments))

    assert fault in result


def test_a_page_names_what_a_training_reads() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-it-works.md").read_text()

    assert [name for name in READ if f"`{name}`" not in page] == []


def test_steps_may_be_a_number_a_share_of_all_or_none() -> None:
    def due_at(strategy: str, every: float) -> list[int]:
        return [step for step in range(1, 11) if Schedule(strategy, every).is_due(step, 10, 3)]

    due = {every: due_at("steps", every) for every in (4, 0.5, 0)}
    assert due == {4: [4, 8], 0.5: [5, 10], 0: []}
    assert due_at("epoch", 4) == [3, 6, 9, 10]


@pytest.mark.parametrize(("ratio", "steps", "warmed_up_after"), [(0.5, 7, 7), (0.5, 0, 50), (1.0, 0, 100), (1, 0, 100)])
def test_a_number_of_warmup_steps_counts_more_than_a_ratio(ratio: float, steps: int, warmed_up_after: int) -> None:
    given = {"warmup_ratio": ratio, "warmup_steps": steps}

    made = training_arguments(BASE.replace(training_arguments=given), 100)

    assert made.warmup_steps == warmed_up_after


@pytest.mark.parametrize("spec", [BASE, BASE.replace(probe_steps=40)])
def test_the_defaults_are_those_of_transformers(spec: JobSpec) -> None:
    made = training_arguments(spec, 100)
    theirs = training_arguments(spec.replace(training_arguments={"logging_steps": made.logging_steps}), 100)

    assert made == theirs
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.3)
    (factor,) = transformers.get_scheduler(
        transformers.TrainingArguments().lr_scheduler_type, optimizer, 0, 100
    ).lr_lambdas
    assert [schedule_of(made, 0.3)(step) for step in range(102)] == [0.3 * factor(step) for step in range(102)]


def test_a_mode_or_a_backend_compiles_as_transformers_has_it() -> None:
    with pytest.raises(BadInput, match="must not set torch_compile with strategy=fsdp"):
        BASE.replace(strategy="fsdp", training_arguments={"torch_compile_mode": "reduce-overhead"})


BEST = {"load_best_model_at_end": True, "eval_strategy": "steps"}


@pytest.mark.parametrize("limit", [-1, 0])
def test_a_limit_of_no_checkpoints_is_refused(limit: int) -> None:
    (fault,) = argument_faults(BASE.replace(training_arguments={"save_total_limit": limit}))

    rule = "save_total_limit must be a whole number of at least 1, or null to keep all"
    assert fault == f"training_arguments: {rule}, got {limit}"


@pytest.mark.parametrize(
    "arguments",
    [
        {"warmup_ratio": 0.1, "save_total_limit": None},
        {"eval_steps": 0.25, "lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
        BEST,  # whatever the number of steps is
        BEST | {"save_strategy": "steps"},
        BEST | {"save_strategy": "steps", "save_steps": 500},
    ],
)
def test_what_goes_is_not_refused(arguments: dict[str, Any]) -> None:
    spec = BASE.replace(training_arguments=arguments)

    assert argument_faults(spec) == []
    assert training_arguments(spec, 961).load_best_model_at_end == ("load_best_model_at_end" in arguments)


def test_save_steps_alone_save_every_so_many_steps() -> None:
    made = training_arguments(BASE.replace(training_arguments={"save_steps": 10}), 100)

    assert (made.save_strategy, made.save_steps) == ("steps", 10)
