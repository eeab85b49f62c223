"""Checks model, data and training arguments, and tokenizes the data: `python -m paretune.training.prepare`.

This program runs before a job is launched, in a separate process, so that the launching process does not import torch.
It reads a specification. If all checks succeed, it writes the paths of the prepared data and the model, and findings
about the data. Otherwise, it writes all faults of the first step that fails.
"""

import json
import logging
import math
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paretune.core.errors import BadInput, collecting, refuse
from paretune.core.hub import accepts_connections, hub_address
from paretune.core.packages import can_be_imported, install
from paretune.core.reading import exists
from paretune.estimating.architecture import positions_of
from paretune.specification import metrics
from paretune.specification.chats import Chat
from paretune.specification.container import TELLS, write_json
from paretune.specification.inputs import BUNDLED
from paretune.specification.job import JobSpec, ModelArguments
from paretune.specification.parallelism import ParallelDegrees
from paretune.training.processes import watch_parent


def main(arguments: list[str]) -> int:
    """Prepare a job and return an exit code.

    The code is 0 if the output file (JSON) has `dataset`, `model` and `findings`, and 2 if it has `faults`. `arguments`
    are the file with the specification as JSON, the folder of prepared data sets, the output file, and optionally the
    commit of a model on the hub (by default the newest).
    """
    request, cache, answer = map(Path, arguments[:3])
    spec = JobSpec.read(json.loads(request.read_text()))
    watch_parent()
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ.setdefault("HF_UPDATE_DOWNLOAD_COUNTS", "0")  # or `datasets` reports every local file it reads
    logging.disable(logging.WARNING)
    try:
        local = (BUNDLED, ".", "/", "~")
        is_of_hub = any(not name.startswith(local) and not exists(name) for name in (spec.model, spec.dataset))
        if is_of_hub and not accepts_connections(hub_address(os.environ)):
            os.environ["HF_HUB_OFFLINE"] = "1"  # read by imports below; else each file takes minutes of retries
        write_json(answer, _prepare(spec, cache, *arguments[3:]))
    except BadInput as error:
        write_json(answer, {"faults": error.faults})
        return 2
    return 0


def _prepare(spec: JobSpec, cache: Path, revision: str | None = None) -> dict[str, Any]:
    import datasets  # like transformers, reads HF_HUB_OFFLINE when it is imported
    import numpy as np

    from paretune.training import device, model
    from paretune.training.rows import chats, findings, sources, tokenized

    datasets.disable_progress_bars()
    data, given = spec.data_arguments, spec.model_arguments
    instances = [*map(spec.instance, spec.instance_types())] if spec.has_instances else []
    faults = device.device_faults(spec.precision, instances, spec.instance_count)
    if spec.training_arguments:
        from paretune.training.arguments import argument_faults  # imports peft

        faults = argument_faults(spec) + faults
    if spec.fine_tuning == "qlora" and not spec.has_instances and not can_be_imported("bitsandbytes"):
        rule = "fine_tuning=qlora needs the package bitsandbytes, which is not installed here"
        faults.append(f"{rule}: {install('quantized')}, or set fine_tuning=lora")
    with collecting(faults):
        _print_progress(f"looking at {spec.model}")
        folder = model.find_model(spec.model, spec.init, revision)
        faults += model.model_faults(given, folder)
        config = model.load_config(spec.model, folder)
        faults += division_faults(given, spec.degrees, spec.precision, config)
        tokenizer = model.load_tokenizer(folder)
    with collecting(faults):
        _print_progress(f"reading {spec.dataset}")
        rows, labels = sources.read_rows(data)
    refuse(faults)
    is_causal = spec.task == metrics.CAUSAL_LM
    if any(isinstance(row, Chat) for part in rows.values() for row in part.chats):
        chats.check_tokenizer(spec.model, tokenizer)
    joins = is_causal and not rows["train"].chats and model.keeps_texts_apart(config)
    prepared = tokenized.prepare(data, rows, labels, tokenizer, cache, _print_progress, joins=joins)
    for split in ("train", "validation") if is_causal else ("train",):
        learned = tokenized.TokenRows(prepared.folder / split, pad_id=0).label_counts
        if prepared.facts[f"{split}_tokens"] == 0 or (is_causal and not learned.sum()):
            raise BadInput([f"dataset {spec.dataset} has no tokens to learn from in its {split} rows"])
    made = [np.load(path, mmap_mode="r").max(initial=0) for path in prepared.folder.glob("*/tokens.npy")]
    highest = int(max(*made, tokenizer.pad_token_id))  # a pad_token that the user added may be the highest
    vocabulary = getattr(config.get_text_config(), "vocab_size", math.inf)
    if highest >= vocabulary:
        of_each = f"an embedding for each token of its tokenizer, up to {highest}, but has {vocabulary}"
        rule = f"model {spec.model} must have {of_each}"
        raise BadInput([f"{rule}: call model.resize_token_embeddings({highest + 1}), and save the model"])
    described = findings.data_findings(data, rows, labels, prepared, spec.model, positions_of(config.to_dict()))
    return {"dataset": str(prepared.folder), "model": str(folder), "findings": asdict(described)}


def _print_progress(text: str) -> None:
    print(f"{TELLS}{text}", flush=True)  # the launching process reads this line


def division_faults(given: ModelArguments, degrees: ParallelDegrees, precision: str, config: Any) -> list[str]:
    """Return reasons why the job cannot divide the model of `config` or checkpoint its activations; empty if it can."""
    faults = list[str]()
    if degrees.strategy == "fsdp" and degrees.tensor > 1:
        from paretune.training.experiments.tensor import tensor_faults  # takes a second, to import DTensor

        faults += tensor_faults(config, degrees.tensor, given.model)
    if degrees.strategy == "fsdp" and degrees.pipeline > 1:
        from paretune.training.experiments.pipeline import stage_faults

        faults += stage_faults(config, degrees.pipeline, given.model, precision)
    divided = {"tensor_parallel_degree": degrees.tensor, "pipeline_parallel_degree": degrees.pipeline}
    names = " and ".join(name for name, degree in divided.items() if degree > 1)
    if degrees.strategy == "fsdp" and names and given.fine_tuning != "full":
        remedy = "set it to 1; strategy=fsdp alone shards frozen weights and adapters too"
        faults.append(f"{names} works only with fine_tuning=full, got {given.fine_tuning}: {remedy}")
    if given.checkpoints_activations:
        from paretune.training.model import auto_class

        kind = auto_class(given.task)._model_mapping.get(type(config), None)  # None: `model_faults` has reported it
        if kind is not None and not getattr(kind, "supports_gradient_checkpointing", False):
            rule = f"transformers cannot recompute the layers of {given.model} in the backward pass"
            faults.append(f"gradient_checkpointing: {rule}: leave it out")
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
