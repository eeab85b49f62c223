"""Reads a job's `training_arguments`, which have the names and meanings of transformers' TrainingArguments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from paretune.estimating.workload import evaluation_schedule
from paretune.specification.container import CHECKPOINTS_KEPT
from paretune.specification.job import JobSpec
from paretune.specification.training_arguments import name_faults, save_strategy
from paretune.training import device

LOG_POINTS = 50  # by default, a training curve has at least this many points, or one per step if there are fewer steps


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments of a training run, with the names, meanings and defaults of transformers' TrainingArguments.

    The defaults are repeated here because importing TrainingArguments imports peft, and with it PyTorch's compiler.
    That takes seconds of each job, and most jobs have no `training_arguments`.
    """

    max_steps: int
    seed: int
    logging_steps: float
    eval_strategy: str
    eval_steps: float | None
    save_strategy: str
    save_total_limit: int | None
    save_steps: float = 500
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float | None = 1.0
    lr_scheduler_type: str = "linear"
    lr_scheduler_kwargs: Mapping[str, Any] = field(default_factory=dict)
    warmup_steps: int = 0
    label_smoothing_factor: float = 0.0
    load_best_model_at_end: bool = False
    metric_for_best_model: str | None = None
    greater_is_better: bool | None = None
    torch_compile: bool = False
    torch_compile_backend: str | None = None
    torch_compile_mode: str | None = None


def argument_faults(spec: JobSpec) -> list[str]:
    """Return the faults of the job's `training_arguments`; empty if there are none.

    Names and types are checked first. If they are correct, transformers and PyTorch check the values.
    """
    faults = name_faults(spec.training_arguments, spec.task)
    if not faults and spec.training_arguments:
        try:
            for name in ("label_smoothing_factor", "warmup_ratio"):
                if not 0 <= (share := spec.training_arguments.get(name, 0)) <= 1:
                    raise ValueError(f"{name} must be from 0 to 1, got {share:g}")
            is_best_asked = spec.training_arguments.get("load_best_model_at_end") and not spec.probe_steps
            if is_best_asked and evaluation_schedule(spec.training_arguments, 1000).strategy == "no":
                rule = "load_best_model_at_end needs evaluations during training"
                raise ValueError(f"{rule}: set eval_strategy to epoch or steps")
            read, rate = training_arguments(spec, 1000), spec.plan().learning_rate
            schedule_of(read, rate)
            betas, decay = (read.adam_beta1, read.adam_beta2), read.weight_decay
            torch.optim.AdamW([torch.zeros(1)], lr=rate, betas=betas, eps=read.adam_epsilon, weight_decay=decay)
        except Exception as error:
            faults.append(f"training_arguments {dict(spec.training_arguments)} cannot be used: {error}")
    return faults


def training_arguments(spec: JobSpec, steps: int) -> Arguments:
    """Return the arguments of a training run of `steps` steps. The user's arguments override our defaults.

    A probe has no evaluations and no scheduled checkpoints, even if the user's arguments ask for them.
    """
    evaluates = evaluation_schedule(spec.training_arguments, steps)
    given: dict[str, Any] = {
        "max_steps": steps,
        "seed": spec.seed,
        "logging_steps": max(1, min(50, steps // LOG_POINTS)),
        # These two add evaluations during training. The final model is evaluated without them.
        "eval_strategy": evaluates.strategy,
        "eval_steps": evaluates.every,
        "save_strategy": save_strategy(spec.training_arguments),
        "save_total_limit": CHECKPOINTS_KEPT if spec.runs_on.files_travel else 1,
    }
    never = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False} if spec.probe_steps else {}
    if not spec.training_arguments:
        return Arguments(**given | never)
    return _read(given | dict(spec.training_arguments) | {"max_steps": steps} | never)


def _read(given: dict[str, Any]) -> Arguments:
    """Let transformers check these arguments, and set the ones that depend on others."""
    from transformers import TrainingArguments

    steps = given["max_steps"]
    given.pop("gradient_checkpointing", None)  # see strategies.checkpoint_activations
    if ratio := given.pop("warmup_ratio", 0):  # in transformers 5, warmup_steps below 1 is a share of all steps
        given["warmup_steps"] = given.get("warmup_steps") or (ratio if ratio < 1 else steps)
    # Hidden from transformers: it reads the best model from a checkpoint, so it would require one at each evaluation.
    keeps_best = given["eval_strategy"] != "no" and given.pop("load_best_model_at_end", False)
    fixed = {"output_dir": "unused", "report_to": "none", "disable_tqdm": True, "use_cpu": not device.has_gpu()}
    made = TrainingArguments(**given, **fixed)
    read = {each.name: getattr(made, each.name) for each in fields(Arguments)}
    read |= {name: read[name].value for name in ("eval_strategy", "save_strategy", "lr_scheduler_type")}
    read |= {"lr_scheduler_kwargs": made.lr_scheduler_kwargs or {}, "warmup_steps": made.get_warmup_steps(steps)}
    return Arguments(**read | {"load_best_model_at_end": keeps_best})


def schedule_of(arguments: Arguments, learning_rate: float) -> Callable[[int], float]:
    """Return a function that maps a step, counted from 0, to its learning rate.

    Raises ValueError if the rate depends on measured losses.
    """
    kind, options, steps = arguments.lr_scheduler_type, arguments.lr_scheduler_kwargs, arguments.max_steps
    if kind == "linear" and not options and not arguments.warmup_steps:  # the default: see Arguments
        return lambda step: learning_rate * max(0.0, (steps - step) / max(1, steps))
    from transformers import get_scheduler

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=learning_rate)
    schedule = get_scheduler(kind, optimizer, arguments.warmup_steps, steps, scheduler_specific_kwargs=dict(options))
    if not isinstance(schedule, torch.optim.lr_scheduler.LambdaLR):
        raise ValueError(f"{kind} depends on measured losses, which paretune's training does not support")
    (factor,) = schedule.lr_lambdas
    return lambda step: learning_rate * factor(step)
