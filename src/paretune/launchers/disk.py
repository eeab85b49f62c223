"""How many bytes a job needs on an instance's disk, and the size of its volume."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paretune.core.reading import config_in
from paretune.estimating.architecture import Architecture, of_config
from paretune.estimating.workload import whole_argument
from paretune.launchers.deadlines import written_shares
from paretune.specification.container import CHECKPOINTS_KEPT, JobInputs
from paretune.specification.job import JobSpec
from paretune.specification.training_arguments import save_strategy

SPARE_GIB = 10  # room for packages, logs and temporary files, which `bytes_on_disk` does not count
_SMALLEST_VOLUME_GIB = 30
LARGEST_VOLUME_GIB = 16_384  # CreateTrainingJob, VolumeSizeInGB (botocore 1.44.5); gp2 volumes have at most 16 TiB


def volume_for_gib(size: float) -> int:
    """Return the size in GiB of a volume for `size` bytes, at least 30. Image layers are not stored on it."""
    return max(_SMALLEST_VOLUME_GIB, least_volume_gib(size))


def pooled_volume_gib(spec: JobSpec, inputs: JobInputs) -> int:
    """Return one volume size in GiB for all jobs with the same model: AWS reuses a warm pool only for the same size.

    The volume has room for full fine-tuning over many epochs. Its size is a power of two, so that data sets of similar
    size usually get the same volume size.
    """
    others = JobSpec(num_train_epochs=100, strategy="ddp")
    most = max(size for each in (spec, others) if (size := bytes_on_disk(each, inputs)) is not None)
    return 1 << (volume_for_gib(most) - 1).bit_length()


def least_volume_gib(size: float) -> int:
    """Return the size in GiB of the smallest volume that is sure to have room for `size` bytes."""
    return math.ceil(size / 2**30) + SPARE_GIB


def bytes_on_disk(spec: JobSpec, inputs: JobInputs, built: Architecture | None = None) -> float | None:
    """Return the most bytes on an instance at one time: inputs, checkpoints and results.

    The result is None if the job keeps all checkpoints and their number is unknown.

    Data sets are counted twice because of their Arrow caches. The trained model is also counted twice, which leaves
    room for a copy of it. `built` gives the size of a model that has not been prepared yet. For a script or project,
    only the inputs count, because nobody knows what it writes.
    """
    files = [inputs.dataset.folder] if inputs.dataset is not None else []
    files += [path for path in (inputs.code.inputs if inputs.code else {}).values() if isinstance(path, Path)]
    data = 2 * sum(map(_bytes, files))
    if inputs.model is not None:
        config = config_in(inputs.model) or {}
        read, built = _bytes(inputs.model), of_config(config, spec.task)
        stored = config.get("dtype") or config.get("torch_dtype") or ""
        weights = read * (1 if stored == "float32" else 2)  # bytes in fp32
        if spec.init == "random" and built is not None:
            weights = 4 * built.parameters
    elif built is not None and not spec.runs_user_code:
        read = weights = 4 * built.parameters
    else:
        return data
    arguments, model = spec.training_arguments, spec.model_arguments
    is_probe = spec.probe_steps is not None
    checkpoints = 0.0 if is_probe else _most_checkpoints(arguments, spec.num_train_epochs, on_spot=spec.spot)
    if checkpoints is None:
        return None
    written, checkpoint = written_shares(model, spec.strategy, built)
    merged = read if model.adapts and model.lora.merge and not is_probe else 0
    return data + read + 2 * merged + (2 * written + checkpoints * checkpoint) * weights


def _most_checkpoints(arguments: Mapping[str, Any], epochs: float, *, on_spot: bool) -> float | None:
    """Return the most checkpoints on the disk at one time, or None if the job keeps all and their number is unknown.

    A new one is complete before the oldest is removed. Each counts as 4/3 if it also contains the best weights so far.
    """
    keeps_all = arguments.get("save_total_limit", CHECKPOINTS_KEPT) is None
    limit = math.inf if keeps_all else (whole_argument(arguments, "save_total_limit") or CHECKPOINTS_KEPT) + 1
    most = min(limit, _most_written(arguments, epochs, on_spot=on_spot))
    return None if most == math.inf else most * (4 / 3 if arguments.get("load_best_model_at_end") else 1)


def _most_written(arguments: Mapping[str, Any], epochs: float, *, on_spot: bool) -> float:
    """Return the most checkpoints that a job writes, or infinity if their number is unknown.

    It writes one after each epoch except the last, or every `save_steps`; on spot instances, also at intervals of two
    minutes or more. It writes one more when it is stopped, even with `save_strategy=no`.
    """
    strategy = save_strategy(arguments)
    if on_spot:
        return math.inf
    steps, every = whole_argument(arguments, "max_steps"), whole_argument(arguments, "save_steps")
    if strategy == "epoch" and steps is None:  # max_steps overrides the epochs
        return math.ceil(epochs)
    if strategy == "steps" and steps is not None and every is not None:
        return math.ceil(steps / every)
    return 1 if strategy == "no" else math.inf


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
