"""The command line of a user's own script: its own arguments, by the names that it declares."""

import json
from pathlib import Path
from typing import Any

from paretune.core.own_script import OwnScript, read_own_script
from paretune.core.untrusted import at_home
from paretune.specification.batch_size import BatchPlan
from paretune.specification.inputs import IN_S3
from paretune.specification.job import JobSpec

LOGGING_STEPS = 10
_MODEL_NAMES = ("model_name_or_path", "model_name", "model_id", "model")
_OUTPUT_NAMES = ("output_dir", "trainer.default_root_dir")
_SEED_NAMES = ("seed", "seed_everything")
_PLANNED = ("per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate")
_DATA_NAMES = ("train_file", "dataset_name")
_BATCH = (*_PLANNED[:2], "global_batch_size")


def script_arguments(spec: JobSpec, plan: BatchPlan, output_dir: str) -> list[str]:
    """The words after the script's name.

    A script that reads anything, such as one of Hugging Face's, gets the TrainingArguments that paretune sets, and what
    the user has set of its usual arguments. Another one gets only what the user has set, and `output_dir` if it
    declares it. Last come all of `training_arguments`, the script's own.
    """
    script = read_own_script(at_home(spec.entry_script or "").resolve())
    if script.reads_anything:
        arguments = _usual_arguments(spec, plan, output_dir) | dict(spec.training_arguments)
        return [word for name, value in arguments.items() for word in (f"--{name}", _spelled(value))]
    values = {**_set_values(spec, plan, script), **spec.training_arguments}
    values = dict.fromkeys(filter(script.argument, _OUTPUT_NAMES), output_dir) | values
    command = [script.command] if script.command else []
    return command + [word for name, value in values.items() for word in _words(script, name, value)]


def takes_seed(spec: JobSpec) -> bool:
    """Whether a job of a user's own script with another seed has another command line."""
    first, second = (script_arguments(job, job.plan(), "") for job in (spec, spec.replace(seed=spec.seed + 1)))
    return first != second


def argument_faults(spec: JobSpec) -> list[str]:
    """One fault that names all set parameters which the script has no argument for, and its arguments."""
    script = read_own_script(at_home(spec.entry_script or "").resolve())
    if script.reads_anything or not script.is_complete:
        return []
    names = {**_set_values(spec, spec.plan(), script), **spec.training_arguments}
    names |= dict.fromkeys(map(str, spec.argument_names.values()))
    unknown = [name for name in names if script.argument(name) is None]
    if not unknown:
        return []
    name = Path(spec.entry_script or "").name
    listed = ", ".join(sorted(script.arguments))
    example = json.dumps({unknown[0]: sorted(script.arguments)[0]})
    return [
        f"{name} has no argument {', '.join(unknown)}: it has {listed}; search its own names, or say which is meant "
        f"with argument_names, such as {example}"
    ]


def _usual_arguments(spec: JobSpec, plan: BatchPlan, output_dir: str) -> dict[str, Any]:
    """The arguments of Hugging Face's example scripts, by their names."""
    arguments: dict[str, Any] = {
        "output_dir": output_dir,
        "learning_rate": plan.learning_rate,
        "per_device_train_batch_size": plan.per_device_train_batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation_steps,
        "num_train_epochs": spec.num_train_epochs,
        "seed": spec.seed,
        "logging_steps": LOGGING_STEPS,
        "disable_tqdm": True,
        "report_to": "none",
    }
    if spec.compiler == "inductor":
        arguments["torch_compile"] = True
    arguments |= _inputs(spec)
    if spec.init == "random" and "model_name_or_path" in arguments:
        arguments |= dict.fromkeys(("config_name", "tokenizer_name"), arguments.pop("model_name_or_path"))
    return arguments


def _inputs(spec: JobSpec) -> dict[str, Any]:
    """Precision, model and data that the user has set, by the names of Hugging Face's example scripts."""
    changed, arguments = spec.changed(), dict[str, Any]()
    if spec.precision in {"bf16", "fp16"}:
        arguments[spec.precision] = True
    if "model" in changed:
        arguments["model_name_or_path"] = spec.model
    if "dataset" in changed:
        is_file = spec.dataset.startswith(IN_S3) or Path(spec.dataset).is_file()
        arguments["train_file" if is_file else "dataset_name"] = spec.dataset
    same_name = ("dataset_config_name", "validation_file", "test_file", "max_seq_length", "max_train_samples")
    return arguments | {name: changed[name] for name in (*same_name, "max_eval_samples") if name in changed}


def _set_values(spec: JobSpec, plan: BatchPlan, script: OwnScript) -> dict[str, Any]:
    """The parameters that the user has set, by the script's own names where these are known, with their values.

    Data that the script declares no argument for is left out: it reads that from SM_CHANNEL_TRAIN and its like.
    """
    names, changed = spec.argument_names, spec.changed()
    values: dict[str, Any] = {}
    if any(getattr(spec, name) is not None for name in _BATCH):
        values |= {name: getattr(plan, name) for name in _BATCH if script.argument(names.get(name, name))}
        if not values:
            values = {"per_device_train_batch_size": plan.per_device_train_batch_size}
    if spec.learning_rate is not None:
        values["learning_rate"] = plan.learning_rate
    if "num_train_epochs" in {*changed, *names} or script.argument("num_train_epochs"):
        values["num_train_epochs"] = spec.num_train_epochs
    seed = next(filter(script.argument, _SEED_NAMES), None)
    if "seed" in names or ("seed" in changed and seed):
        values["seed" if "seed" in names or seed is None else seed] = spec.seed
    inputs = _inputs(spec)
    if "model_name_or_path" in inputs:
        model = inputs.pop("model_name_or_path")
        values["model" if "model" in names else next(filter(script.argument, _MODEL_NAMES), "model")] = model
    data = {"dataset" if name in _DATA_NAMES and "dataset" in names else name: value for name, value in inputs.items()}
    values |= {name: value for name, value in data.items() if name in names or script.argument(name)}
    return {str(names.get(name, name)): value for name, value in values.items()}


def _words(script: OwnScript, name: str, value: Any) -> list[str]:
    """The option with its value; a switch alone, or nothing if it is off."""
    option = script.argument(name) or name
    action = script.arguments.get(option, "")
    if action in {"store_true", "store_false"}:
        return [f"--{option}"] if bool(value) is (action == "store_true") else []
    if action == "BooleanOptionalAction":
        return [f"--{option}" if value else f"--no-{option}"]
    is_whole = isinstance(value, float) and value.is_integer()
    return [f"--{option}", _spelled(int(value) if is_whole else value)]


def _spelled(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
