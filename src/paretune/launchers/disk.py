"""The bytes on an instance's disk, the volume that they need, and the most that its main memory holds."""

import math
from pathlib import Path

from paretune.estimating.architecture import Architecture, config_in, of_config
from paretune.estimating.hardware import DeviceShare
from paretune.estimating.workload import frozen_weight_bytes, trained_weights
from paretune.launchers.deadlines import written_shares
from paretune.specification.container import CHECKPOINTS_KEPT, JobInputs
from paretune.specification.job import ADAPTERS, JobSpec
from paretune.specification.parallelism import DEVICE_MAP

SPARE_GIB = 10  # reserve of a volume for what is not counted: packages, logs, temporary files of libraries
_SMALLEST_VOLUME_GIB = 30
LARGEST_VOLUME_GIB = 16_384  # CreateTrainingJob, VolumeSizeInGB (botocore 1.44.5); gp2 volumes have at most 16 TiB
_FILE_BYTES = 5e9  # of the files of large models, which a process holds one at a time
PROCESS_BYTES = 0.65 * 2**30  # of a process with PyTorch and transformers, without a model, as in estimating.memory


def host_bytes(spec: JobSpec, built: Architecture) -> tuple[float, float]:
    """The most bytes of one machine's main memory, while it loads the model and while it saves it.

    Each process loads the whole model there before its GPU has it; with fsdp only the first one. Weights of qlora and
    device_map go to the GPUs file by file. Then the first process copies the weights to write them. Weights that stay
    there, without GPUs or with cpu_offload, come on top.
    """
    share, trained = DeviceShare(spec), trained_weights(spec, built)
    precision = "bf16" if share.half and share.precision != "fp16" else "fp32"
    weights = 4 * trained + frozen_weight_bytes(spec, built, precision) * (built.parameters - trained)
    processes = 1 if spec.strategy == DEVICE_MAP else share.devices
    held = 0.0
    if share.on_processor or spec.cpu_offload:
        held = processes / (share.degrees.tensor * share.degrees.pipeline) * weights / share.sharers
    loaded, copied = processes * weights, weights
    if spec.strategy == "fsdp" and share.devices * share.instances > 1:
        loaded = held + weights
    elif spec.strategy == DEVICE_MAP or spec.fine_tuning == "qlora":
        loaded = max(held, min(weights, _FILE_BYTES))
        copied = max(weights, 2.0 * built.parameters)  # merged in half precision
    base = processes * PROCESS_BYTES
    return base + loaded, base + held + copied


def volume_for_gib(size: float) -> int:
    """GiB of a volume for `size` bytes, image layers not included; at least 30."""
    return max(_SMALLEST_VOLUME_GIB, least_volume_gib(size))


def pooled_volume_gib(spec: JobSpec, inputs: JobInputs) -> int:
    """GiB of a volume that all trainings of a model have in common: kept instances are reused with an equal one only.

    A power of two, so that data sets of about one size share it, with room for full fine-tuning over many epochs.
    """
    most = max(bytes_on_disk(spec, inputs), bytes_on_disk(JobSpec(num_train_epochs=100, strategy="ddp"), inputs))
    return 1 << (volume_for_gib(most) - 1).bit_length()


def least_volume_gib(size: float) -> int:
    """The smallest volume in GiB that is sure to hold `size` bytes."""
    return math.ceil(size / 2**30) + SPARE_GIB


def bytes_on_disk(spec: JobSpec, inputs: JobInputs, built: Architecture | None = None) -> float:
    """The most bytes on an instance at one time: what it reads, its checkpoints and its results.

    Data count twice, for their Arrow caches. The trained model is there as a folder and as an archive. `built` tells
    the size of a model that is not prepared.
    """
    if inputs.project is not None:
        return 2 * sum(map(_bytes, inputs.project.inputs.values()))
    data = 2 * _bytes(inputs.dataset.folder) if inputs.dataset is not None else 0
    if inputs.model is not None:
        config = config_in(inputs.model) or {}
        read, built = _bytes(inputs.model), of_config(config, spec.task)
        stored = config.get("dtype") or config.get("torch_dtype") or ""
        weights = read * (1 if stored == "float32" else 2)  # in fp32
        if spec.init == "random" and built is not None:
            weights = 4 * built.parameters
    elif built is not None:
        read = weights = 4 * built.parameters
    else:
        return data
    written, checkpoint = written_shares(spec, built)
    merged = read if spec.fine_tuning in ADAPTERS and spec.lora.merge and not spec.probe_steps else 0
    return data + read + 2 * merged + (2 * written + _most_checkpoints(spec) * checkpoint) * weights


def _most_checkpoints(spec: JobSpec) -> int:
    """The most checkpoints at one time: the newest is complete before the oldest is removed."""
    if spec.probe_steps is not None:
        return 0
    arguments = spec.training_arguments
    keeps_best = bool(arguments.get("load_best_model_at_end"))
    most = int(arguments.get("save_total_limit") or CHECKPOINTS_KEPT) + 1 + keeps_best
    # One after each epoch, after the last one only for the best model or if stopped. On spot one every two minutes.
    is_by_epoch = arguments.get("save_strategy", "epoch") == "epoch" and not spec.spot
    return min(most, math.ceil(spec.num_train_epochs)) if is_by_epoch else most


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
