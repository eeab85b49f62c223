"""Tar archives from jobs and models, which are not trusted: unpacked within limits and only below one folder.

`tarfile.extract` is not used. Its filter `data` has let chains of symbolic links lead out of the folder
(CVE-2025-4517), so only regular files and folders are unpacked, and no link is followed on the way to them.
"""

import errno
import gzip
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paretune.core.errors import first_line

_ALWAYS = 2**30
_TIMES = 20
"""An archive may unpack to `_ALWAYS` bytes plus `_TIMES` its size: weights pack to 0.9 of their size, logs to 0.1."""
_SPARE = 2**30  # bytes that must remain free on the disk
_MOST_ENTRIES = 200_000  # each takes about a kilobyte of memory
_LONGEST_PATH = 4_095  # bytes, PATH_MAX of Linux
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
    """Unpack the entries of the archive at `path` whose names are wanted into `folder`.

    Files that are there already are not overwritten. Owners, times and all modes but "executable" are left out.

    Raises:
        tarfile.TarError: the archive is damaged or unpacks to too many bytes, or it holds something other than
            regular files and folders, a path that leads out of the folder, or the same file twice.
        OSError: a name is invalid on this file system.
    """
    folder.mkdir(parents=True, exist_ok=True)
    remaining = min(_ALWAYS + _TIMES * path.stat().st_size, shutil.disk_usage(folder).free - _SPARE)
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with translated_damage(), tarfile.open(path, tarinfo=Entry) as archive:
            for entry in entries(archive):
                if not is_wanted(entry.name.removeprefix("./")):
                    continue
                parts = _parts(entry)
                if entry.isdir():
                    os.close(_open_folder(root, parts))
                else:
                    remaining -= _write(archive, entry, root, parts, remaining)
    finally:
        os.close(root)


def _parts(entry: tarfile.TarInfo) -> list[str]:
    """Names of the folders on the way to an entry, and of the entry itself.

    Raises:
        tarfile.ReadError: it is no regular file or folder, or its path is absolute, too long or leads upwards.
    """
    parts = [part for part in entry.name.split("/") if part not in ("", ".")]
    is_regular = entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not entry.issparse()
    if not ((is_regular and parts) or entry.isdir()):
        raise tarfile.ReadError(f"{entry.name[:200]} is no regular file or folder: pack the archive without links")
    if entry.name.startswith("/") or ".." in parts or len(os.fsencode(entry.name)) > _LONGEST_PATH:
        raise tarfile.ReadError(f"{entry.name[:200]} is no path below the archive's own folder")
    return parts


def _open_folder(root: int, parts: list[str]) -> int:
    """Descriptor of a folder below `root`, which is made if it is missing; the caller closes it."""
    folder = os.dup(root)
    for part in parts:
        parent = folder
        try:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=parent)
            folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise tarfile.ReadError(f"{'/'.join(parts)[:200]} leads through a link or a file") from error
            raise
        finally:
            os.close(parent)
    return folder


def _write(archive: tarfile.TarFile, entry: tarfile.TarInfo, root: int, parts: list[str], limit: int) -> int:
    """Write a regular file below `root`; its number of bytes, at most `limit`."""
    source = archive.extractfile(entry)
    if source is None or entry.size > limit:
        raise tarfile.ReadError(f"it unpacks to more than {_TIMES} times its size, or than the disk takes")
    folder = _open_folder(root, parts[:-1])
    try:
        mode = 0o755 if entry.mode & 0o100 else 0o644
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        file = os.open(parts[-1], flags, mode, dir_fd=folder)
    except FileExistsError as error:
        raise tarfile.ReadError(f"{entry.name[:200]} exists already") from error
    finally:
        os.close(folder)
    with os.fdopen(file, "wb") as target:
        shutil.copyfileobj(source, target)
        if target.tell() != entry.size:
            raise tarfile.ReadError(f"{entry.name[:200]} is cut off")
    return entry.size


@contextmanager
def translated_damage() -> Iterator[None]:
    """Raise tarfile.ReadError in place of the other errors that Python raises for a damaged archive."""
    try:
        yield
    except _DAMAGED as error:
        raise tarfile.ReadError(first_line(error)) from error
