"""Tar archives from jobs, which are not trusted: only regular files are read, within limits, and put below one folder.

Links are refused, because chains of them have led out of the folder past Python's own filter (CVE-2025-4517).
"""

import gzip
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paretune.core.errors import first_line

_ALWAYS = 2**30
_TIMES = 20
"""An archive may unpack to `_ALWAYS` bytes plus `_TIMES` its size: weights pack to 0.9 of their size, logs to 0.1."""
_MOST_ENTRIES = 200_000  # each takes about a kilobyte of memory
# Errors that `tarfile` does not translate: NUL in a name, an impossible date, headers of headers.
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError, OverflowError, RecursionError)


@contextmanager
def _translated_damage() -> Iterator[None]:
    """Raise tarfile.ReadError in place of the other errors that Python raises for a damaged archive."""
    try:
        yield
    except _DAMAGED as error:
        raise tarfile.ReadError(first_line(error)) from error


@_translated_damage()
def unpack(path: Path, folder: Path, is_wanted: Callable[[str], object]) -> None:
    """Unpack the files of the archive at `path` whose names are wanted into `folder`.

    Raises tarfile.TarError if the archive is damaged or unpacks to too many bytes, or holds something other than
    regular files and folders, a path that leads out of the folder, or a file that is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    most_bytes = _ALWAYS + _TIMES * path.stat().st_size
    with tarfile.open(path, mode="r|*") as archive:
        for number, entry in enumerate(archive):
            name = entry.name.removeprefix("./")
            if number == _MOST_ENTRIES or entry.size < 0:
                raise tarfile.ReadError(f"it has more than {_MOST_ENTRIES} entries, or one that is no file")
            if entry.isdir() or not is_wanted(name):
                continue
            if not entry.isreg() or (file := archive.extractfile(entry)) is None:
                raise tarfile.ReadError(f"{name} is no regular file or folder: pack the archive without links")
            if name.startswith("/") or ".." in name.split("/"):
                raise tarfile.ReadError(f"{name} is no path below the archive's own folder")
            most_bytes -= entry.size
            if most_bytes < 0:
                raise tarfile.ReadError(f"it unpacks to more than {_TIMES} times its size")
            target = folder / name
            if target.exists():
                raise tarfile.ReadError(f"{name} exists already")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as output:
                shutil.copyfileobj(file, output)
