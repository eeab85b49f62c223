"""Why a model cannot be divided over devices as a job requests; checked before anything is launched."""

from typing import Any

import transformers

from paretune.specification.job import JobSpec
from paretune.training.parallel.stages import stage_faults

_NOT_IN_A_PIPELINE = {
    "gradient_checkpointing": "use the parameter activation_checkpointing",
    "label_smoothing_factor": "leave it out",
}
"""Training arguments that need the whole model, and what to do instead in a pipeline."""


def division_faults(spec: JobSpec, config: Any) -> list[str]:
    """Why the model with this configuration cannot be divided, or its activations checkpointed; empty if they can."""
    degrees, faults = spec.degrees, list[str]()
    classifies = spec.task != "causal-lm"
    if spec.strategy == "fsdp" and degrees.tensor > 1:
        from paretune.training.parallel.tensor import tensor_faults  # imports DTensor: a second

        faults += tensor_faults(config, degrees.tensor, spec.model)
    if spec.strategy == "fsdp" and degrees.pipeline > 1:
        faults += stage_faults(config, degrees.pipeline, spec.model, classifies=classifies) + _pipeline_faults(spec)
    divided = {"tensor_parallel_degree": degrees.tensor, "pipeline_parallel_degree": degrees.pipeline}
    names = " and ".join(name for name, degree in divided.items() if degree > 1)
    if spec.strategy == "fsdp" and names and spec.fine_tuning != "full":
        faults.append(
            f"{names} goes with fine_tuning=full, got {spec.fine_tuning}: set it to 1; strategy=fsdp alone shards "
            "frozen weights and adapters too"
        )
    auto = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModelForCausalLM
    if spec.activation_checkpointing and type(config) in auto._model_mapping:
        faults += activation_faults(auto._model_mapping[type(config)], spec.model)
    return faults


def activation_faults(model_class: type[Any], name: str) -> list[str]:
    """Why activations of the model `name` cannot be checkpointed; empty if they can."""
    if getattr(model_class, "supports_gradient_checkpointing", False):
        return []
    return [f"activation_checkpointing: transformers cannot compute the layers of {name} again: leave it out"]


def _pipeline_faults(spec: JobSpec) -> list[str]:
    stages, batch = spec.degrees.pipeline, spec.plan().per_device_train_batch_size
    micro_batches, faults = spec.micro_batches or stages, list[str]()
    if batch % micro_batches or micro_batches < stages:
        fits = [number for number in range(stages, batch + 1) if batch % number == 0]
        rule = f"micro_batches must divide per_device_train_batch_size {batch} and be at least the {stages} stages"
        remedy = f"use {', '.join(map(str, fits))}" if fits else "raise per_device_train_batch_size"
        faults.append(f"{rule}, got {micro_batches}: {remedy}")
    if spec.precision == "fp16":
        faults.append("pipeline_parallel_degree goes with precision bf16 or fp32, got fp16: set precision=bf16")
    causal = spec.task == "causal-lm"
    return faults + [
        f"training_arguments must not set {name} in a pipeline: {instead}"
        for name, instead in _NOT_IN_A_PIPELINE.items()
        if spec.training_arguments.get(name) and (causal or name != "label_smoothing_factor")
    ]
