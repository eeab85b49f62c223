"""Which checkpoint counts."""

from pathlib import Path

import pytest

from paretune.specification.container import CHECKPOINT_EVERY_S, CHECKPOINTS_KEPT
from paretune.training.checkpoints import agree, seal
from tests.stand_ins.sagemaker.storage import CheckpointMirror, Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def write(folder: Path, step: int, *, keep: int | None = None, best: str | None = None) -> Path:
    """A whole checkpoint, as the Trainer and `seal` leave it."""
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    (path / "trainer_state.json").write_text("{}")
    seal(path, keep=keep, best=best)
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


def test_a_restart_after_two_hours_on_spot_downloads_no_more_than_the_checkpoints_that_are_kept(folder: Path) -> None:
    in_s3: dict[str, int] = {}  # SageMaker copies what is new or has changed, and removes nothing
    folder.mkdir()
    mirror = CheckpointMirror(Store(Uploads(in_s3)), [folder], "s3://b/c", report=pytest.fail)

    for number in range(int(2 * 3600 / CHECKPOINT_EVERY_S)):
        newest = write(folder, 100 * (number + 1), keep=CHECKPOINTS_KEPT, best=str(folder / "checkpoint-300"))
        mirror._copy()

    of_one = sum(file.stat().st_size for file in newest.iterdir())
    assert sum(in_s3.values()) <= (CHECKPOINTS_KEPT + 1) * of_one
    assert {key.split("/")[-2] for key, size in in_s3.items() if size} == {
        *("checkpoint-300", "checkpoint-5900", "checkpoint-6000"),
    }
    assert agree(folder) == newest


class Uploads:
    """S3, of which only the sizes are kept."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self._sizes = sizes

    def upload_file(self, path: str, _bucket: str, key: str, **_: object) -> None:
        self._sizes[key] = Path(path).stat().st_size
