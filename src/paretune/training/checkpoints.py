"""Chooses the checkpoint that a training continues from.

On SageMaker each instance has its own disk. SageMaker copies the folder of checkpoints to S3 while the job runs, and
from there to every instance when the next job starts. It removes nothing from S3, an interruption may leave a copy
incomplete, and files are copied in any order. Hence:

    ROOT/checkpoints/finished           number of trainings that have finished with this folder; absent means none
    ROOT/checkpoints/checkpoint-N/      checkpoints of the first training
    ROOT/checkpoints/after-F/           checkpoints of the training that began when F had finished, F at least 1
    .../checkpoint-N/complete.json      size of every file that the first process wrote; written last

Checkpoints of finished trainings are ignored. A checkpoint is used only when all its files exist in full size on every
instance.
"""

import json
import shutil
from pathlib import Path

from paretune.specification.container import write_json
from paretune.training import processes

_COMPLETE = "complete.json"
_FINISHED = "finished"


class CheckpointFolder:
    """The folder of checkpoints of one specification, `root`; on SageMaker each instance has its own copy."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def current(self) -> Path:
        """Folder of this training's checkpoints."""
        return self._root / f"after-{self._finished()}" if self._finished() else self._root

    def remove_finished(self) -> None:
        """Remove the checkpoints of finished trainings; called by one process of each instance."""
        stale = [*self._root.glob("checkpoint-*"), *self._root.glob("after-*")] if self._finished() else []
        for path in stale:
            if path != self.current:
                shutil.rmtree(path, ignore_errors=True)

    def finish(self) -> None:
        """Record that this training has finished, and remove its checkpoints; called once per instance."""
        write_json(self._root / _FINISHED, self._finished() + 1)
        self.remove_finished()

    def _finished(self) -> int:
        path = self._root / _FINISHED
        return int(json.loads(path.read_text())) if path.exists() else 0


def seal(checkpoint: Path) -> None:
    """Mark the checkpoint as complete by writing the sizes of its files; called when all of them are written."""
    write_json(checkpoint / _COMPLETE, _file_sizes(checkpoint))


def unseal(checkpoint: Path) -> None:
    """Mark the checkpoint as incomplete; called before any of its files is written again."""
    (checkpoint / _COMPLETE).unlink(missing_ok=True)


def agree(folder: CheckpointFolder) -> Path | None:
    """The newest checkpoint that is complete for every process, the same in all of them; None if there is none."""
    complete = _complete(folder)
    common = set.intersection(*map(set, processes.gather(sorted(complete))))
    return complete[max(common)] if common else None


def _complete(folder: CheckpointFolder) -> dict[int, Path]:
    """Optimiser step to checkpoint."""
    paths = folder.current.glob("checkpoint-*")
    return {int(path.name.rpartition("-")[2]): path for path in paths if _is_complete(path)}


def _is_complete(checkpoint: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((checkpoint / _COMPLETE).read_text())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def _file_sizes(folder: Path) -> dict[str, int]:
    """Path below `folder` to bytes, of every file."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}
