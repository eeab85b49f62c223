"""Writes and reads checkpoints. A job resumes from the newest one to which all processes have written their part.

On SageMaker, each instance has its own disk. SageMaker copies the folder of checkpoints to S3 while the job runs. When
the next attempt starts, it copies the folder from S3 to every instance. It copies files in any order, overwrites files
that have changed, and never removes files from S3. An interruption may leave the copy in S3 incomplete.

So the first process writes `checkpoint-N/complete.json` last. It lists the sizes of all files of all processes. A
checkpoint is used only if every instance has all of these files, each with its full size. When a checkpoint is no
longer needed, its files are emptied and not deleted: S3 would keep the contents of deleted files.

If an interrupted attempt has left a part of a checkpoint, every instance has a copy of that part. Before the checkpoint
is written again, these copies are deleted, so that the sizes in the list are those of new files. An old file that stays
in S3 does no harm: either the list does not name it, or it was written at the same step as the new file of the same
name, and can be read instead of it.
"""

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

from paretune.specification.container import write_json
from paretune.training import processes

COMPLETE = "complete.json"
_STATE, _PROGRESS = "state", "progress.json"  # the folder with the tensors, and the file with everything else


def write(checkpoint: Path, tensors: dict[str, torch.Tensor], progress: Mapping[str, Any], *, keep: int | None) -> None:
    """Write a checkpoint, and mark it as complete when all processes have written their part. All must call this.

    What an interrupted attempt left in `checkpoint` is deleted first. Afterwards, the newest `keep` complete
    checkpoints keep their contents, and all others are emptied. If `keep` is None, all checkpoints keep their contents.
    """
    if processes.is_first(of_instance=True):
        shutil.rmtree(checkpoint, ignore_errors=True)  # there is none, except after an interruption
    processes.gather(None)  # so that nothing new is deleted
    if processes.is_first():
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
    """Read a checkpoint into `tensors`. All must call this; more or fewer processes may have written it."""
    with warnings.catch_warnings(action="ignore"):
        state_dict_loader.load(tensors, checkpoint_id=checkpoint / _STATE)


def agree(folder: Path) -> Path | None:
    """Return the newest checkpoint that every process finds complete, or None. All processes must call this.

    Newer ones lose their mark: `write` must not keep them instead of checkpoints that can be read.
    """
    complete = {_step(path.name): path for path in folder.glob("checkpoint-*") if _is_complete(path)}
    common = set.intersection(*map(set, processes.gather(sorted(complete))))
    newest = max(common, default=-1)
    for mark in folder.glob(f"checkpoint-*/{COMPLETE}") if processes.is_first(of_instance=True) else ():
        if _step(mark.parent.name) > newest:
            os.truncate(mark, 0)
    return complete[newest] if common else None


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])


def _is_complete(checkpoint: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((checkpoint / COMPLETE).read_text())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False
