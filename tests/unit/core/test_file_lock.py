"""Locks on files: for one process or thread at a time, and only while that process lives."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from paretune.core.file_lock import locked_file

HOLD = """
import sys, time
from pathlib import Path
from paretune.core.file_lock import locked_file
with locked_file(Path(sys.argv[1])) as file:
    print("process 1", end="", file=file, flush=True)
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def another_process(path: Path) -> Iterator["subprocess.Popen[str]"]:
    """Hold the lock in another process, which is killed after the block."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_process_that_is_killed_leaves_its_lock_to_the_next_one(tmp_path: Path) -> None:
    with another_process(tmp_path / "lock") as process:
        with pytest.raises(BlockingIOError), locked_file(tmp_path / "lock", waits=False):
            pass
        assert (tmp_path / "lock").read_text() == "process 1"  # whoever was refused can say who holds it
        process.kill()
        process.wait()
        with locked_file(tmp_path / "lock", waits=False):
            pass


def test_an_error_in_the_block_ends_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked_file(tmp_path / "lock"):
        _ = 1 / 0
    with locked_file(tmp_path / "lock", waits=False):
        pass


@pytest.mark.parametrize("is_removed", [False, True])
def test_threads_that_wait_get_the_lock_one_after_another(tmp_path: Path, is_removed: bool) -> None:
    inside, most = [], 0

    def count() -> None:
        nonlocal most
        for _ in range(100):
            with locked_file(tmp_path / "lock", is_removed=is_removed):
                inside.append(1)
                most = max(most, len(inside))
                inside.pop()

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert most == 1
    assert (tmp_path / "lock").exists() is not is_removed


def test_a_link_to_another_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="lock"), locked_file(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()
