"""Which checkpoint counts."""

from pathlib import Path

import pytest

from paretune.training.checkpoints import agree, seal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def write(folder: Path, step: int, *, keep: int | None = None) -> Path:
    """A whole checkpoint, as the Trainer and `seal` leave it."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "trainer_state.json").write_text("{}")
    seal(path, keep=keep)
    return path


def test_the_newest_complete_checkpoint_is_continued_from(folder: Path) -> None:
    assert agree(folder) is None
    write(folder, 9)
    newest = write(folder, 10)

    assert agree(folder) == newest


@pytest.mark.parametrize("lost", ["model.safetensors", "trainer_state.json", "complete.json"])
def test_a_checkpoint_that_lacks_a_file_does_not_count(folder: Path, lost: str) -> None:
    older = write(folder, 5)
    (write(folder, 10) / lost).unlink()

    assert agree(folder) == older
