"""Which checkpoint a training continues from."""

from pathlib import Path

import pytest
import torch

from paretune.training import checkpoints
from paretune.training.checkpoints import agree


def write(folder: Path, step: int) -> Path:
    """Write a complete checkpoint."""
    path = folder / f"checkpoint-{step}"
    checkpoints.write(path, {"weight": torch.ones(2)}, {"step": step}, keep=None)
    return path


@pytest.mark.parametrize("lost", ["state/.metadata", "state/__0_0.distcp", "progress.json", "complete.json"])
def test_the_newest_checkpoint_that_lacks_no_file_is_continued_from(tmp_path: Path, lost: str) -> None:
    assert agree(tmp_path / "checkpoints") is None
    older, newest = (write(tmp_path / "checkpoints", step) for step in (9, 10))
    assert agree(tmp_path / "checkpoints") == newest

    (newest / lost).unlink()

    assert agree(tmp_path / "checkpoints") == older
