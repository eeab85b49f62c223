"""Which checkpoint counts."""

from pathlib import Path

import pytest

from paretune.training.checkpoints import agree, remove, seal, unseal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def write(folder: Path, step: int) -> Path:
    """A whole checkpoint, as the Trainer and `seal` leave it."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "trainer_state.json").write_text("{}")
    seal(path)
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


def test_a_checkpoint_with_a_shortened_file_does_not_count(folder: Path) -> None:
    (write(folder, 10) / "model.safetensors").write_bytes(b"wei")

    assert agree(folder) is None


def test_a_checkpoint_that_is_being_written_again_does_not_count(folder: Path) -> None:
    unseal(write(folder, 10))

    assert agree(folder) is None


def test_files_of_other_instances_that_come_later_do_no_harm(folder: Path) -> None:
    newest = write(folder, 10)
    (newest / "rng_state_3.pth").write_bytes(b"random")

    assert agree(folder) == newest


def test_a_finished_training_leaves_no_checkpoint(folder: Path) -> None:
    first = write(folder, 10)

    remove(folder)

    assert not first.exists()
    assert agree(folder) is None
