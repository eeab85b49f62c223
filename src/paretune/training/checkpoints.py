"""Which checkpoint a training continues from.

On SageMaker every instance has a disk of its own. The folder of checkpoints is copied to S3 while the job runs and from
there to every instance when the next one starts. Nothing is ever removed from S3, an interruption may come half-way
through a copy, and files are copied in no order. Hence:

    ROOT/checkpoints/finished           how many trainings have ended properly with this folder; absent means none
    ROOT/checkpoints/checkpoint-N/      checkpoints of the first training
    ROOT/checkpoints/after-F/           checkpoints of the training that began when F had finished, F at least 1
    .../checkpoint-N/complete.json      size of every file that the first process wrote; written last

A checkpoint of a finished training is never continued from, even if it is still there. One counts only when all its
files are there, in their full size, on every instance.
"""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from paretune.spec.container import write_json

_COMPLETE = "complete.json"
_FINISHED = "finished"


class CheckpointFolder:
    """The folder of checkpoints of one specification.

    Args:
        root: the folder; on SageMaker each instance has its own copy.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def current(self) -> Path:
        """Where this training's checkpoints are."""
        return self._root / f"after-{self._finished()}" if self._finished() else self._root

    def remove_finished(self) -> None:
        """Remove the checkpoints of trainings that have finished; one process of each instance does it."""
        if not self._finished():
            return
        stale = [*self._root.glob("checkpoint-*"), *self._root.glob("after-*")]
        for path in stale:
            if path != self.current:
                shutil.rmtree(path, ignore_errors=True)

    def complete(self) -> dict[str, Path]:
        """Name of every checkpoint of this training whose files are all there, to its folder."""
        return {path.name: path for path in self.current.glob("checkpoint-*") if _is_complete(path)}

    def finish(self) -> None:
        """Record that this training has ended properly, and remove its checkpoints; once per instance."""
        write_json(self._root / _FINISHED, self._finished() + 1)
        self.remove_finished()

    def _finished(self) -> int:
        path = self._root / _FINISHED
        return int(json.loads(path.read_text())) if path.exists() else 0


def seal(checkpoint: Path) -> None:
    """Write down what the checkpoint consists of, once all of it is written."""
    files = [path for path in sorted(checkpoint.rglob("*")) if path.is_file() and path.name != _COMPLETE]
    write_json(checkpoint / _COMPLETE, {str(path.relative_to(checkpoint)): path.stat().st_size for path in files})


def unseal(checkpoint: Path) -> None:
    """From now on the checkpoint is not complete; to be called before any of it is written again."""
    (checkpoint / _COMPLETE).unlink(missing_ok=True)


def agree(folder: CheckpointFolder) -> Path | None:
    """The newest checkpoint that is complete for every process, the same one for all; None if there is none."""
    mine = folder.complete()
    common = set(mine)
    if torch.distributed.is_initialized():
        known: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(known, sorted(mine))
        common = set.intersection(*map(set, known))
    newest = _newest(common)
    return None if newest is None else mine[newest]


def wait_for_all() -> None:
    """Return when every process has come here."""
    if torch.distributed.is_initialized():
        torch.distributed.barrier()


def _newest(names: Iterable[str]) -> str | None:
    numbered = {int(name.rpartition("-")[2]): name for name in names}
    return numbered[max(numbered)] if numbered else None


def _is_complete(checkpoint: Path) -> bool:
    try:
        sizes = json.loads((checkpoint / _COMPLETE).read_text())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False
