"""Checkpoints: complete once all processes have written their part; training resumes from the newest complete one.

On SageMaker each instance has its own disk. SageMaker copies the folder of checkpoints to S3 while the job runs, and
from there to every instance when the next attempt starts. It removes nothing from S3 and overwrites what has changed,
an interruption may leave a copy incomplete, and files are copied in any order. Hence `checkpoint-N/complete.json` is
written last, with the size of every file of all processes, and a checkpoint is used only when all its files exist in
full size on every instance. One that is not needed any more is emptied, so that S3 does not keep its contents.
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
    """Write a checkpoint, and mark it as complete when all processes have written theirs; all of them must call it.

    Of the other complete checkpoints the newest `keep` stay, or all with None.
    """
    if processes.is_first():
        (checkpoint / COMPLETE).unlink(missing_ok=True)
        write_json(checkpoint / _PROGRESS, progress)
    with warnings.catch_warnings(action="ignore"):  # that a process is alone
        state_dict_saver.save(tensors, checkpoint_id=checkpoint / _STATE)  # returns when all have written
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
    """Read a checkpoint of any number of processes into `tensors`; all processes must call it."""
    with warnings.catch_warnings(action="ignore"):
        state_dict_loader.load(tensors, checkpoint_id=checkpoint / _STATE)


def agree(folder: Path) -> Path | None:
    """Agree on the newest checkpoint that is complete in every process; None if there is none."""
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
