"""The training of the model: precision, which weights, adapters, compiler and further training arguments."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from paretune.specification.parameters import STEP, TRAINING, parameter

ADAPTERS = ("lora", "qlora")  # kinds of fine-tuning that train adapters beside frozen weights
ALL_LINEAR = "all-linear"  # `lora_target_modules` for adapters beside every linear layer except the head
_FULL_LEARNING_RATE = 5e-5  # default of TrainingArguments (transformers 5.23), which suits full fine-tuning
_ADAPTERS_OVER_FULL = 10.0
RESERVED_TRAINING_ARGUMENTS = {
    "output_dir": "paretune chooses the folder",
    "report_to": "paretune records the run itself",
    "learning_rate": "use the parameter learning_rate",
    "per_device_train_batch_size": "use the parameter per_device_train_batch_size",
    "gradient_accumulation_steps": "use the parameter gradient_accumulation_steps",
    "num_train_epochs": "use the parameter num_train_epochs",
    "seed": "use the parameter seed",
    "bf16": "use the parameter precision",
    "fp16": "use the parameter precision",
    "torch_compile": "use the parameter compiler",
    "hub_token": "parameters are recorded, so no secret may be in them; set HF_TOKEN in the environment",
    "disable_tqdm": "the launcher draws the progress bar",
    "auto_find_batch_size": "paretune halves the batch itself and keeps the global batch size",
    "train_sampling_strategy": "batches are always grouped by length",
    "dataloader_drop_last": "every row is trained on in every epoch",
    "resume_from_checkpoint": "the next attempt of a job continues by itself",
}
"""Training arguments that have a parameter of their own or that paretune sets itself, each with what to do instead."""


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Section of a job: how the model is trained."""

    precision: str = parameter(
        "auto",
        "auto: bf16 if the hardware supports it, else fp16 on GPUs with tensor cores, else fp32",
        choices=("auto", "fp32", "bf16", "fp16"),
        affects=TRAINING,
        group="how it is trained",
    )
    fine_tuning: str = parameter(
        "full",
        "full: all weights; head: only the head; lora: low-rank adapters; qlora: adapters on 4-bit weights",
        choices=("full", "head", "lora", "qlora"),
        affects=TRAINING,
    )
    lora_rank: int = parameter(8, "lora, qlora: rank of the adapters", minimum=1, maximum=1024, affects=TRAINING)
    lora_alpha: float = parameter(
        16.0, "lora, qlora: adapters are scaled by lora_alpha / lora_rank", above=0, affects={"quality"}
    )
    lora_dropout: float = parameter(
        0.0, "lora, qlora: dropout of the adapters' inputs", minimum=0, maximum=0.9, affects=TRAINING
    )
    lora_target_modules: str = parameter(
        ALL_LINEAR, "lora, qlora: comma-separated names of the linear layers that get adapters", affects=TRAINING
    )
    compiler: str = parameter(
        "none", "inductor: compile the model with torch.compile", choices=("none", "inductor"), affects=STEP
    )
    training_arguments: Mapping[str, Any] = parameter(
        {},
        "JSON object with any other Hugging Face TrainingArguments",
        affects=TRAINING,
        example='{"weight_decay": 0.01}',
    )


def fine_tuning_faults(section: FineTuning) -> list[str]:
    """Reserved training arguments, and adapter settings without adapters."""
    faults = [
        f"training_arguments must not set {name}: {RESERVED_TRAINING_ARGUMENTS[name]}"
        for name in section.training_arguments
        if name in RESERVED_TRAINING_ARGUMENTS
    ]
    settings = [item for item in fields(FineTuning) if item.name.startswith("lora_")]
    changed = [item.name for item in settings if getattr(section, item.name) != item.default]
    if changed and section.fine_tuning not in ADAPTERS:
        rule = f"{', '.join(changed)} go{'es' if len(changed) == 1 else ''} with fine_tuning={' or '.join(ADAPTERS)}"
        faults.append(f"{rule}, got {section.fine_tuning}")
    return faults


def default_learning_rate(fine_tuning: str) -> float:
    """The default learning rate at the reference batch size.

    Adapters need about ten times the rate of full fine-tuning (Schulman et al., "LoRA Without Regret", Thinking
    Machines Lab, 2025).
    """
    return _ADAPTERS_OVER_FULL * _FULL_LEARNING_RATE if fine_tuning in ADAPTERS else _FULL_LEARNING_RATE
