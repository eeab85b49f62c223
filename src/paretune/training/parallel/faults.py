"""Why a model cannot be trained in the ways that a job asks for, before anything is launched."""

from typing import Any

import transformers

from paretune.specification.job import JobSpec
from paretune.training.parallel.activations import activation_faults
from paretune.training.parallel.stages import stage_faults

_OWN_LOOP = {
    "gradient_checkpointing": "use the parameter activation_checkpointing",
    "label_smoothing_factor": "leave it out",
}
"""Training arguments that reach the whole model only, with what to do instead in a pipeline."""


def division_faults(spec: JobSpec, config: Any) -> list[str]:
    """What cannot be divided or computed again of the model with this configuration; empty if all can."""
    degrees, faults = spec.degrees, list[str]()
    classifies = spec.task != "causal-lm"
    if spec.strategy == "fsdp" and degrees.tensor > 1:
        from paretune.training.parallel.tensor import tensor_faults  # imports DTensor: a second

        faults += tensor_faults(config, degrees.tensor, spec.model)
    if spec.strategy == "fsdp" and degrees.pipeline > 1:
        faults += stage_faults(config, degrees.pipeline, spec.model, classifies=classifies) + _pipeline_faults(spec)
    divided = {"tensor_parallel_degree": degrees.tensor, "pipeline_parallel_degree": degrees.pipeline}
    given = " and ".join(name for name, degree in divided.items() if degree > 1)
    if spec.strategy == "fsdp" and given and spec.fine_tuning != "full":
        faults.append(
            f"{given} goes with fine_tuning=full, got {spec.fine_tuning}: set it to 1; strategy=fsdp alone shards "
            "frozen weights and adapters too"
        )
    auto = transformers.AutoModelForSequenceClassification if classifies else transformers.AutoModelForCausalLM
    if spec.activation_checkpointing and type(config) in auto._model_mapping:
        faults += activation_faults(auto._model_mapping[type(config)], spec.model)
    return faults


def _pipeline_faults(spec: JobSpec) -> list[str]:
    stages, batch = spec.degrees.pipeline, spec.plan().per_device_train_batch_size
    parts, faults = spec.micro_batches or stages, list[str]()
    if batch % parts or parts < stages:
        fits = [number for number in range(stages, batch + 1) if batch % number == 0]
        rule = f"micro_batches must divide per_device_train_batch_size {batch} and be at least the {stages} stages"
        more = f"use {', '.join(map(str, fits))}" if fits else "raise per_device_train_batch_size"
        faults.append(f"{rule}, got {parts}: {more}")
    if spec.precision == "fp16":
        faults.append("pipeline_parallel_degree goes with precision bf16 or fp32, got fp16: set precision=bf16")
    causal = spec.task == "causal-lm"
    return faults + [
        f"training_arguments must not set {name} in a pipeline: {instead}"
        for name, instead in _OWN_LOOP.items()
        if spec.training_arguments.get(name) and (causal or name != "label_smoothing_factor")
    ]
