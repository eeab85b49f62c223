"""Which checkpoint counts, and what a finished training leaves for the next one."""

from pathlib import Path

import pytest

from paretune.training.checkpoints import CheckpointFolder, agree, seal, unseal


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints")


def write(folder: CheckpointFolder, step: int) -> Path:
    """A whole checkpoint, as the Trainer and `seal` leave it."""
    path = folder.current / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "trainer_state.json").write_text("{}")
    seal(path)
    return path


def test_the_newest_complete_checkpoint_is_continued_from(folder: CheckpointFolder) -> None:
    assert agree(folder) is None
    write(folder, 9)
    newest = write(folder, 10)

    assert agree(folder) == newest


@pytest.mark.parametrize("lost", ["model.safetensors", "trainer_state.json", "complete.json"])
def test_a_checkpoint_that_lacks_a_file_does_not_count(folder: CheckpointFolder, lost: str) -> None:
    older = write(folder, 5)
    (write(folder, 10) / lost).unlink()

    assert agree(folder) == older


def test_a_checkpoint_with_a_shortened_file_does_not_count(folder: CheckpointFolder) -> None:
    (write(folder, 10) / "model.safetensors").write_bytes(b"wei")

    assert agree(folder) is None


def test_a_checkpoint_that_is_being_written_again_does_not_count(folder: CheckpointFolder) -> None:
    unseal(write(folder, 10))

    assert agree(folder) is None


def test_files_of_other_instances_that_come_later_do_no_harm(folder: CheckpointFolder) -> None:
    newest = write(folder, 10)
    (newest / "rng_state_3.pth").write_bytes(b"random")

    assert agree(folder) == newest


def test_a_finished_training_leaves_no_checkpoint_and_the_next_one_begins_anew(folder: CheckpointFolder) -> None:
    first = write(folder, 10)

    folder.finish()

    assert not first.exists()
    assert agree(folder) is None
    second = write(folder, 5)
    assert agree(folder) == second
    folder.finish()
    assert not second.exists()


def test_a_checkpoint_of_a_finished_training_that_comes_back_is_not_continued_from(folder: CheckpointFolder) -> None:
    first = write(folder, 10)
    files = {path.name: path.read_bytes() for path in first.iterdir()}
    folder.finish()
    first.mkdir()
    for name, content in files.items():  # S3 keeps what was removed here
        (first / name).write_bytes(content)

    assert agree(folder) is None
    second = write(folder, 10)
    assert agree(folder) == second != first
    folder.remove_finished()
    assert not first.exists()
    assert agree(folder) == second
