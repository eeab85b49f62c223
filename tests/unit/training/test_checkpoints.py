"""Which checkpoint counts."""

from pathlib import Path

import pytest
import torch

from paretune.training import checkpoints
from paretune.training.checkpoints import agree


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def write(folder: Path, step: int) -> Path:
    """A whole checkpoint."""
    path = folder / f"checkpoint-{step}"
    checkpoints.write(path, {"weight": torch.ones(2)}, {"step": step}, keep=None)
    return path


def test_the_newest_complete_checkpoint_is_continued_from(folder: Path) -> None:
    assert agree(folder) is None
    write(folder, 9)
    newest = write(folder, 10)

    assert agree(folder) == newest


@pytest.mark.parametrize("lost", ["state/.metadata", "state/__0_0.distcp", "progress.json", "complete.json"])
def test_a_checkpoint_that_lacks_a_file_does_not_count(folder: Path, lost: str) -> None:
    older = write(folder, 5)
    (write(folder, 10) / lost).unlink()

    assert agree(folder) == older
