"""What lies on the disk of an instance: data, model, checkpoints and results, and how large its volume has to be."""

import math
from pathlib import Path

from paretune.estimating.architecture import config_in, of_config
from paretune.estimating.workload import adapter_share
from paretune.specification.container import CHECKPOINTS_KEPT, JobInputs
from paretune.specification.fine_tuning import ADAPTERS
from paretune.specification.job import JobSpec

SPARE_GIB = 10
"""Of a volume, beside what a job is known to read and write: packages, logs, files that a library writes meanwhile."""
_SMALLEST_VOLUME_GIB = 30


def volume_for_gib(size: float) -> int:
    """GiB of a volume with room for `size` bytes, image layers not included; never a small one."""
    return max(_SMALLEST_VOLUME_GIB, least_volume_gib(size))


def least_volume_gib(size: float) -> int:
    """GiB below which `size` bytes may not fit on a volume."""
    return math.ceil(size / 2**30) + SPARE_GIB


def bytes_on_disk(spec: JobSpec, inputs: JobInputs) -> float:
    """Most bytes that lie on an instance at one time: what it reads, its checkpoints and its results.

    Data count twice, for their Arrow caches. The trained model lies there as a folder and as an archive.
    """
    if inputs.project is not None:
        return 2 * sum(map(_bytes, inputs.project.inputs.values()))
    data = 2 * _bytes(inputs.dataset.folder) if inputs.dataset is not None else 0
    if inputs.model is None:
        return data
    return data + _bytes_of_model(spec, _bytes(inputs.model), _fp32_bytes(inputs.model, spec))


def bytes_of_weights(spec: JobSpec, parameters: int) -> float:
    """The same without the data, of a model of which only the number of its weights is known."""
    return _bytes_of_model(spec, 4 * parameters, 4 * parameters)


def _bytes_of_model(spec: JobSpec, read: float, weights: float) -> float:
    """Bytes of the model as it is read, of its checkpoints and of the trained one; `weights` are its bytes in fp32."""
    written, checkpoint = _written_shares(spec)
    merged = read if spec.fine_tuning in ADAPTERS and spec.merge and not spec.probe_steps else 0
    trials = spec.trials_per_job  # each leaves its model and, where it is stopped, a checkpoint
    checkpoints = _most_checkpoints(spec) + (0 if spec.probe_steps else trials - 1)
    return read + 2 * trials * merged + (2 * trials * written + checkpoints * checkpoint) * weights


def _written_shares(spec: JobSpec) -> tuple[float, float]:
    """Size of the trained model and of one checkpoint, in sizes of all weights in fp32.

    A checkpoint holds weights and two moments of Adam for each weight that is trained; DeepSpeed writes the weights
    twice more, in the model's and in its own format. Adapters are written without the frozen weights; merged, they are
    as large as the model that was read. A head is counted as half of all weights: the output layer of a small language
    model.
    """
    if spec.fine_tuning in ADAPTERS:
        return adapter_share(spec), 3 * adapter_share(spec)
    if spec.fine_tuning == "head":
        return 1.0, 2.0
    return 1.0, 5.0 if spec.strategy == "deepspeed" else 3.0


def _most_checkpoints(spec: JobSpec) -> int:
    """Checkpoints that exist at one time: the newest is complete before the oldest is removed."""
    if spec.probe_steps is not None:
        return 0
    chosen = spec.training_arguments
    most = int(chosen.get("save_total_limit") or CHECKPOINTS_KEPT) + 1 + bool(chosen.get("load_best_model_at_end"))
    # One after each epoch, but after the last one only where the job was stopped.
    is_by_epoch = chosen.get("save_strategy", "epoch") == "epoch"
    return min(most, math.ceil(spec.num_train_epochs)) if is_by_epoch else most


def _fp32_bytes(model: Path, spec: JobSpec) -> int:
    """Size of the weights of a model's folder once they are loaded in fp32; of random ones as its config.json says."""
    told = config_in(model) or {}
    built = of_config(told, spec.task) if spec.init == "random" else None
    if built is not None:
        return 4 * built.parameters
    stored = told.get("dtype") or told.get("torch_dtype") or ""
    return _bytes(model) * (1 if stored == "float32" else 2)


def _bytes(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
