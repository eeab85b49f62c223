"""Checks model, data and training arguments, and tokenises the data: `python -m paretune.training.prepare`.

It runs before a job is launched, in a separate process, so that the launching process does not import torch. It reads a
specification, and writes the folders of the prepared data and the model, or all faults.
"""

import json
import logging
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, collecting, did_you_mean, refuse
from paretune.core.packages import can_be_imported
from paretune.specification.container import TELLS, JobDocument, write_json
from paretune.specification.inputs import BUNDLED
from paretune.specification.job import JobSpec
from paretune.specification.metrics import CAUSAL_LM
from paretune.training.processes import StopSignal
from paretune.training.rows import hub


def main(arguments: list[str]) -> int:
    """Exit code 0 with `dataset` and `model` folders, or 2 with `faults`, as JSON in the output file.

    `arguments` are the file with the specification as JSON, the folder of prepared data sets, and the output file.
    """
    request, cache, answer = (Path(argument) for argument in arguments)
    spec = JobSpec.read(json.loads(request.read_text()))
    StopSignal().watch_parent()
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")  # or `datasets` reports every local file it reads
    logging.disable(logging.WARNING)
    try:
        local = (BUNDLED, ".", "/", "~")
        if any(not name.startswith(local) and not Path(name).exists() for name in (spec.model, spec.dataset)):
            hub.go_offline_if_unreachable()
        write_json(answer, _prepare(spec, cache))
    except BadInput as error:
        write_json(answer, {"faults": error.faults})
        return 2
    return 0


def _prepare(spec: JobSpec, cache: Path) -> dict[str, Any]:
    import datasets  # reads HF_HUB_OFFLINE when it is imported, as transformers does

    from paretune.training import device, model
    from paretune.training.rows import sources, tokenised

    datasets.disable_progress_bars()
    faults = _training_argument_faults(spec) + device.device_faults(spec)
    if spec.fine_tuning == "qlora" and not spec.has_instances and not can_be_imported("bitsandbytes"):
        rule = "fine_tuning=qlora needs the package bitsandbytes, which is not installed here"
        faults.append(f"{rule}: python -m pip install -e '.[quantized]', or set fine_tuning=lora")
    with collecting(faults):
        _print_progress(f"looking at {spec.model}")
        folder = model.find_model(spec.model, spec.init)
        faults += model.model_faults(spec, folder)
        faults += division_faults(spec, model.load_config(spec.model, folder))
        tokenizer = model.load_tokenizer(folder)
    with collecting(faults):
        _print_progress(f"reading {spec.dataset}")
        rows, labels = sources.read_rows(spec)
    refuse(faults)
    prepared = tokenised.prepare(spec, rows, labels, tokenizer, cache, _print_progress)
    if not prepared.facts["train_tokens"]:
        raise BadInput([f"dataset {spec.dataset} has no tokens to train on: every text is empty"])
    return {"dataset": str(prepared.folder), "model": str(folder)}


def _print_progress(text: str) -> None:
    print(f"{TELLS}{text}", flush=True)  # for the launching process, which reads it


def _training_argument_faults(spec: JobSpec) -> list[str]:
    if not spec.training_arguments:
        return []
    from transformers import TrainingArguments  # takes as long as all other libraries together

    from paretune.training.trainer import training_arguments

    allowed = {item.name: item for item in fields(TrainingArguments)}
    faults = []
    for name, value in spec.training_arguments.items():
        if name not in allowed:
            hint = did_you_mean(name, allowed, most=2) or "see the transformers documentation"
            faults.append(f"training_arguments has no argument {name} in this version of transformers: {hint}")
        elif isinstance(allowed[name].default, (int, float)) and not isinstance(value, (int, float)):
            kind = "true or false" if isinstance(allowed[name].default, bool) else "a number"
            faults.append(f"training_arguments: {name} must be {kind}, got {value!r}")
    if not faults:
        # With the defaults of the job; `device_faults` checks the precision.
        document = JobDocument.first("check", spec.replace(precision="fp32"))
        try:
            training_arguments(document, Path("unused"), steps_per_epoch=1)
        except Exception as error:
            faults.append(f"training_arguments {dict(spec.training_arguments)} are refused by transformers: {error}")
    return faults


def division_faults(spec: JobSpec, config: Any) -> list[str]:
    """Reasons why a model with this configuration cannot be divided, or its activations checkpointed."""
    degrees, faults = spec.degrees, list[str]()
    if spec.strategy == "fsdp" and degrees.tensor > 1:
        from paretune.training.strategies import tensor_faults  # imports DTensor: a second

        faults += tensor_faults(config, degrees.tensor, spec.model)
    if spec.strategy == "fsdp" and degrees.pipeline > 1:
        from paretune.training.pipeline import stage_faults

        faults += stage_faults(config, degrees.pipeline, spec.model) + _pipeline_faults(spec)
    divided = {"tensor_parallel_degree": degrees.tensor, "pipeline_parallel_degree": degrees.pipeline}
    names = " and ".join(name for name, degree in divided.items() if degree > 1)
    if spec.strategy == "fsdp" and names and spec.fine_tuning != "full":
        remedy = "set it to 1; strategy=fsdp alone shards frozen weights and adapters too"
        faults.append(f"{names} goes with fine_tuning=full, got {spec.fine_tuning}: {remedy}")
    if spec.checkpoints_activations:
        from paretune.training.model import auto_class

        kind = auto_class(spec.task)._model_mapping.get(type(config), None)  # None: `model_faults` has reported it
        if kind is not None and not getattr(kind, "supports_gradient_checkpointing", False):
            rule = f"transformers cannot compute the layers of {spec.model} again"
            faults.append(f"gradient_checkpointing: {rule}: leave it out")
    return faults


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
    if spec.task == CAUSAL_LM and spec.training_arguments.get("label_smoothing_factor"):
        faults.append("training_arguments must not set label_smoothing_factor in a pipeline: leave it out")
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
