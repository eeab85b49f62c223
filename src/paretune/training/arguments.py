"""Reads a job's `training_arguments`, which have the names and meanings of transformers' TrainingArguments."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainingArguments, get_scheduler

from paretune.estimating.workload import evaluation_schedule
from paretune.specification.container import CHECKPOINTS_KEPT
from paretune.specification.job import JobSpec
from paretune.specification.training_arguments import name_faults, save_strategy
from paretune.training import device

LOG_POINTS = 50  # by default, a training curve has at least this many points, or one per step if there are fewer steps


def argument_faults(spec: JobSpec) -> list[str]:
    """Return the faults of the job's `training_arguments`; empty if there are none.

    Names and types are checked first. If they are correct, transformers and PyTorch check the values.
    """
    faults = name_faults(spec)
    if not faults and spec.training_arguments:
        try:
            for name in ("label_smoothing_factor", "warmup_ratio"):
                if not 0 <= (share := spec.training_arguments.get(name, 0)) <= 1:
                    raise ValueError(f"{name} must be from 0 to 1, got {share:g}")
            is_best_asked = spec.training_arguments.get("load_best_model_at_end") and not spec.probe_steps
            if is_best_asked and evaluation_schedule(spec, 1000).strategy == "no":
                rule = "load_best_model_at_end needs evaluations during training"
                raise ValueError(f"{rule}: set eval_strategy to epoch or steps")
            read, rate = training_arguments(spec, 1000), spec.plan().learning_rate
            schedule_of(read, rate)
            betas, decay = (read.adam_beta1, read.adam_beta2), read.weight_decay
            torch.optim.AdamW([torch.zeros(1)], lr=rate, betas=betas, eps=read.adam_epsilon, weight_decay=decay)
        except Exception as error:
            faults.append(f"training_arguments {dict(spec.training_arguments)} cannot be used: {error}")
    return faults


def training_arguments(spec: JobSpec, steps: int) -> TrainingArguments:
    """Return transformers' arguments for a training run of `steps` steps. The user's arguments override our defaults.

    A probe has no evaluations and no scheduled checkpoints, even if the user's arguments ask for them.
    """
    evaluates = evaluation_schedule(spec, steps)
    given: dict[str, Any] = {
        "logging_steps": max(1, min(50, steps // LOG_POINTS)),
        # These two add evaluations during training. The final model is evaluated without them.
        "eval_strategy": evaluates.strategy,
        "eval_steps": evaluates.every,
        "save_strategy": save_strategy(spec),
        "save_total_limit": CHECKPOINTS_KEPT if spec.runs_on.files_travel else 1,
        **spec.training_arguments,
    }
    given.pop("gradient_checkpointing", None)  # see strategies.checkpoint_activations
    if ratio := given.pop("warmup_ratio", 0):  # in transformers 5, warmup_steps below 1 is a share of all steps
        given["warmup_steps"] = given.get("warmup_steps") or (ratio if ratio < 1 else steps)
    if spec.probe_steps:
        given |= {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
    # Hidden from transformers: it reads the best model from a checkpoint, so it would require one at each evaluation.
    keeps_best = given["eval_strategy"] != "no" and given.pop("load_best_model_at_end", False)
    fixed = {"output_dir": "unused", "report_to": "none", "disable_tqdm": True, "use_cpu": not device.has_gpu()}
    arguments = TrainingArguments(**given | {"max_steps": steps, "seed": spec.seed}, **fixed)
    arguments.load_best_model_at_end = keeps_best
    return arguments


def schedule_of(arguments: TrainingArguments, learning_rate: float) -> Callable[[int], float]:
    """Return a function that maps a step, counted from 0, to its learning rate.

    Raises ValueError if the rate depends on measured losses.
    """
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=learning_rate)
    kind, steps = arguments.lr_scheduler_type, arguments.max_steps
    options = {"scheduler_specific_kwargs": arguments.lr_scheduler_kwargs or {}}
    schedule = get_scheduler(kind, optimizer, arguments.get_warmup_steps(steps), steps, **options)
    if not isinstance(schedule, torch.optim.lr_scheduler.LambdaLR):
        raise ValueError(f"{kind.value} depends on measured losses, which paretune's training does not support")
    (factor,) = schedule.lr_lambdas
    return lambda step: learning_rate * factor(step)
