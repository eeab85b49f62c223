"""Locks on files, which exclude other processes and threads, and end with the process that holds them.

filelock would do the same, but version 3.18, which is in AWS's images and must not be replaced there, empties the file
that another process holds. The file of a study's lock says which process that is.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO


@contextmanager
def locked_file(path: Path, *, waits: bool = True, is_removed: bool = False) -> Iterator[TextIO]:
    """Lock a file inside the block, and return it, opened for appending; a missing file is created.

    With `waits=False`, raises BlockingIOError if another process or thread holds the lock. With `is_removed=True`, the
    file is removed after the block. Processes that wait for a removed file lock the next one of its name instead.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with open(descriptor, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_at(path, descriptor):
                continue
            try:
                yield file
            finally:
                if is_removed:
                    path.unlink(missing_ok=True)
            return


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the open file is still the one at `path`."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
