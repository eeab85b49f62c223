"""Writes and reads checkpoints. A job resumes from the newest one to which all processes have written their part.

On SageMaker each instance has its own disk. SageMaker copies the folder of checkpoints to S3 while the job runs, and
from there to every instance when the next attempt starts. It copies files in any order, overwrites those that have
changed, and removes none from S3; an interruption may leave a copy incomplete. So `checkpoint-N/complete.json` is
written last, with the sizes of all files of all processes. A checkpoint is used only if every instance has all of these
files, each with its full size. The files of a checkpoint that is no longer needed are emptied, so that S3 does not keep
their contents.
"""

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

from paretune.specification.container import write_json
from paretune.training import processes

COMPLETE = "complete.json"
_STATE, _PROGRESS = "state", "progress.json"  # a folder with the tensors, and the rest


def write(checkpoint: Path, tensors: dict[str, torch.Tensor], progress: Mapping[str, Any], *, keep: int | None) -> None:
    """Write a checkpoint, and mark it as complete when all processes have written their part. All must call this.

    Afterwards only the newest `keep` complete checkpoints, including this one, keep their contents. With None, all do.
    """
    if processes.is_first():
        (checkpoint / COMPLETE).unlink(missing_ok=True)
        write_json(checkpoint / _PROGRESS, progress)
    with warnings.catch_warnings(action="ignore"):  # torch warns if there is only one process
        state_dict_saver.save(tensors, checkpoint_id=checkpoint / _STATE)  # returns after all processes have written
    own = {str(path.relative_to(checkpoint)): path.stat().st_size for path in checkpoint.rglob("*") if path.is_file()}
    sizes = {name: size for part in processes.gather(own) for name, size in part.items()}
    if processes.is_first():
        write_json(checkpoint / COMPLETE, sizes)
    if keep is None:
        return
    complete = [path.parent.name for path in checkpoint.parent.glob(f"*/{COMPLETE}") if path.stat().st_size]
    needed = processes.of_first(sorted(complete, key=_step)[-keep:])
    for path in checkpoint.parent.glob("checkpoint-*") if processes.is_first(of_instance=True) else ():
        for file in () if path.name in needed else path.rglob("*"):
            if file.is_file() and file.stat().st_size:
                os.truncate(file, 0)


def progress(checkpoint: Path) -> dict[str, Any]:
    """Read the progress that was written with a checkpoint."""
    read: dict[str, Any] = json.loads((checkpoint / _PROGRESS).read_text())
    return read


def read(checkpoint: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Read a checkpoint into `tensors`. All processes must call this; more or fewer may have written it."""
    with warnings.catch_warnings(action="ignore"):
        state_dict_loader.load(tensors, checkpoint_id=checkpoint / _STATE)


def agree(folder: Path) -> Path | None:
    """Return the newest checkpoint that is complete in every process, or None. All processes must call this."""
    complete = {_step(path.name): path for path in folder.glob("checkpoint-*") if _is_complete(path)}
    common = set.intersection(*map(set, processes.gather(sorted(complete))))
    return complete[max(common)] if common else None


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])


def _is_complete(checkpoint: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((checkpoint / COMPLETE).read_text())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False
