"""Locks on open files between processes of one machine, held until they are released or the process ends."""

import importlib
import os
import time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_FAR = 2**31 - 2  # offset of a byte that nobody reads: Windows prevents others from reading locked bytes
_RETRY_S = 0.05


def lock(descriptor: int, *, wait: bool = True) -> None:
    """Lock an open file for this process and its children; raises BlockingIOError if it is taken, unless `wait`."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    while not _is_locked_on_windows(descriptor):
        if not wait:
            raise BlockingIOError("another process holds the lock")
        time.sleep(_RETRY_S)


def unlock(descriptor: int) -> None:
    """Release a lock."""
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return
    windows = importlib.import_module("msvcrt")
    os.lseek(descriptor, _FAR, os.SEEK_SET)
    windows.locking(descriptor, windows.LK_UNLCK, 1)


def _is_locked_on_windows(descriptor: int) -> bool:
    """Try to lock the file, and return whether that succeeded."""
    windows = importlib.import_module("msvcrt")
    os.lseek(descriptor, _FAR, os.SEEK_SET)
    try:
        windows.locking(descriptor, windows.LK_NBLCK, 1)
    except OSError:
        return False
    return True
