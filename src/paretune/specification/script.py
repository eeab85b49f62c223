"""Arguments for a training script of the user's own, and paretune's names for the metrics that it saves."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paretune.specification.container import JobDocument
from paretune.specification.inputs import IN_S3
from paretune.specification.metrics import F1, THROUGHPUT_SAMPLES, THROUGHPUT_TOKENS, TRAIN_SECONDS, finite_numbers

LOGGING_STEPS = 10
RESULT_FILES = ("train_results.json", "eval_results.json", "all_results.json")
"""Files that `Trainer.save_metrics` writes into the folder of the model; a later file overrides an earlier one."""
RENAMED = {
    "eval_f1": F1,
    "eval_macro_f1": F1,
    "eval_f1_macro": F1,
    "train_runtime": TRAIN_SECONDS,
    "train_samples_per_second": THROUGHPUT_SAMPLES,
    "train_tokens_per_second": THROUGHPUT_TOKENS,
}
"""Metric name of a script to ours; other metrics keep their names."""


def arguments_of(document: JobDocument, model: Path) -> dict[str, Any]:
    """The script's arguments, as `HfArgumentParser` reads them; `model` is the folder for the trained model.

    They always contain the TrainingArguments that paretune sets, and these only if the user has set them:
    model_name_or_path (with init=random config_name and tokenizer_name, as Hugging Face's scripts call them),
    dataset_name or train_file, dataset_config_name, validation_file, test_file, max_seq_length, max_train_samples,
    max_eval_samples. Last come all of `training_arguments`, which may contain arguments of the script.
    """
    spec, plan = document.spec, document.plan
    arguments: dict[str, Any] = {
        "output_dir": str(model),
        "learning_rate": plan.learning_rate,
        "per_device_train_batch_size": plan.per_device_train_batch_size,
        "gradient_accumulation_steps": plan.gradient_accumulation_steps,
        "num_train_epochs": spec.num_train_epochs,
        "seed": spec.seed,
        "logging_steps": LOGGING_STEPS,
        "disable_tqdm": True,
        "report_to": "none",
    }
    if spec.precision in {"bf16", "fp16"}:
        arguments[spec.precision] = True
    if spec.compiler == "inductor":
        arguments["torch_compile"] = True
    changed = spec.changed()
    if "model" in changed:
        names = ("model_name_or_path",) if spec.init == "pretrained" else ("config_name", "tokenizer_name")
        arguments |= dict.fromkeys(names, spec.model)
    if "dataset" in changed:
        is_file = spec.dataset.startswith(IN_S3) or Path(spec.dataset).is_file()
        arguments["train_file" if is_file else "dataset_name"] = spec.dataset
    same_name = ("dataset_config_name", "validation_file", "test_file", "max_seq_length", "max_train_samples")
    arguments |= {name: changed[name] for name in (*same_name, "max_eval_samples") if name in changed}
    return arguments | dict(spec.training_arguments)


def script_metrics(results: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The numbers in the contents of result files, by our names."""
    numbers: dict[str, float] = {}
    for result in results:
        numbers |= finite_numbers(result)
    return {RENAMED.get(name, name): value for name, value in numbers.items()}
