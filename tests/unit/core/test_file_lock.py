"""Locks on open files, here and as Windows would be asked for them."""

import os
import sys
import threading
from pathlib import Path

import pytest

from paretune.core import file_lock
from tests.processes import wait_until


def opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


class Windows:
    """msvcrt, as far as locks go: one byte of a file, for one descriptor."""

    LK_NBLCK, LK_UNLCK = 2, 0

    def __init__(self) -> None:
        self.holder: int | None = None
        self.places: set[int] = set()

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        assert count == 1
        self.places.add(os.lseek(descriptor, 0, os.SEEK_CUR))
        if mode == self.LK_UNLCK:
            assert self.holder == descriptor
            self.holder = None
        elif self.holder not in (None, descriptor):
            raise OSError(36, "Resource deadlock avoided")
        else:
            self.holder = descriptor


@pytest.fixture(params=["posix", "windows"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "windows":
        monkeypatch.setattr(file_lock, "fcntl", None)
        monkeypatch.setitem(sys.modules, "msvcrt", Windows())  # type: ignore[arg-type]  # it takes the module's place
    return str(request.param)


def test_one_holds_a_lock_and_another_one_is_refused_until_it_lets_go(system: str, tmp_path: Path) -> None:
    first, other = opened(tmp_path / "lock"), opened(tmp_path / "lock")
    file_lock.lock(first)
    with pytest.raises(BlockingIOError):
        file_lock.lock(other, wait=False)
    file_lock.unlock(first)
    file_lock.lock(other, wait=False)
    file_lock.unlock(other)

    assert (tmp_path / "lock").stat().st_size == 0


def test_one_that_waits_gets_the_lock_when_the_other_lets_go(system: str, tmp_path: Path) -> None:
    first, other = opened(tmp_path / "lock"), opened(tmp_path / "lock")
    file_lock.lock(first)
    waiting = threading.Thread(target=file_lock.lock, args=(other,))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()

    file_lock.unlock(first)
    wait_until(lambda: not waiting.is_alive(), within_s=10.0, what="the other one has the lock")
