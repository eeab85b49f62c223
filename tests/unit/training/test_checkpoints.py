"""Which checkpoint a training run continues from."""

import multiprocessing
import os
import shutil
from pathlib import Path

import pytest
import torch

from paretune.training import checkpoints, processes
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


def copy_newer(source: str, target: str) -> None:
    """Copy a file unless `target` is as new as it, as SageMaker copies only changed files between disks and S3."""
    if not Path(target).exists() or Path(source).stat().st_mtime_ns > Path(target).stat().st_mtime_ns:
        shutil.copy2(source, target)


def be_interrupted_twice(root: Path, rank: int) -> None:
    """Be instance `rank` of two instances with one process each, in three attempts that share only a folder in S3."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0"}
    pytest.MonkeyPatch().setattr(torch.cuda, "is_available", lambda: False)  # a fork cannot use its parent's GPU
    torch.distributed.init_process_group("gloo", init_method=f"file://{root / 'group'}", rank=rank, world_size=2)
    first, second, third = (root / f"attempt-{number}" / f"instance-{rank}" for number in (1, 2, 3))
    bucket = root / "s3"

    def save(disk: Path, step: int, loss: float) -> None:
        tensors = {f"weight.{rank}": torch.full((2,), loss)}
        checkpoints.write(disk / f"checkpoint-{step}", tensors, {"loss": loss}, keep=2 if disk == first else 1)

    def upload(disk: Path) -> None:
        for number in (0, 1):
            if number == rank:
                shutil.copytree(disk, bucket, copy_function=copy_newer, dirs_exist_ok=True)
            processes.gather(None)

    save(first, 100, 0.5)
    save(first, 200, 0.25)
    upload(first)
    if rank == 0:
        (bucket / "checkpoint-200" / "state" / "__1_0.distcp").unlink()  # the interruption came before its copy
    processes.gather(None)
    shutil.copytree(bucket, second)
    assert agree(second) == second / "checkpoint-100"

    save(second, 200, 0.125)
    upload(second)
    shutil.copytree(bucket, third)
    assert agree(third) == third / "checkpoint-200"
    assert checkpoints.progress(third / "checkpoint-200") == {"loss": 0.125}
    weights = {f"weight.{number}": torch.zeros(2) for number in (0, 1)}
    checkpoints.read(third / "checkpoint-200", weights)
    assert [weight.tolist() for weight in weights.values()] == [[0.125, 0.125]] * 2
    torch.distributed.destroy_process_group()


def test_a_checkpoint_that_an_interrupted_attempt_left_incomplete_is_written_again_and_continued_from(
    tmp_path: Path,
) -> None:
    context = multiprocessing.get_context("fork")  # importing torch again would take seconds
    instances = [context.Process(target=be_interrupted_twice, args=(tmp_path, rank)) for rank in (0, 1)]
    for instance in instances:
        instance.start()
    try:
        for instance in instances:
            instance.join(120)
        assert [instance.exitcode for instance in instances] == [0, 0]
    finally:
        for instance in instances:
            instance.kill()
            instance.join()
