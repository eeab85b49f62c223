"""Tar archives from jobs and models, which are not trusted: unpacked within limits and only below one folder.

Only regular files and folders are unpacked, because chains of links have led out of the folder past Python's own filter
(CVE-2025-4517).
"""

import gzip
import lzma
import os
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
_SPARE = 2**30  # bytes that must remain free on the disk
_MOST_ENTRIES = 200_000  # each takes about a kilobyte of memory
_LARGEST_HEADER = 2**20  # bytes of a long name, or of the PAX header of an entry
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_HEADERS = (*_PAX, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
# Errors that `tarfile` does not translate: NUL in a name, an impossible date, headers of headers.
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError, OverflowError, RecursionError)


class Entry(tarfile.TarInfo):
    """An entry whose headers fit into memory; pass it as `tarinfo` to `tarfile.open`."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "Entry":
        """The entry in a block of 512 bytes; raises tarfile.ReadError if it announces a header that is too long."""
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _HEADERS and entry.size > _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of it has {entry.size} bytes")
        return entry


def entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The entries of an archive opened with `Entry`; raises tarfile.ReadError if it is damaged or has too many."""
    with translated_damage():
        for number, entry in enumerate(archive):
            if number == _MOST_ENTRIES or entry.size < 0:
                raise tarfile.ReadError(f"it has more than {_MOST_ENTRIES} entries, or one that is no file")
            yield entry


def unpack(path: Path, folder: Path, is_wanted: Callable[[str], object] = lambda _: True) -> None:
    """Unpack the entries of the archive at `path` whose names are wanted into `folder`; owners are left out.

    Raises tarfile.TarError if the archive is damaged or unpacks to too many bytes, or holds something other than
    regular files and folders, a path that leads out of the folder, or a file that is there already.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remaining = min(_ALWAYS + _TIMES * path.stat().st_size, shutil.disk_usage(folder).free - _SPARE)

    def checked(entry: tarfile.TarInfo, root: str) -> tarfile.TarInfo | None:
        nonlocal remaining
        name = entry.name[:200]
        if not is_wanted(entry.name.removeprefix("./")):
            return None
        if not (entry.isdir() or (entry.isreg() and not entry.issparse())):
            raise tarfile.ReadError(f"{name} is no regular file or folder: pack the archive without links")
        if entry.name.startswith("/") or ".." in entry.name.split("/"):
            raise tarfile.ReadError(f"{name} is no path below the archive's own folder")
        if not entry.isdir() and os.path.lexists(os.path.join(root, entry.name)):
            raise tarfile.ReadError(f"{name} exists already")
        remaining -= entry.size
        if remaining < 0:
            raise tarfile.ReadError(f"it unpacks to more than {_TIMES} times its size, or than the disk takes")
        return tarfile.data_filter(entry, root)  # refuses what a link in the folder would lead out of it

    with translated_damage(), tarfile.open(path, tarinfo=Entry) as archive:
        archive.extractall(folder, members=entries(archive), filter=checked)  # noqa: S202


@contextmanager
def translated_damage() -> Iterator[None]:
    """Raise tarfile.ReadError in place of the other errors that Python raises for a damaged archive."""
    try:
        yield
    except _DAMAGED as error:
        raise tarfile.ReadError(first_line(error)) from error
