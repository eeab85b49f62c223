"""The entries of `training_arguments` that paretune's own training supports, and checks that do not need transformers.

`training.arguments` makes the checks that need transformers.
"""

from collections.abc import Mapping
from typing import Any

from paretune.core.errors import did_you_mean
from paretune.specification import metrics

READ: Mapping[str, type] = {  # name to the type of its value
    **dict.fromkeys(("max_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"), float),
    **dict.fromkeys(("warmup_steps", "warmup_ratio", "label_smoothing_factor", "logging_steps", "eval_steps"), float),
    **dict.fromkeys(("per_device_eval_batch_size", "save_steps", "save_total_limit"), float),
    **dict.fromkeys(("gradient_checkpointing", "load_best_model_at_end", "greater_is_better", "torch_compile"), bool),
    **dict.fromkeys(("lr_scheduler_type", "eval_strategy", "save_strategy", "metric_for_best_model"), str),
    **dict.fromkeys(("torch_compile_backend", "torch_compile_mode"), str),
    "lr_scheduler_kwargs": dict,
}
"""All other names are refused, so that no argument is silently ignored."""
_CALLED = {float: "a number", bool: "true or false", str: "text", dict: "a mapping"}
_KEEPS_ALL = ("save_total_limit", None)


def name_faults(arguments: Mapping[str, Any], task: str) -> list[str]:
    """Return the faults of a job's `training_arguments` that can be found without transformers.

    These are unsupported names, values of the wrong type, a `save_total_limit` below 1, and a `metric_for_best_model`
    that is neither the loss nor, except for causal-lm, a metric of the task.
    """
    faults = []
    for name, value in arguments.items():
        kind = READ.get(name)
        if kind is None:
            hint = did_you_mean(name, READ, most=2) or f"the supported ones are {', '.join(sorted(READ))}"
            faults.append(f"training_arguments does not support {name}: {hint}")
        elif not _is_a(kind, value) and (name, value) != _KEEPS_ALL:
            faults.append(f"training_arguments: {name} must be {_CALLED[kind]}, got {value!r}")
        elif name == "save_total_limit" and value is not None and (value < 1 or not isinstance(value, int)):
            faults.append(
                f"training_arguments: {name} must be a whole number of at least 1, or null to keep all, got {value!r}"
            )
    best = str(arguments.get("metric_for_best_model", "loss")).removeprefix("eval_")
    measures = ("loss", *(() if task == metrics.CAUSAL_LM else metrics.TASKS[task].measures))
    if best not in measures:
        faults.append(f"training_arguments: metric_for_best_model must be one of {', '.join(measures)}, got {best}")
    return faults


def save_strategy(arguments: Mapping[str, Any]) -> str:
    """Return when paretune's own training saves checkpoints: as requested, else after each epoch.

    Setting `save_steps` alone means `steps`.
    """
    usual = "steps" if "save_steps" in arguments else "epoch"
    return str(arguments.get("save_strategy", usual))


def _is_a(kind: type, value: object) -> bool:
    """Return whether the value has the type `kind`. Whole numbers are also floats; true and false are not numbers."""
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind)
