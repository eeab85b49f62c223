"""Keeps memory that is freed for the next step.

glibc gives large blocks back to the system, which fills them with zeros page by page when they are asked for again:
in a step of MiniLM 15 of 230 ms went into that (an AMD EPYC, a virtual machine).
"""

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # names of malloc.h, glibc
_LARGEST_MMAP_THRESHOLD = 32 * 2**20  # DEFAULT_MMAP_THRESHOLD_MAX of glibc on 64 bits; above it mallopt changes nothing
_LARGEST_INT = 2**31 - 1


def keep_freed_memory() -> None:
    """Keep up to 2 GiB of this process's freed memory, in blocks of up to 32 MiB; no effect where there is no glibc."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)


def use_one_arena() -> None:
    """Let threads that are started from now on use the freed memory of each other; no effect without glibc."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_M_ARENA_MAX, 1)


def release_freed_memory() -> None:
    """Give this process's freed memory back to the system; no effect where there is no glibc."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
