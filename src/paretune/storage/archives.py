"""A tar archive that a stranger has packed, read within limits: a megabyte can unpack to a gigabyte.

Paths that lead out of the folder are refused by Python's filter `data`.
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
"""An archive may unpack to so many bytes, and so many times its own besides: weights pack to 0.9, logs to 0.1."""
_SPARE = 2**30  # bytes that a disk must have left
_MOST_ENTRIES = 200_000  # each takes about a kilobyte of memory
_LARGEST_HEADER = 2**20  # bytes of a long name, or of what PAX says of an entry
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_HEADERS = (*_PAX, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
# What `tarfile` lets through of damaged or harmful archives: NUL in a name, a date beyond all, headers of headers.
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError, OverflowError, RecursionError)


class Entry(tarfile.TarInfo):
    """An entry whose headers fit into memory; as `tarinfo` of `tarfile.open`."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "Entry":
        """The entry that a block of 512 bytes describes.

        Raises:
            tarfile.ReadError: what it announces is too long for a header.
        """
        entry = super().frombuf(buf, encoding, errors)
        if entry.type in _HEADERS and entry.size > _LARGEST_HEADER:
            raise tarfile.ReadError(f"a header of it has {entry.size} bytes")
        return entry


def entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The entries of an archive that was opened with `Entry`.

    Raises:
        tarfile.ReadError: it is damaged, or has more entries than any that somebody packed.
    """
    with damage_told():
        for number, entry in enumerate(archive):
            if number == _MOST_ENTRIES or entry.size < 0:
                raise tarfile.ReadError(f"it has more than {_MOST_ENTRIES} entries, or one that is no file")
            yield entry


def unpack(path: Path, folder: Path, is_wanted: Callable[[str], object] = lambda _: True) -> None:
    """Unpack the entries of the archive at `path` whose names are wanted, below `folder`.

    Raises:
        tarfile.TarError: it is damaged, leads out of the folder, or unpacks to more than it may.
        OSError: its names are none on this file system.
    """
    folder.mkdir(parents=True, exist_ok=True)
    most = min(_ALWAYS + _TIMES * path.stat().st_size, shutil.disk_usage(folder).free - _SPARE)
    with damage_told(), tarfile.open(path, tarinfo=Entry) as archive:
        for entry in entries(archive):
            if not is_wanted(entry.name.removeprefix("./")):
                continue
            most -= entry.size
            if most < 0:
                raise tarfile.ReadError(f"it unpacks to more than {_TIMES} times its size, or than the disk takes")
            if entry.islnk() and not (folder / entry.linkname).is_file():
                raise tarfile.ReadError("it links to what it has not unpacked")  # which would be a copy for each link
            archive.extract(entry, folder, filter="data")


@contextmanager
def damage_told() -> Iterator[None]:
    """Translate what Python raises of an archive that is damaged.

    Raises:
        tarfile.ReadError: it is.
    """
    try:
        yield
    except _DAMAGED as error:
        raise tarfile.ReadError(first_line(error)) from error
