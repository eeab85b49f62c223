"""Which checkpoint a training run continues from."""

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


def test_a_checkpoint_that_could_not_be_read_is_not_kept_instead_of_the_one_that_was(tmp_path: Path) -> None:
    older, newer = (write(tmp_path, step) for step in (100, 200))
    (newer / "state" / "__0_0.distcp").unlink()  # its copy was incomplete when the job was interrupted
    assert agree(tmp_path) == older

    checkpoints.write(tmp_path / "checkpoint-150", {"weight": torch.ones(2)}, {"step": 150}, keep=2)
    (tmp_path / "checkpoint-150" / "progress.json").unlink()  # interrupted again

    assert agree(tmp_path) == older
